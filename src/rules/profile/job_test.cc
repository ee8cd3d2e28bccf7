// The health of a job: detectors, and what a clock found.
#include "rules/profile/job.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "rules/engine.h"
#include "rules/profile/testing.h"
#include "rules/testing.h"

namespace tdbg::rules::profile {
namespace {

TEST(JobDetectors, StepsThatTakeMuchLonger) {
  const auto run = [](double later, int from, int until, double seconds) {
    Training training(AddJob);
    return training.Run(2000, [&](int step) {
      training.seconds = step >= from && step < until ? later * seconds : seconds * (1 + 0.5 * (step % 3));
    });
  };
  EXPECT_EQ(run(10, 500, 2000, 0.5).substr(0, 10), "slow_steps");
  EXPECT_EQ(run(2.5, 500, 2000, 0.5), "") << "a machine that got other work";
  EXPECT_EQ(run(10, 500, 560, 0.5), "") << "five minutes, and then as before";
  EXPECT_EQ(run(10, 500, 800, 0.01), "") << "half a minute of a job of small steps";
  EXPECT_EQ(run(10, 0, 2000, 0.5), "") << "as slow as it began";
}

TEST(JobDetectors, StepsThatTakeLongerAndLonger) {
  const auto run = [](int steps, const std::function<double(int)>& seconds, int longer_every = 0) {
    Training training(AddJob);
    return training.Run(steps, [&](int step) {
      training.seconds = seconds(step) * (1 + 0.3 * std::sin(1000.0 * step));
      // As the training process says it: where it changes.
      training.series.erase("batch_elements");
      if (longer_every > 0 && step % longer_every == 0) training.series["batch_elements"] = 32 * (100 + step);
    });
  };
  EXPECT_EQ(run(400, [](int step) { return 0.01 + 0.0001 * step; }).substr(0, 12), "slowing_down");
  EXPECT_EQ(run(20000, [](int step) { return 0.01 + 1e-6 * step; }).substr(0, 12), "slowing_down")
      << "at any scale";
  EXPECT_EQ(run(2000, [](int) { return 0.01; }), "");
  EXPECT_EQ(run(2000, [](int step) { return step < 300 ? 0.01 : 0.02; }), "") << "once";
  EXPECT_EQ(run(400, [](int step) { return 0.01 + 0.0001 * step; }, 1), "") << "texts that grow";
  EXPECT_EQ(run(400, [](int step) { return 0.01 + 0.0001 * step; }, 30), "");
  EXPECT_EQ(run(
                400, [](int step) { return 0.01 + 0.0001 * step; }, 500)
                .substr(0, 12),
            "slowing_down")
      << "texts of one length";
  const auto long_run = [](int step) { return step < 300000 ? 0.01 : 0.01 + 1e-7 * (step - 300000); };
  EXPECT_EQ(run(400000, long_run).substr(0, 12), "slowing_down")
      << "late, where blocks are as long as they get";
}

TEST(JobDetectors, ABatchThatHasGrownTakesItsTime) {
  const auto run = [](const char* series, double grown, double later) {
    Training training(AddJob);
    training.series["batch_size"] = 32;
    return training.Run(2000, [&](int step) {
      training.seconds = step < 500 ? 0.5 : 0.5 * later;
      if (step == 500) training.series[series] = grown * (training.series.contains(series) ? 32 : 1);
    });
  };
  EXPECT_EQ(run("batch_size", 8, 8), "");
  EXPECT_EQ(run("batch_elements", 8 * 32, 8), "");
  EXPECT_EQ(run("micro_steps", 8, 8), "");
  EXPECT_EQ(run("batch_size", 2, 8).substr(0, 10), "slow_steps");
  EXPECT_EQ(run("batch_size", 0.25, 8).substr(0, 10), "slow_steps");
}

TEST(JobDetectors, WhatIsBetweenTwoStepsIsNotTheirTime) {
  Training evaluates(AddJob), begins_again(AddJob);
  EXPECT_EQ(evaluates.Run(1500,
                          [&](int step) {
                            evaluates.seconds = 1;
                            if (step < 400) return;
                            evaluates.seconds = 20;
                            evaluates.Step(ModeKey::kEval);
                          }),
            "");
  EXPECT_EQ(begins_again.Run(1500,
                             [&](int step) {
                               begins_again.attempt_number = step < 400 ? 0 : step;
                               begins_again.seconds = step < 400 ? 1 : 60;
                             }),
            "");
}

WorkerFate Worker(const char* name, WorkerFate::State state, int64_t last_step, int64_t attempt = 0) {
  return {name, attempt, last_step, state, /*stopped=*/false};
}

TEST(JobDetectors, ARankThatDiedWhileTheOthersGoOn) {
  Training training(AddJob);
  training.fates = {Worker("worker_0", WorkerFate::kRuns, 99), Worker("worker_1", WorkerFate::kDied, 20)};
  EXPECT_EQ(training.Run(29, [](int) {}), "");
  EXPECT_EQ(training.Run(5, [](int) {}), "rank_died at 20");
}

TEST(JobDetectors, ARankThatDiedWithTheOthersWaitingForIt) {
  const auto run = [](std::vector<WorkerFate> fates, int64_t attempt = 0) {
    Training training(AddJob);
    training.Run(22, [](int) {});
    training.fates = std::move(fates);
    training.attempt_number = attempt;
    training.Run(1, [](int) {});
    return training.End();
  };
  using enum WorkerFate::State;
  EXPECT_EQ(run({Worker("worker_0", kEnded, 21), Worker("worker_1", kDied, 20)}), "rank_died at 20");
  EXPECT_EQ(run({Worker("worker_0", kDied, 21), Worker("worker_1", kDied, 20)}), "") << "the job died";
  EXPECT_EQ(run({Worker("worker_0", kEnded, 21), Worker("worker_1", kEnded, 21)}), "");
  EXPECT_EQ(run({Worker("worker_0", kEnded, 21), Worker("worker_1", kRuns, 20)}), "") << "it still writes";
  EXPECT_EQ(run({Worker("worker_0", kDied, 21)}), "") << "of one the launcher says it";
  EXPECT_EQ(run({Worker("worker_0", kEnded, 21), Worker("worker_1", kDied, 20),
                 Worker("worker_0", kRuns, 22, 1), Worker("worker_1", kRuns, 22, 1)},
                1),
            "rank_died at 20");
}

TEST(JobDetectors, ARankThatAStopKilledHasNotDied) {
  const auto run = [](bool stopped, int64_t attempt) {
    Training training(AddJob);
    training.Run(22, [](int) {});
    training.fates = {Worker("worker_0", WorkerFate::kEnded, 21), Worker("worker_1", WorkerFate::kDied, 20)};
    for (WorkerFate& fate : training.fates) fate.stopped = stopped;
    training.attempt_number = attempt;
    training.Run(1, [](int) {});
    return training.End();
  };
  for (const int64_t attempt : {0, 1}) {
    EXPECT_EQ(run(false, attempt), "rank_died at 20") << attempt;
    EXPECT_EQ(run(true, attempt), "") << "only one of them has a handler of SIGTERM";
  }
}

TEST(JobDetectors, ARankThatIsKilledBecauseAnotherOneRaisedHasNotDied) {
  const auto run = [](const char* error) {
    Training training(AddJob);
    training.Run(22, [](int) {});
    training.fates = {Worker("worker_0", WorkerFate::kDied, 20), Worker("worker_1", WorkerFate::kEnded, 21)};
    training.errors["worker_1"] = error;
    return training.End();
  };
  EXPECT_EQ(run("exception ValueError: a row of 3 columns"), "");
  EXPECT_EQ(run("exception RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer"),
            "rank_died at 20");
  EXPECT_EQ(run(""), "rank_died at 20");
}

TEST(JobDetectors, WhatABreakpointHeldIsNoPauseOfTheJobs) {
  const auto threshold = [](bool held) {
    Training training(AddJob);
    Digest digest;
    Silence silence;
    for (int step = 0; step < 20; ++step) {
      training.seconds = step == 10 ? 600 : 1;
      if (held && step == 10) training.contexts["hold"] = R"({"after_step": 9})";
      training.Step(ModeKey::kTrain);
      digest.Take(training);
      silence.See(digest);
    }
    return silence.Threshold().value_or(0);
  };
  EXPECT_EQ(threshold(true), 1800);
  EXPECT_EQ(threshold(false), 12000);
}

TEST(StalledTrainingRule, WhatABreakpointHeldIsNoStandstill) {
  const auto found = [](bool held) {
    Training training(AddJob);
    auto rule = BuiltinRules().Make("StalledTrainingRule", {{"threshold", "60"}});
    EXPECT_TRUE(rule.ok());
    std::vector<Finding> findings;
    for (int step = 0; rule.ok() && step < 20; ++step) {
      training.seconds = step == 10 ? 600 : 1;
      if (held && step == 10) training.contexts["hold"] = R"({"after_step": 9})";
      training.Step(ModeKey::kTrain);
      EXPECT_TRUE((*rule)->Invoke(training, &findings).ok());
    }
    return findings.size();
  };
  EXPECT_EQ(found(true), 0U);
  EXPECT_EQ(found(false), 1U);
}

// What the watcher's clock found is judged alike live and in a replay, which is told of it first.
TEST(JobDetectors, AStandstillIsMeasuredByTheJobsOwnPauses) {
  const auto judged = [](bool live, double pause, double silent) {
    MemorySource source;
    const TensorIndex weight = source.Tensor("Net_l1.weight", "weights");
    plan::RuleConfig config;
    config.rule = "profile";
    auto engine = Engine::Create({config});
    EXPECT_TRUE(engine.ok());
    const Stall stall{0, 9, silent};
    if (!live) (*engine)->DeclareStalled(stall);
    int64_t nanos = 1'000'000'000;
    for (int step = 0; step < 20; ++step) {
      source.Step({{weight, 1.0 + step}}).wall_nanos = nanos += static_cast<int64_t>(pause * 1e9);
      if (live) {
        EXPECT_TRUE((*engine)->Advance(source, 1).ok());
      }
      if (live && step == 9) {
        const auto threshold = (*engine)->StallThreshold();
        EXPECT_TRUE(threshold.has_value());
        if (threshold && silent >= *threshold) {
          (*engine)->DeclareStalled(stall);
          EXPECT_TRUE((*engine)->Advance(source, 1).ok());
          EXPECT_FALSE((*engine)->StallThreshold().has_value()) << "it is said once";
        }
      }
    }
    EXPECT_TRUE((*engine)->Finish(source, JobEnd::kCompleted, 2).ok());
    std::string text;
    for (const Finding& finding : (*engine)->statuses().front().findings)
      text += finding.detector + " at " + std::to_string(finding.global_step) + ": " + finding.text;
    return text;
  };
  for (const bool live : {true, false}) {
    EXPECT_EQ(judged(live, 1, 1900).substr(0, 13), "stalled at 9:") << live;
    EXPECT_EQ(judged(live, 1, 1700), "") << live;
    EXPECT_EQ(judged(live, 200, 3900), "") << "an epoch's pause is minutes";
    EXPECT_EQ(judged(live, 200, 4100).substr(0, 13), "stalled at 9:") << live;
  }
  EXPECT_EQ(judged(true, 1, 1900), judged(false, 1, 1900));
}

}  // namespace
}  // namespace tdbg::rules::profile
