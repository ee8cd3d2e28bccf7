// Answers of a run whose steps were merged into coarse rows, against those of the same run before.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/testing.h"
#include "format/run_files.h"
#include "format/segment.h"
#include "query/envelope.h"
#include "query/run.h"
#include "rules/engine.h"
#include "store/compactor/compactor.h"
#include "store/reader/testing.h"
#include "trial/coarse.h"

namespace tdbg::query {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSteps = 3000, kBad = 1234;

class LevelsTest : public testing::Test {
 protected:
  LevelsTest() {
    fs::create_directories(path_ + "/0");
    format::RunInfo run;
    run.id = "0123456789abcdef0123456789abcdef";
    run.name = "mine";
    base::Spill(path_ + "/run.json", run.ToJson());
    format::AttemptInfo info;
    info.world_size = 2;
    base::Spill(path_ + "/0/attempt.json", info.ToJson());
    for (int64_t rank = 0; rank < 2; ++rank) Write(rank);
  }
  std::string Worker(int64_t rank) const { return path_ + "/0/worker_" + std::to_string(rank); }

  /// Three tensors whose statistics jump about, a one-element loss, and one NaN in it, of one worker.
  void Write(int64_t rank) {
    store::WorkerFixture::Options options;
    options.worker = "worker_" + std::to_string(rank);
    options.rank = rank;
    options.raw_elements = 0;
    options.world_size = 2;
    options.segment_bytes = 200'000;
    store::WorkerFixture fixture(Worker(rank), options);
    format::TensorDef loss = store::WorkerFixture::Definition(8);
    loss.id = 4;
    loss.name = "loss";
    loss.short_name = "";
    loss.kind = "loss";
    loss.shape = {1};
    fixture.writer->AppendTensorDef(loss);
    std::mt19937_64 random(7 + static_cast<uint64_t>(rank));
    for (int64_t step = 0; step < kSteps; ++step) {
      std::vector<format::SummaryRow> rows;
      for (int t = 0; t < 3; ++t) {
        const double mean = std::ldexp(static_cast<double>(random() % 2'000'001) - 1e6, -10);
        Summary s = store::WorkerFixture::SummaryAt(t, step);
        s.nan_count = 0;
        s.mean = mean;
        s.min = mean - static_cast<double>(random() % 100);
        s.max = mean + static_cast<double>(random() % 100);
        s.l1 = std::fabs(mean) * 16;
        s.l2 = std::fabs(mean) * 4;
        s.abs_max = std::max(std::fabs(s.min), std::fabs(s.max));
        s.variance = static_cast<double>(random() % 1000);
        s.zero_count = t == 2 && step == 77 ? 16 : random() % 3;
        rows.push_back(format::ToRow(static_cast<uint32_t>(t), {}, s));
      }
      Summary s;
      s.count = 1;
      s.min = s.max = s.mean = static_cast<double>(random() % 1000);
      s.l1 = s.l2 = s.abs_min = s.abs_max = s.mean;
      s.variance = s.m3 = s.m4 = 0;
      if (step == kBad && rank == 0) {
        s = Summary();
        s.count = s.nan_count = 1;
      }
      rows.push_back(format::ToRow(4, {}, s));
      fixture.writer->AppendSummaries(step, rows, {});
      format::Commit commit;
      commit.global_step = commit.mode_step = step;
      commit.mode = step % 5 == 3 ? 2 : 1;  // a line has the evaluations' points, too
      commit.wall_nanos = 1'700'000'000'000'000'000 + step;
      fixture.writer->Commit(commit);
    }
    fixture.End();
    fixture.Close();
  }
  void Compact() {
    for (int64_t rank = 0; rank < 2; ++rank) TDBG_ASSERT_OK(store::CompactWorker(Worker(rank)));
  }
  std::unique_ptr<query::Run> Open() {
    auto run = query::Run::Open(path_);
    EXPECT_TRUE(run.ok()) << run.status().ToString();
    return *std::move(run);
  }
  static std::string Ask(query::Run& run, const std::string& name,
                         std::map<std::string, std::string, std::less<>> parameters) {
    const auto answer = run.Ask({name, std::move(parameters)});
    EXPECT_TRUE(answer.ok()) << answer.status().ToString();
    return answer.ok() ? answer->body : "";
  }
  template <typename T>
  static std::vector<T> Column(const std::string& body, std::string_view key) {
    const auto header = format::DecodeSegmentHeader(std::as_bytes(std::span(body)), body.size());
    EXPECT_TRUE(header.ok());
    for (const format::SegmentEntry& entry : header->entries) {
      if (entry.key != key) continue;
      std::vector<T> out((entry.end - entry.begin) / sizeof(T));
      if (!out.empty())
        std::memcpy(out.data(), body.data() + header->data_offset + entry.begin, entry.end - entry.begin);
      return out;
    }
    ADD_FAILURE() << "no column " << key;
    return {};
  }

  base::ScratchDirectory scratch_;
  const std::string path_ = scratch_ / "mine";
};

const char* const kStatistics[] = {"mean_abs", "l2",         "abs_max",        "std", "mean", "min",
                                   "max",      "zero_share", "nonfinite_share"};
const char* const kColumns[] = {"3000", "512", "100", "7", "1"};

TEST_F(LevelsTest, AMatrixOfCoarseRowsIsTheMatrixOfAllSteps) {
  std::vector<std::string> before;
  std::string was_run;
  {
    const auto run = Open();
    for (const char* const statistic : kStatistics) {
      for (const char* const columns : kColumns)
        before.push_back(Ask(*run, "matrix", {{"statistic", statistic}, {"columns", columns}}));
    }
    was_run = Ask(*run, "run", {});
  }
  Compact();
  const auto run = Open();
  size_t at = 0;
  for (const char* const statistic : kStatistics) {
    for (const char* const columns : kColumns) {
      EXPECT_TRUE(Ask(*run, "matrix", {{"statistic", statistic}, {"columns", columns}}) == before[at++])
          << statistic << " " << columns;
    }
  }
  const Json was = Json::parse(was_run), is = Json::parse(Ask(*run, "run", {}));
  EXPECT_EQ(was["sentence"], is["sentence"]);
  EXPECT_NE(is["sentence"].dump().find("1234"), std::string::npos) << is["sentence"].dump();
}

TEST_F(LevelsTest, WhatWasDroppedIsDrawnFromCoarseRows) {
  std::map<std::string, std::string> matrices;
  std::vector<int64_t> all_steps;
  std::vector<double> all_values;
  {
    const auto run = Open();
    for (const char* const statistic : kStatistics)
      matrices[statistic] = Ask(*run, "matrix", {{"statistic", statistic}, {"columns", "12"}});
    const auto series = run->trial().series("tensor/1", "l2");
    ASSERT_TRUE(series.ok());
    all_steps = series->steps;
    all_values = series->values;
  }
  store::CompactOptions options;
  options.retention.budget_bytes = 1;
  options.retention.first = options.retention.newest = 100;
  for (int64_t rank = 0; rank < 2; ++rank) {
    const auto result = store::CompactWorker(Worker(rank), options);
    TDBG_ASSERT_OK(result);
    EXPECT_GT(result->thinned_steps, 2000u);
  }
  const auto run = Open();
  const CoarseRows coarse(run->trial());
  const CoarseRows::Thinned thinned = coarse.ThinnedSteps();
  EXPECT_EQ(thinned.first, 100);
  EXPECT_LT(thinned.last, 2900);
  // Buckets of 256 steps: groups lie within them. Step 1234's NaN is in its cell, and in no other.
  for (const char* const statistic : kStatistics) {
    SCOPED_TRACE(statistic);
    const std::string now = Ask(*run, "matrix", {{"statistic", statistic}, {"columns", "12"}});
    const std::string& was = matrices[statistic];
    EXPECT_EQ(Column<float>(now, "low").size(), Column<float>(was, "low").size());
    const auto same = [&](std::string_view key) {
      const std::vector<float> a = Column<float>(now, key), b = Column<float>(was, key);
      for (size_t i = 0; i < a.size(); ++i)
        EXPECT_TRUE(a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) << key << " " << i;
    };
    same("low");
    same("high");
    EXPECT_EQ(Column<uint8_t>(now, "flags"), Column<uint8_t>(was, "flags"));
    EXPECT_EQ(Column<int64_t>(now, "step_first"), Column<int64_t>(was, "step_first"));
    EXPECT_EQ(Column<uint32_t>(now, "shed"), std::vector<uint32_t>(12, 0));
    uint64_t steps = 0;
    for (const uint32_t n : Column<uint32_t>(now, "coarse")) steps += n;
    EXPECT_EQ(steps, thinned.steps);
  }
  // In the narrowest buckets the NaN is seen all the same.
  const auto flags = Column<uint8_t>(Ask(*run, "matrix", {{"columns", "3000"}}), "flags");
  size_t nan = 0;
  for (const uint8_t flag : flags) nan += (flag & kCellNan) != 0;
  EXPECT_GE(nan, 1u);
  EXPECT_LE(nan, 16u);
  const Json overview = Json::parse(Ask(*run, "run", {}));
  EXPECT_NE(overview["sentence"].dump().find("1234"), std::string::npos);
  EXPECT_EQ(overview["coarse_steps"].get<size_t>(), thinned.steps);

  // A line whose pixels end where groups do is the line of all steps.
  const std::string line =
      Ask(*run, "line",
          {{"tensor", "tensor/1"}, {"field", "l2"}, {"begin", "256"}, {"end", "2304"}, {"columns", "8"}});
  const size_t from = 256, to = 2304;
  const Envelope want = EnvelopeOf(std::span(all_steps).subspan(from, to - from),
                                   std::span(all_values).subspan(from, to - from), 8);
  EXPECT_EQ(Column<int64_t>(line, "step"), want.steps);
  EXPECT_EQ(Column<double>(line, "value"), want.values);
  EXPECT_NE(line.find("\\\"coarse\\\":true"), std::string::npos);
  // Of a field that coarse rows do not have, it is said.
  const std::string lost = Ask(*run, "line", {{"tensor", "tensor/1"}, {"field", "m4"}});
  EXPECT_NE(lost.find("\\\"lost\\\":true"), std::string::npos);
  // A loss is there at every step, its NaN among them.
  const std::string loss = Ask(*run, "line", {{"tensor", "loss"}, {"columns", "4000"}});
  EXPECT_EQ(Column<int64_t>(loss, "step").size(), static_cast<size_t>(kSteps - 1));
  EXPECT_EQ(Column<int64_t>(loss, "nonfinite_step"), std::vector<int64_t>{kBad});
  // One of the evaluations alone, and the names of both.
  EXPECT_NE(loss.find("\\\"modes\\\":[\\\"TRAIN\\\",\\\"EVAL\\\"]"), std::string::npos);
  const std::string evaluations =
      Ask(*run, "line", {{"tensor", "loss"}, {"mode", "EVAL"}, {"columns", "4000"}});
  const std::vector<int64_t> steps = Column<int64_t>(evaluations, "step");
  EXPECT_EQ(steps.size(), static_cast<size_t>(kSteps / 5));
  for (const int64_t step : steps) EXPECT_EQ(step % 5, 3);
  // And what is gone says why.
  const auto summary = run->trial().summary("tensor/1", 200);
  EXPECT_EQ(summary.status().code(), Code::kNotFound);
  EXPECT_NE(summary.status().message().find("dropped"), std::string::npos) << summary.status().message();
}

TEST_F(LevelsTest, ARuleThatIsAskedAboutWhatWasDroppedSaysIncomplete) {
  plan::RuleConfig rule;
  rule.rule = "ExplodingTensor";
  rule.parameters["tensor_regex"] = "^tensor/";
  const auto judge = [&] {
    const auto run = Open();
    auto engine = rules::Engine::Create({rule});
    EXPECT_TRUE(engine.ok()) << engine.status().ToString();
    TDBG_EXPECT_OK((*engine)->Finish(run->trial(), rules::JobEnd::kCompleted, 1));
    return (*engine)->statuses()[0];
  };
  EXPECT_EQ(judge().state, rules::RuleState::kNoIssuesFound);
  Compact();
  EXPECT_EQ(judge().state, rules::RuleState::kNoIssuesFound);  // nothing was dropped
  store::CompactOptions options;
  options.retention.budget_bytes = 1;
  TDBG_ASSERT_OK(store::CompactWorker(Worker(1), options));
  const rules::RuleStatus status = judge();
  EXPECT_EQ(status.state, rules::RuleState::kError);
  EXPECT_NE(status.details.find("incomplete"), std::string::npos) << status.details;
  EXPECT_GT(status.steps_incomplete, 1000);
}

TEST_F(LevelsTest, ARunWithoutCoarseRowsHasNone) {
  const auto run = Open();
  const CoarseRows coarse(run->trial());
  std::vector<CoarseRows::Span> spans;
  EXPECT_EQ(coarse.From(0, kSteps, &spans), 0u);
  coarse.Of(17, &spans);
  EXPECT_TRUE(spans.empty());
  EXPECT_EQ(coarse.ThinnedSteps().steps, 0u);
}

}  // namespace
}  // namespace tdbg::query
