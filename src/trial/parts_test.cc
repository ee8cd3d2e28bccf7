// Tensors of which each worker keeps a part: what is asked without naming a worker is answered for the whole.
#include "trial/parts.h"

#include <gmock/gmock.h>

#include <cmath>

#include "format/run_files.h"
#include "store/reader/testing.h"
#include "tdbg/trial.h"
#include "trial/access.h"

namespace tdbg {
namespace {

using store::WorkerFixture;
using testing::ElementsAre;

constexpr int64_t kRows = 10, kColumns = 120;

float Element(int64_t step, int64_t row, int64_t column) {
  return std::sin(static_cast<float>(step * 7919 + row * 131 + column));
}

std::vector<float> Block(int64_t step, int64_t row, int64_t rows, int64_t column, int64_t columns) {
  std::vector<float> out;
  for (int64_t r = row; r < row + rows; ++r) {
    for (int64_t c = column; c < column + columns; ++c) out.push_back(Element(step, r, c));
  }
  return out;
}

void Summarized(const std::vector<float>& values, Summary* summary, Histogram* histogram) {
  const int64_t shape[] = {static_cast<int64_t>(values.size())};
  TDBG_EXPECT_OK(Summarizer().Summarize({values.data(), DType::kFloat32, shape, {}}, summary, histogram));
}

/// One worker with a block of rows and columns of "w".
class Keeper {
 public:
  Keeper(const std::string& attempt, int64_t rank, int64_t row, int64_t rows, int64_t column = 0,
         int64_t columns = kColumns)
      : row_(row), rows_(rows), column_(column), columns_(columns) {
    WorkerFixture::Options options{.tensors = 0, .raw_elements = 0};
    options.worker = "worker_" + std::to_string(rank);
    options.rank = rank;
    fixture = std::make_unique<WorkerFixture>(attempt + "/" + options.worker, options);
    format::TensorDef def;
    def.id = 1;
    def.name = "w";
    def.kind = "weight";
    def.dtype = DType::kFloat32;
    def.shape = {rows, columns};
    def.whole_shape = {kRows, kColumns};
    def.part_begin = {row, column};
    fixture->writer->AppendTensorDef(def);
  }
  void Step(int64_t step, bool with_tensor = true, bool final = false, bool histogram_due = true) {
    const format::SubKey key{0, final ? format::Point::kEnd : format::Point::kNone};
    if (with_tensor && rows_ > 0) {
      const std::vector<float> values = Block(step, row_, rows_, column_, columns_);
      Summary summary;
      Histogram histogram;
      Summarized(values, &summary, &histogram);
      std::vector<uint8_t> bytes;
      if (histogram_due) EncodeHistogram(histogram, &bytes);
      format::SummaryRow row = format::ToRow(1, key, summary);
      if (!histogram_due) row.flags = format::kRowHistogramNotDue;
      row.histogram_bytes = static_cast<uint32_t>(bytes.size());
      fixture->writer->AppendSummaries(step, {&row, 1}, bytes);
      const int64_t shape[] = {rows_, columns_};
      fixture->writer->AppendRaw(step, 1, key, {values.data(), DType::kFloat32, shape, {}});
    }
    format::Commit commit;
    commit.global_step = commit.mode_step = step;
    commit.mode = static_cast<uint16_t>(format::Mode::kTrain);
    if (final) commit.flags = format::kCommitOutside;
    fixture->writer->Commit(commit);
  }

  std::unique_ptr<WorkerFixture> fixture;

 private:
  int64_t row_, rows_, column_, columns_;
};

class PartsTest : public testing::Test {
 protected:
  PartsTest() {
    std::filesystem::create_directories(path_ + "/0");
    format::RunInfo run;
    run.id = "0123456789abcdef0123456789abcdef";
    base::Spill(path_ + "/run.json", run.ToJson());
  }
  Keeper& Add(int64_t row, int64_t rows, int64_t column = 0, int64_t columns = kColumns) {
    const auto rank = static_cast<int64_t>(keepers_.size());
    keepers_.push_back(std::make_unique<Keeper>(path_ + "/0", rank, row, rows, column, columns));
    format::AttemptInfo info;
    info.world_size = rank + 1;
    base::Spill(path_ + "/0/attempt.json", info.ToJson());
    return *keepers_.back();
  }
  void StepAll(int64_t step) {
    for (auto& keeper : keepers_) keeper->Step(step);
  }
  std::unique_ptr<Trial> Open() {
    auto trial = Trial::Open(path_);
    EXPECT_TRUE(trial.ok()) << trial.status().ToString();
    return *std::move(trial);
  }
  static void ExpectWhole(const Summary& got, int64_t step) {
    Summary want;
    Summarized(Block(step, 0, kRows, 0, kColumns), &want, nullptr);
    EXPECT_EQ(got.count, want.count);
    EXPECT_EQ(got.min, want.min);
    EXPECT_EQ(got.max, want.max);
    for (const auto& [a, b] : {std::pair(got.mean, want.mean),
                               {got.variance, want.variance},
                               {got.l1, want.l1},
                               {got.l2, want.l2},
                               {got.m4, want.m4}}) {
      EXPECT_NEAR(a, b, 1e-6 * std::fabs(b) + 1e-9);
    }
    EXPECT_NEAR(got.m3, want.m3, 1e-6);
  }
  static void ExpectWhole(const TensorValue& got, int64_t step) {
    EXPECT_THAT(got.shape, ElementsAre(kRows, kColumns));
    const auto* data = static_cast<const float*>(got.data);
    EXPECT_EQ(std::vector<float>(data, data + kRows * kColumns), Block(step, 0, kRows, 0, kColumns));
  }

  base::ScratchDirectory scratch_;
  const std::string path_ = scratch_ / "mine";
  std::vector<std::unique_ptr<Keeper>> keepers_;
};

TEST_F(PartsTest, TogetherTheyAreTheWhole) {
  Add(0, 4);
  Add(4, 6);
  for (int64_t step = 0; step < 3; ++step) StepAll(step);
  for (auto& keeper : keepers_) keeper->Step(2, true, true);
  const auto trial = Open();
  EXPECT_TRUE(trial->tensor("w")->in_parts);
  EXPECT_THAT(trial->tensor("w")->shape, ElementsAre(kRows, kColumns));
  for (int64_t step = 0; step < 3; ++step) {
    ExpectWhole(*trial->summary("w", step), step);
    ExpectWhole(*trial->value("w", step), step);
    Summary all;
    Histogram histogram;
    Summarized(Block(step, 0, kRows, 0, kColumns), &all, &histogram);
    EXPECT_EQ(*trial->histogram("w", step), histogram);
  }
  ExpectWhole(*trial->final_summary("w"), 2);
  ExpectWhole(*trial->final_value("w"), 2);
  // A worker that is named answers for its part.
  EXPECT_EQ(trial->summary("w", 1, "worker_1")->count, static_cast<uint64_t>(6 * kColumns));
  EXPECT_THAT(trial->value("w", 1, "worker_0")->shape, ElementsAre(4, kColumns));
  EXPECT_THAT(*trial->shape("w", 1), ElementsAre(kRows, kColumns));
  const AxisRange row{.begin = 5, .count = 1};
  const auto cut = trial->slice("w", 1, {&row, 1});
  EXPECT_EQ(static_cast<const float*>(cut->data)[0], Element(1, 5, 0));
}

TEST_F(PartsTest, SeriesAndFramesAreOfTheWhole) {
  Add(0, 4);
  Add(4, 6);
  for (int64_t step = 0; step < 3; ++step) StepAll(step);
  const auto trial = Open();
  const auto series = trial->series("w", "l2");
  EXPECT_THAT(series->steps, ElementsAre(0, 1, 2));
  for (size_t i = 0; i < 3; ++i)
    EXPECT_DOUBLE_EQ(series->values[i], trial->summary("w", series->steps[i])->l2);
  const std::string fields[] = {"count"};
  EXPECT_THAT(trial->frame({}, fields)->values[0], ElementsAre(1200, 1200, 1200));
  EXPECT_THAT(trial->frame({}, fields, "*")->values[0], ElementsAre(480, 720, 480, 720, 480, 720));
}

TEST_F(PartsTest, RulesSeeOneRowOfTheWhole) {
  Add(0, 4);
  Add(4, 6);
  StepAll(0);
  const auto trial = Open();
  const TrialAccess access(*trial);
  int rows = 0;
  uint64_t lost = 0;
  access.ForEachSummary(
      0,
      [&](const TrialAccess::Row& row) {
        ++rows;
        ExpectWhole(row.summary(), 0);
        EXPECT_EQ(access.tensor(row.tensor).name, "w");
        Summary all;
        Histogram histogram;
        Summarized(Block(0, 0, kRows, 0, kColumns), &all, &histogram);
        EXPECT_EQ(*access.HistogramOf(row), histogram);
      },
      &lost);
  EXPECT_EQ(rows, 1);
  EXPECT_EQ(lost, 0u);
}

TEST_F(PartsTest, AWholeHasAHistogramWhereAllPartsHaveOne) {
  Keeper& first = Add(0, 4);
  Keeper& second = Add(4, 6);
  first.Step(0, true, false, /*histogram_due=*/true);
  second.Step(0, true, false, /*histogram_due=*/false);
  StepAll(1);
  const auto trial = Open();
  EXPECT_EQ(trial->histogram("w", 0).status().code(), Code::kNotFound);
  EXPECT_TRUE(trial->histogram("w", 1).ok());
  EXPECT_TRUE(trial->histogram("w", 0, "worker_0").ok());
  const TrialAccess access(*trial);
  for (const size_t step : {0, 1}) {
    access.ForEachSummary(step, [&](const TrialAccess::Row& row) {
      EXPECT_EQ(row.has_histogram(), step == 1);
      EXPECT_EQ(row.histogram_not_due(), step == 0);
    });
  }
}

TEST_F(PartsTest, ReplicasOfAPartCountOnce) {
  for (int replica = 0; replica < 2; ++replica) {
    Add(0, 5);
    Add(5, 5);
  }
  StepAll(0);
  const auto trial = Open();
  ExpectWhole(*trial->summary("w", 0), 0);
  ExpectWhole(*trial->value("w", 0), 0);
}

TEST_F(PartsTest, BlocksOfColumnsAndWorkersWithoutAnElement) {
  Add(0, 0);
  Add(0, 3, 0, 50);
  Add(0, 3, 50, 70);
  Add(3, 7);
  StepAll(0);
  const auto trial = Open();
  ExpectWhole(*trial->summary("w", 0), 0);
  ExpectWhole(*trial->value("w", 0), 0);
}

TEST_F(PartsTest, WithoutAllPartsThereIsNoWhole) {
  Keeper& first = Add(0, 4);
  Keeper& second = Add(4, 6);
  first.Step(0);
  second.Step(0, /*with_tensor=*/false);
  StepAll(1);
  const auto trial = Open();
  EXPECT_EQ(trial->summary("w", 0).status().code(), Code::kNotFound);
  EXPECT_EQ(trial->histogram("w", 0).status().code(), Code::kNotFound);
  EXPECT_EQ(trial->value("w", 0).status().code(), Code::kNotFound);
  EXPECT_EQ(trial->summary("w", 0, "worker_0")->count, static_cast<uint64_t>(4 * kColumns));
  EXPECT_THAT(trial->series("w", "mean")->steps, ElementsAre(1));
  uint64_t lost = 0;
  int rows = 0;
  TrialAccess(*trial).ForEachSummary(0, [&](const TrialAccess::Row&) { ++rows; }, &lost);
  EXPECT_EQ(rows, 0);
  EXPECT_EQ(lost, 1u) << "a rule must know that it did not see everything";
}

TEST_F(PartsTest, PartsThatDoNotFitAreDamage) {
  Add(0, 4);
  Add(8, 6);  // four rows of it lie outside
  StepAll(0);
  const auto trial = Open();
  EXPECT_EQ(trial->value("w", 0).status().code(), Code::kDataLoss);
}

}  // namespace
}  // namespace tdbg
