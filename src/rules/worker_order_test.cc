// In what order a run's workers are found is chance: verdicts are the same.
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "base/testing.h"
#include "format/run_files.h"
#include "format/segment.h"
#include "rules/engine.h"
#include "store/reader/testing.h"

namespace tdbg::rules {
namespace {

constexpr int64_t kSteps = 30, kBad = 20;

/// A loss of each of two ranks, as a tensor and as a number by name; both ranks' are infinite at one step,
/// the second's at a step before, too.
class WorkerOrder : public testing::Test {
 protected:
  WorkerOrder() {
    std::filesystem::create_directories(path_ + "/0");
    format::RunInfo run;
    run.id = "0123456789abcdef0123456789abcdef";
    run.name = "mine";
    base::Spill(path_ + "/run.json", run.ToJson());
    format::AttemptInfo attempt;
    attempt.world_size = 2;
    base::Spill(path_ + "/0/attempt.json", attempt.ToJson());
  }

  static double Loss(int64_t rank, int64_t step) {
    const bool infinite = step == kBad + 2 || (rank == 1 && step == kBad);
    return infinite ? std::numeric_limits<double>::infinity() : static_cast<double>(100 * (rank + 1) + step);
  }

  void Write(int64_t rank) {
    store::WorkerFixture::Options options;
    options.tensors = 0;
    options.worker = "worker_" + std::to_string(rank);
    options.rank = rank;
    options.world_size = 2;
    store::WorkerFixture worker(path_ + "/0/" + options.worker, options);
    format::TensorDef loss = store::WorkerFixture::Definition(0);
    loss.id = 1;
    loss.name = "loss";
    loss.kind = "loss";
    loss.shape = {1};
    worker.writer->AppendTensorDef(loss);
    loss.id = 2;
    loss.name = "penalty";
    loss.kind = "scalar";
    worker.writer->AppendTensorDef(loss);
    for (int64_t step = 0; step < kSteps; ++step) {
      const double value = Loss(rank, step);
      Summary summary;
      summary.count = 1;
      if (std::isfinite(value)) {
        summary.min = summary.max = summary.mean = value;
        summary.l1 = summary.l2 = summary.abs_min = summary.abs_max = value;
        summary.variance = summary.m3 = summary.m4 = 0;
      } else {
        summary.pos_inf_count = 1;
      }
      worker.writer->AppendSummaries(step, {{format::ToRow(1, {}, summary)}}, {});
      format::ScalarRow penalty;
      penalty.tensor = 2;
      penalty.value = value;
      worker.writer->AppendScalars(step, {&penalty, 1});
      format::Commit commit;
      commit.global_step = commit.mode_step = step;
      commit.mode = 1;
      commit.wall_nanos = 1'700'000'000'000'000'000 + step;
      worker.writer->Commit(commit);
    }
    worker.End();
    worker.Close();
  }

  static std::unique_ptr<Engine> MakeEngine() {
    std::vector<plan::RuleConfig> configs(3);
    configs[0].rule = "Profile";
    configs[1].rule = "ExplodingTensor";
    configs[1].parameters = {{"collection_names", "losses"}};
    configs[2].rule = "LossNotDecreasing";
    configs[2].parameters = {{"num_steps", "5"}};
    for (plan::RuleConfig& config : configs) config.where = "--rule";
    auto engine = Engine::Create(configs);
    EXPECT_TRUE(engine.ok()) << engine.status().ToString();
    return *std::move(engine);
  }

  static std::vector<std::string> Texts(const Engine& engine) {
    std::vector<std::string> texts;
    for (const RuleStatus& status : engine.statuses()) {
      texts.push_back(status.rule + ": " + status.details);
      for (const Finding& finding : status.findings) {
        std::string text = finding.tensor + " of " + finding.worker + " at " +
                           std::to_string(finding.global_step) + ", " + finding.text + ":";
        for (const auto& [step, value] : finding.history)
          text += " " + std::to_string(step) + "=" + std::to_string(value);
        texts.push_back(text);
      }
    }
    return texts;
  }

  base::ScratchDirectory dir_;
  std::string path_ = dir_ / "run";
};

TEST_F(WorkerOrder, ALateFirstRankIsJudgedAsInAReplay) {
  Write(1);
  auto live = Trial::Open(path_);
  ASSERT_TRUE(live.ok()) << live.status().ToString();
  const auto watcher = MakeEngine();
  ASSERT_TRUE(watcher->Advance(**live, 1).ok());
  Write(0);
  ASSERT_TRUE((*live)->Refresh().ok());
  ASSERT_TRUE(watcher->Advance(**live, 1).ok());
  ASSERT_TRUE(watcher->Finish(**live, JobEnd::kCompleted, 1).ok());

  auto later = Trial::Open(path_);
  ASSERT_TRUE(later.ok()) << later.status().ToString();
  const auto replay = MakeEngine();
  ASSERT_TRUE(replay->Finish(**later, JobEnd::kCompleted, 1).ok());
  EXPECT_EQ(Texts(*watcher), Texts(*replay));

  ASSERT_EQ(watcher->statuses()[0].state, RuleState::kIssuesFound);
  for (const Finding& finding : watcher->statuses()[0].findings) {
    ASSERT_FALSE(finding.history.empty()) << finding.tensor << " of " << finding.worker;
    const int64_t rank = finding.worker == "worker_1" ? 1 : 0;
    for (const auto& [step, value] : finding.history) EXPECT_EQ(value, Loss(rank, step)) << finding.worker;
  }
}

}  // namespace
}  // namespace tdbg::rules
