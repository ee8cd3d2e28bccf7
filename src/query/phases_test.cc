#include "query/phases.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>

#include "base/testing.h"
#include "format/run_files.h"
#include "query/run.h"
#include "store/reader/testing.h"

namespace tdbg::query {
namespace {

constexpr int64_t kTrain = 1, kEval = 2, kPredict = 3;

class PhasesTest : public testing::Test {
 protected:
  PhasesTest() {
    std::filesystem::create_directories(path_);
    format::RunInfo run;
    run.id = "0123456789abcdef0123456789abcdef";
    run.name = "mine";
    base::Spill(path_ + "/run.json", run.ToJson());
  }
  /// Steps [first, last] of one worker; mode: of each step.
  void Train(int64_t attempt, int64_t first, int64_t last, const std::function<int64_t(int64_t)>& mode) {
    const std::string folder = path_ + "/" + std::to_string(attempt);
    std::filesystem::create_directories(folder);
    format::AttemptInfo info;
    info.world_size = 1;
    base::Spill(folder + "/attempt.json", info.ToJson());
    store::WorkerFixture::Options options;
    options.tensors = 1;
    options.raw_elements = 0;
    options.histograms_every = 0;
    options.world_size = 1;
    options.step_base = first;
    store::WorkerFixture fixture(folder + "/worker_0", options);
    for (int64_t step = first; step <= last; ++step) {
      format::Commit commit;
      commit.global_step = commit.mode_step = step;
      commit.mode = static_cast<uint8_t>(mode(step));
      fixture.writer->Commit(commit);
    }
    fixture.End();
    fixture.Close();
  }
  Json Overview() {
    auto run = Run::Open(path_);
    EXPECT_TRUE(run.ok()) << run.status().ToString();
    const auto answer = (*run)->Ask({"run", {}});
    EXPECT_TRUE(answer.ok()) << answer.status().ToString();
    return Json::parse(answer->body);
  }

  base::ScratchDirectory scratch_;
  const std::string path_ = scratch_ / "mine";
};

TEST_F(PhasesTest, AnAttemptBeginsWhereItsFirstStepIsRead) {
  Train(0, 0, 29, [](int64_t) { return kTrain; });
  Train(1, 20, 39, [](int64_t) { return kTrain; });  // it trains ten steps again
  const Json overview = Overview();
  EXPECT_EQ(overview["attempt_starts"],
            Json::parse(R"([{"attempt": 0, "first_step": 0}, {"attempt": 1, "first_step": 20}])"));
  EXPECT_EQ(overview["evaluations"], Json::array());
}

TEST_F(PhasesTest, EvaluationsAreRangesOfBothOtherModes) {
  Train(0, 0, 49, [](int64_t step) {
    if (step >= 10 && step <= 14) return kEval;
    if (step == 30) return kPredict;
    return step == 49 ? kEval : kTrain;
  });
  EXPECT_EQ(Overview()["evaluations"], Json::parse("[[10, 14], [30, 30], [49, 49]]"));
}

TEST_F(PhasesTest, ManyEvaluationsAreFewRangesThatHideNone) {
  // Each tenth step, and a stretch of training alone, which stays one.
  const auto mode = [](int64_t step) {
    return step % 10 == 3 && (step < 2000 || step >= 2600) ? kEval : kTrain;
  };
  Train(0, 0, 4999, mode);
  const Json ranges = Overview()["evaluations"];
  EXPECT_LE(ranges.size(), Phases::kMostEvaluations);
  const auto shown = [&](int64_t step) {
    for (const Json& range : ranges) {
      if (range[0].get<int64_t>() <= step && step <= range[1].get<int64_t>()) return true;
    }
    return false;
  };
  for (int64_t step = 0; step < 5000; ++step) {
    if (mode(step) == kEval) {
      EXPECT_TRUE(shown(step)) << step;
    }
  }
  EXPECT_FALSE(shown(2300));
}

}  // namespace
}  // namespace tdbg::query
