// A run that keeps values alone answers as one that keeps their statistics.
#include "trial/computed_rows.h"

#include <gmock/gmock.h>

#include <bit>
#include <cstring>
#include <map>
#include <random>
#include <tuple>

#include "format/run_files.h"
#include "store/reader/testing.h"
#include "tdbg/trial.h"
#include "trial/access.h"

namespace tdbg {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// Tensors of some types and sizes, and what they are at a step.
struct Kind {
  const char* name;
  DType dtype;
  size_t elements;
};
constexpr Kind kKinds[] = {{"gradient/large", DType::kFloat32, 5000},
                           {"gradient/half", DType::kBFloat16, 700},
                           {"weight/double", DType::kFloat64, 300},
                           {"index/long", DType::kInt64, 257},
                           {"mask/bool", DType::kBool, 40},
                           {"loss", DType::kFloat32, 1},
                           {"empty", DType::kFloat32, 0}};

std::vector<std::byte> ValueOf(const Kind& kind, int64_t step) {
  std::mt19937_64 random(static_cast<uint64_t>(step) * 131 + kind.elements);
  std::normal_distribution<double> normal;
  std::vector<std::byte> bytes(kind.elements * ItemSize(kind.dtype));
  for (size_t i = 0; i < kind.elements; ++i) {
    double x = normal(random) * std::exp2(static_cast<double>(step % 7));
    if (i % 97 == 3) x = 0;
    if (step % 3 == 1 && i % 113 == 5) x = i % 2 == 0 ? INFINITY : NAN;
    std::byte* const at = bytes.data() + i * ItemSize(kind.dtype);
    if (kind.dtype == DType::kFloat32) {
      const auto value = static_cast<float>(x);
      std::memcpy(at, &value, sizeof(value));
    } else if (kind.dtype == DType::kBFloat16) {
      const auto value = static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(x)) >> 16);
      std::memcpy(at, &value, sizeof(value));
    } else if (kind.dtype == DType::kFloat64) {
      std::memcpy(at, &x, sizeof(x));
    } else if (kind.dtype == DType::kInt64) {
      const auto value = static_cast<int64_t>(std::isfinite(x) ? x * 1000 : 0);
      std::memcpy(at, &value, sizeof(value));
    } else {
      *at = std::byte{x > 0};
    }
  }
  return bytes;
}

class ComputedRowsTest : public testing::Test {
 protected:
  std::unique_ptr<store::WorkerFixture> Begin(const std::string& run) {
    std::filesystem::create_directories(run + "/0");
    format::RunInfo info;
    info.id = "0123456789abcdef0123456789abcdef";
    base::Spill(run + "/run.json", info.ToJson());
    format::AttemptInfo attempt;
    attempt.world_size = 1;
    base::Spill(run + "/0/attempt.json", attempt.ToJson());
    auto worker = std::make_unique<store::WorkerFixture>(
        run + "/0/worker_0", store::WorkerFixture::Options{.tensors = 0, .raw_elements = 0});
    for (uint32_t id = 1; const Kind& kind : kKinds) {
      format::TensorDef def;
      def.id = id++;
      def.name = kind.name;
      def.dtype = kind.dtype;
      def.shape = {static_cast<int64_t>(kind.elements)};
      worker->writer->AppendTensorDef(def);
    }
    return worker;
  }
  /// \param statistics  as capture keeps them; otherwise values alone
  static void Step(store::WorkerFixture& worker, int64_t step, bool statistics, format::SubKey key = {},
                   bool commits = true) {
    for (uint32_t id = 1; const Kind& kind : kKinds) {
      const std::vector<std::byte> bytes = ValueOf(kind, step + key.sub * 1000);
      const int64_t shape[] = {static_cast<int64_t>(kind.elements)};
      const TensorView view{bytes.data(), kind.dtype, shape, {}};
      if (statistics) {
        Summary summary;
        Histogram histogram;
        TDBG_EXPECT_OK(Summarizer().Summarize(view, &summary, &histogram));
        std::vector<uint8_t> encoded;
        if (kind.elements >= 256) EncodeHistogram(histogram, &encoded);
        format::SummaryRow row = format::ToRow(id, key, summary);
        row.histogram_bytes = static_cast<uint32_t>(encoded.size());
        worker.writer->AppendSummaries(step, {&row, 1}, encoded);
      } else {
        worker.writer->AppendRaw(step, id, key, view);
      }
      ++id;
    }
    if (!commits) return;
    format::Commit commit;
    commit.global_step = commit.mode_step = step;
    commit.mode = static_cast<uint16_t>(format::Mode::kTrain);
    worker.writer->Commit(commit);
  }

  using Key = std::tuple<int64_t, std::string, uint16_t>;
  using Rows = std::map<Key, std::pair<std::vector<double>, Histogram>>;
  /// All that whoever judges sees of a run.
  static Rows Seen(const Trial& trial) {
    Rows out;
    const TrialAccess access(trial);
    for (size_t step = 0; step < access.complete_count(); ++step) {
      uint64_t lost = 0;
      access.ForEachSummary(
          step,
          [&](const TrialAccess::Row& row) {
            auto& [numbers, histogram] =
                out[{row.global_step(), access.tensor(row.tensor).name, row.sub.sub}];
            const Summary summary = row.summary();
            format::ForEachStatistic([&](auto number) { numbers.push_back(static_cast<double>(number)); },
                                     summary);
            if (!row.has_histogram()) return;
            const auto kept = access.HistogramOf(row);
            ASSERT_TRUE(kept.ok()) << kept.status().ToString();
            histogram = *kept;
          },
          &lost);
      EXPECT_EQ(lost, 0u);
    }
    return out;
  }
  static void ExpectSame(const Rows& made, const Rows& captured) {
    ASSERT_EQ(made.size(), captured.size());
    for (const auto& [key, want] : captured) {
      ASSERT_TRUE(made.contains(key)) << std::get<1>(key);
      const auto& got = made.at(key);
      // Bit by bit, NaN included: it is the same code on the same bytes.
      EXPECT_EQ(std::memcmp(got.first.data(), want.first.data(), want.first.size() * sizeof(double)), 0)
          << std::get<1>(key) << " at " << std::get<0>(key);
      EXPECT_EQ(got.second, want.second) << std::get<1>(key);
    }
  }
  static std::unique_ptr<Trial> Open(const std::string& run) {
    auto trial = Trial::Open(run);
    EXPECT_TRUE(trial.ok()) << trial.status().ToString();
    return *std::move(trial);
  }

  base::ScratchDirectory scratch_;
  const std::string made_ = scratch_ / "values", captured_ = scratch_ / "statistics";
};

TEST_F(ComputedRowsTest, ValuesHaveTheStatisticsThatCaptureMakesLiveAndSealed) {
  auto values = Begin(made_), statistics = Begin(captured_);
  for (int64_t step = 0; step < 12; ++step) {
    Step(*values, step, false);
    Step(*statistics, step, true);
  }
  const auto made = Open(made_), captured = Open(captured_);
  const Rows live = Seen(*captured);
  EXPECT_EQ(live.size(), 12 * std::size(kKinds));
  ExpectSame(Seen(*made), live);
  // The next steps, once in the journal and once sealed.
  for (int64_t step = 12; step < 15; ++step) {
    Step(*values, step, false);
    Step(*statistics, step, true);
  }
  values->End(), statistics->End();
  values->Close(), statistics->Close();
  ASSERT_TRUE(made->Refresh().ok() && captured->Refresh().ok());
  EXPECT_EQ(Seen(*captured).size(), 15 * std::size(kKinds));
  ExpectSame(Seen(*made), Seen(*captured));
  ExpectSame(Seen(*Open(made_)), Seen(*captured));
}

TEST_F(ComputedRowsTest, MicroStepsHaveARowEach) {
  auto values = Begin(made_), statistics = Begin(captured_);
  for (auto* worker : {values.get(), statistics.get()}) {
    for (uint16_t sub = 0; sub < 3; ++sub) Step(*worker, 0, worker == statistics.get(), {sub}, sub == 2);
  }
  EXPECT_EQ(Seen(*Open(captured_)).size(), 3 * std::size(kKinds));
  ExpectSame(Seen(*Open(made_)), Seen(*Open(captured_)));
}

TEST_F(ComputedRowsTest, WhatHasARowIsNotMadeAgain) {
  auto worker = Begin(made_);
  Step(*worker, 0, true, {}, false);
  Step(*worker, 0, false);
  const auto trial = Open(made_);
  EXPECT_EQ(Seen(*trial).size(), std::size(kKinds));
  size_t rows = 0;
  TrialAccess(*trial).ForEachSummary(0, [&](const TrialAccess::Row& row) {
    ++rows;
    EXPECT_FALSE(ComputedRows::IsOf(row.ref));
  });
  EXPECT_EQ(rows, std::size(kKinds));
}

TEST_F(ComputedRowsTest, AllOfTheTrialsCallsAnswer) {
  auto worker = Begin(made_);
  for (int64_t step = 0; step < 3; ++step) Step(*worker, step, false);
  const auto trial = Open(made_);
  EXPECT_THAT(trial->steps({.kind = StepKind::kSummary}), ElementsAre(0, 1, 2));
  EXPECT_THAT(trial->steps({.kind = StepKind::kHistogram}), ElementsAre(0, 1, 2));
  EXPECT_THAT(*trial->tensor_steps("gradient/large", StepKind::kSummary), ElementsAre(0, 1, 2));
  EXPECT_THAT(*trial->tensor_steps("gradient/large", StepKind::kHistogram), ElementsAre(0, 1, 2));
  EXPECT_THAT(*trial->tensor_steps("mask/bool", StepKind::kHistogram), IsEmpty());
  EXPECT_THAT(*trial->tensor_workers("gradient/large", 1, StepKind::kHistogram), ElementsAre("worker_0"));
  EXPECT_THAT(*trial->tensor_workers("mask/bool", 1, StepKind::kHistogram), IsEmpty());
  EXPECT_THAT(*trial->tensor_workers("mask/bool", 1, StepKind::kSummary), ElementsAre("worker_0"));
  EXPECT_EQ(trial->summary("gradient/large", 2)->count, 5000u);
  Summary summary;
  Histogram histogram;
  const std::vector<std::byte> bytes = ValueOf(kKinds[0], 2);
  const int64_t shape[] = {5000};
  TDBG_EXPECT_OK(Summarizer().Summarize({bytes.data(), DType::kFloat32, shape, {}}, &summary, &histogram));
  EXPECT_EQ(*trial->histogram("gradient/large", 2), histogram);
  EXPECT_FALSE(trial->histogram("mask/bool", 2).ok());
  const TrialAccess access(*trial);
  float loss = 0;
  std::memcpy(&loss, ValueOf(kKinds[5], 2).data(), sizeof(loss));
  EXPECT_EQ(access.ScalarAt(*access.Find("loss"), 2), loss);
  EXPECT_EQ(access.ScalarAt(*access.Find("gradient/large"), 2), std::nullopt);
}

TEST_F(ComputedRowsTest, AValueThatCannotBeReadIsALostRow) {
  {
    auto worker = Begin(made_);
    Step(*worker, 0, false);
    worker->End();
  }
  const std::string segment = store::SegmentsOf(made_ + "/0/worker_0").front();
  std::string bytes = base::Slurp(segment);
  const auto header = format::DecodeSegmentHeader(std::as_bytes(std::span(bytes)), bytes.size());
  for (const format::SegmentEntry& entry : header->entries) {
    if (entry.key.find("gradient/large") != std::string::npos)
      bytes[header->data_offset + entry.begin + 8] ^= 1;
  }
  base::Spill(segment, bytes);
  const auto trial = Open(made_);
  uint64_t lost = 0;
  size_t rows = 0;
  TrialAccess(*trial).ForEachSummary(0, [&](const TrialAccess::Row&) { ++rows; }, &lost);
  EXPECT_EQ(lost, 1u);
  EXPECT_EQ(rows, std::size(kKinds) - 1);
  EXPECT_FALSE(trial->damage().empty());
}

}  // namespace
}  // namespace tdbg
