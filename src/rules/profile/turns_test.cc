// Optimizers that take turns: each set of them has a history of its own, which goes on when it steps again.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rules/profile/testing.h"
#include "rules/rule.h"

namespace tdbg::rules::profile {
namespace {

void AddNothing(Detectors*) {}

// A training that the whole rule judges. Its optimizers are SGD, which has all weights, and others by label.
class InTurns : public Training {
 public:
  explicit InTurns(const char* loss_name = "MSELoss_output")
      : Training(AddNothing, DType::kFloat32, loss_name) {
    auto rule = BuiltinRules().Make("profile", {});
    EXPECT_TRUE(rule.ok());
    if (rule.ok()) rule_ = *std::move(rule);
    contexts["gradients_absent"] = R"({"names": []})";
  }

  // One training step, in which these step.
  void Train(const std::set<std::string>& optimizers) {
    std::erase_if(series, [](const auto& one) { return one.first.starts_with("optimizer_step/"); });
    sgd_steps = optimizers.contains("SGD");
    for (const std::string& optimizer : optimizers) {
      if (optimizer != "SGD") series["optimizer_step/" + optimizer] = 1;
    }
    Judge(ModeKey::kTrain);
  }
  void Evaluate() { Judge(ModeKey::kEval); }

  // "id at step" of all that it found.
  const std::string& found() const { return found_; }
  const Finding& last() const { return last_; }
  bool Found(const std::string& id) const { return found_.find(id + " at") != std::string::npos; }
  std::string Remarks() const { return rule_->Remarks(); }

 private:
  void Judge(ModeKey mode) {
    Training::Step(mode);
    std::vector<Finding> findings;
    EXPECT_TRUE(rule_->Invoke(*this, &findings).ok());
    for (const Finding& finding : findings) {
      last_ = finding;
      if (!found_.empty()) found_ += ", ";
      found_ += finding.detector + " at " + std::to_string(finding.global_step);
    }
  }

  std::unique_ptr<Rule> rule_;
  std::string found_;
  Finding last_;
};

// Who steps at a step: a critic five times as often as its generator, an actor at every second step of its
// critic, two that alternate.
std::set<std::string> Wgan(int step) {
  return step % 5 == 4 ? std::set<std::string>{"SGD", "Adam"} : std::set<std::string>{"SGD"};
}
std::set<std::string> Delayed(int step) {
  return step % 2 ? std::set<std::string>{"SGD", "Adam"} : std::set<std::string>{"SGD"};
}
std::set<std::string> Alternating(int step) { return {step % 2 ? "Adam" : "SGD"}; }

// What goes on in a weight that is trained.
void Learn(InTurns* training, int step) {
  training->weight += 0.01;
  training->loss = 1 + 0.1 * (step % 3);
}

TEST(ProfileFindings, HaveTheTensorsLatestValuesInOrder) {
  InTurns training;
  for (int step = 0; step <= 30; ++step) {
    training.weight = step == 30 ? 400 : 4 + 0.01 * step;
    training.incomplete = step >= 20 && step < 23;
    training.Train({"SGD"});
  }
  const Finding& finding = training.last();
  ASSERT_EQ(finding.tensor, "Net_l1.weight") << training.found();
  std::vector<std::pair<int64_t, double>> expected;
  for (const int step : {16, 17, 18, 19, 23, 24, 25, 26, 27, 28, 29})
    expected.emplace_back(step, 4 + 0.01 * step);
  expected.emplace_back(30, 400);
  EXPECT_EQ(finding.history, expected);
  EXPECT_EQ(finding.history_of, "l2");
}

TEST(OptimizersInTurn, UpdatesThatChangeNothingAreFoundAfterSoManyOfOneSet) {
  const auto run = [](std::set<std::string> (*who)(int), bool learns) {
    InTurns training;
    for (int step = 0; step < 90; ++step) {
      if (learns) Learn(&training, step);
      training.Train(who(step));
    }
    return training.found();
  };
  // 20 updates, each seen at the next step of its set. The first return of a set is its second visit.
  EXPECT_EQ(run(Wgan, false), "weights_unchanged at 25");
  EXPECT_EQ(run(Delayed, false), "weights_unchanged at 40");
  EXPECT_EQ(run(Alternating, false), "weights_unchanged at 40");
  EXPECT_EQ(run(Wgan, true), "");
  EXPECT_EQ(run(Delayed, true), "");
  EXPECT_EQ(run(Alternating, true), "");
}

// Each says so by itself, so that others' turns between its steps are no interruption.
TEST(OptimizersInTurn, GradientsOfOneAreNeverReset) {
  const auto run = [](std::set<std::string> (*who)(int), int every) {
    InTurns training;
    for (int step = 0; step < 120; ++step) {
      Learn(&training, step);
      const std::set<std::string> stepped = who(step);
      std::erase_if(training.series, [](const auto& one) { return one.first.starts_with("gradients_kept"); });
      if (stepped.contains("Adam") && step / 10 % every == 0) training.series["gradients_kept/Adam"] = 1;
      training.Train(stepped);
    }
    return training.found();
  };
  const auto both = [](int) { return std::set<std::string>{"SGD", "Adam"}; };
  EXPECT_EQ(run(both, 1), "gradients_kept at 9");
  EXPECT_EQ(run(Alternating, 1), "gradients_kept at 19");
  EXPECT_EQ(run(Wgan, 1), "gradients_kept at 49");
  EXPECT_EQ(run(Alternating, 2), "") << "five in a row";
}

TEST(OptimizersInTurn, ASetThatReturnsLateStartsAfresh) {
  const auto run = [](int others) {
    InTurns training;
    for (int step = 0; step < 15; ++step) training.Train({"SGD"});
    for (int step = 0; step < others; ++step) training.Train({"Adam"});
    for (int step = 0; step < 15; ++step) training.Train({"SGD"});
    return training.Found("weights_unchanged");
  };
  EXPECT_TRUE(run(1));
  EXPECT_TRUE(run(199)) << "200 steps from one to the next";
  EXPECT_FALSE(run(200));
  EXPECT_FALSE(run(1000));
}

TEST(OptimizersInTurn, AnotherSetForGoodIsANewPhase) {
  InTurns training;
  for (int step = 0; step < 30; ++step) {
    Learn(&training, step);
    training.Train({"SGD"});
  }
  training.weight *= 50;  // made anew, with an optimizer of its own
  training.loss *= 1000;
  for (int step = 0; step < 19; ++step) training.Train({"SGD", "Adam"});
  EXPECT_EQ(training.found(), "");
  for (int step = 0; step < 10; ++step) training.Train({"SGD", "Adam"});
  EXPECT_EQ(training.found(), "weights_unchanged at 50") << "counted from its own first step, 30";
}

TEST(OptimizersInTurn, AloneForGoodALossIsJudgedAgain) {
  InTurns training;
  for (int step = 0; step < 40; ++step) {
    Learn(&training, step);
    training.Train(Alternating(step));
  }
  for (int step = 40; step < 80; ++step) {
    Learn(&training, step);
    if (step >= 60) training.loss = step;
    training.Train({"SGD"});
  }
  EXPECT_TRUE(training.Found("diverging")) << training.found();
}

TEST(OptimizersInTurn, NoMoreThanEightSetsAreRemembered) {
  const auto run = [](int sets) {
    InTurns training;
    for (int step = 0; step < 40 * sets; ++step) {
      training.Train({"SGD", "Adam_" + std::to_string(step % sets)});
    }
    return training.Found("weights_unchanged") ? std::string("found") : training.Remarks();
  };
  EXPECT_EQ(run(8), "found");
  EXPECT_NE(run(9).find("in new sets every few steps"), std::string::npos);
}

TEST(OptimizersInTurn, WhereStepsWereLostOthersStartAfresh) {
  const auto run = [](int lost) {
    InTurns training;
    for (int step = 0; step < 90; ++step) {
      training.incomplete = step == lost;
      training.Train(Alternating(step));
    }
    return training.found();
  };
  EXPECT_EQ(run(-1), "weights_unchanged at 40");
  EXPECT_EQ(run(30), "weights_unchanged at 42") << "one of its own: it goes on, with one look less";
  EXPECT_EQ(run(31), "weights_unchanged at 72") << "one of Adam's: counted from 32";
}

TEST(OptimizersInTurn, AnEvaluationIsSeenByAllOfThem) {
  const auto run = [](bool left) {
    InTurns training;
    for (int step = 0; step < 80; ++step) {
      Learn(&training, step);
      if (step < 40 || !left) training.running_mean += 0.01;
      if (step == 41) training.Evaluate();
      training.Train(Alternating(step));
    }
    return training.found();
  };
  // SGD stepped last before the evaluation, and would find it one step later: it has seen a change at 40.
  EXPECT_EQ(run(true), "norm_frozen at 60") << "the tenth of Adam's steps from 41 on, which is the run's 42";
  EXPECT_EQ(run(false), "");
}

TEST(OptimizersInTurn, AParameterWithoutAGradientIsOneAtAllStepsOfItsOptimizer) {
  const auto run = [](bool others_reach_it) {
    InTurns training;
    for (int step = 0; step < 60; ++step) {
      Learn(&training, step);
      const bool both = step % 2;
      const char* const nothing = R"({"names": []})";
      const char* const one = R"({"names": ["Net_l1.weight"]})";
      const bool absent = !both || !others_reach_it;
      training.contexts["gradients_absent"] = absent ? one : nothing;
      training.contexts["gradients_absent/SGD"] = absent ? one : nothing;
      training.series["gradients_absent"] = absent;
      training.gradient = absent ? -1 : 0.1;
      training.Train(Delayed(step));
    }
    return training.found();
  };
  EXPECT_EQ(run(true), "") << "a second head, whose loss is that of every second step";
  EXPECT_EQ(run(false), "no_gradient at 10");
}

// Each is what a single optimizer's training must not do.
TEST(OptimizersInTurn, WhatOthersMoveIsNotJudged) {
  const auto run = [](const char* loss, const std::function<void(InTurns&, int)>& at) {
    InTurns training(loss);
    for (int step = 0; step < 600; ++step) {
      training.weight += 0.01;
      at(training, step);
      training.Train(Alternating(step));
    }
    return training.found();
  };
  const char* const kBinary = "BCEWithLogitsLoss_output";
  EXPECT_EQ(run(kBinary, [](InTurns& t, int) { t.loss = std::log(2.0); }), "") << "it guesses: well done";
  EXPECT_EQ(run(kBinary, [](InTurns& t, int step) { t.loss = 0.7 + step * 0.01; }), "") << "a judge wins";
  EXPECT_EQ(run(kBinary,
                [](InTurns& t, int step) {  // it loses, and is as good as at the beginning again
                  t.loss = step / 100 % 2 ? 0.2 : 0.7;
                }),
            "");
  EXPECT_EQ(run(kBinary,
                [](InTurns& t, int step) {  // the generator maximises what the judge minimises
                  t.loss = 0.7;
                  t.differentiated = step % 2 ? -0.7 : 0.7;
                }),
            "");
  EXPECT_EQ(run(kBinary,
                [](InTurns& t, int step) {  // and is told that what it made is not real
                  t.series["labels/min"] = t.series["labels/max"] = step % 2 ? 0 : 1;
                  t.series["labels/distinct"] = 1;
                  t.series["labels/count"] = t.series["batch_size"] = 512;
                }),
            "");
  EXPECT_EQ(run("MSELoss_output",
                [](InTurns& t, int step) {  // what is seen depends on the policy
                  t.loss = 1 + 0.1 * (step % 3);
                  t.series["input/same_rows"] = step < 300;
                  t.series["input/mean"] = 0;
                  t.series["input/std"] = step < 300 ? 0.1 : 10;
                }),
            "");
  EXPECT_EQ(run("MSELoss_output",
                [](InTurns& t, int step) {  // the first reward
                  t.loss = step < 300 ? 0.01 + 1e-4 * (step % 7) : 0.3;
                  t.gradient = step < 300 ? 1e-3 : 0.5;
                }),
            "");
}

TEST(OptimizersInTurn, ABatchOfOneTurnIsNoLoaderThatIsStuck) {
  const auto run = [](int steps_of_a_turn, const std::function<int(int)>& batch) {
    InTurns training;
    training.contexts["batch"] = R"({"shape": [64, 16]})";
    for (int step = 0; step < 400; ++step) {
      Learn(&training, step);
      training.series["batch_fingerprint"] = batch(step);
      training.Train({step % steps_of_a_turn == 0 ? "Adam" : "SGD"});
    }
    return training.found();
  };
  EXPECT_EQ(run(9, [](int step) { return step / 9; }), "") << "eight steps on one batch, then the outer one";
  EXPECT_EQ(run(2, [](int step) { return step / 16; }), "") << "eight turns on what was seen last";
  EXPECT_EQ(run(2, [](int step) { return std::min(step, 100); }), "same_batch at 108");
  EXPECT_EQ(run(2, [](int step) { return step < 200 ? step / 4 : 50; }), "same_batch at 208");
}

TEST(OptimizersInTurn, AGradientOfZerosIsCountedInStepsOfItsSet) {
  InTurns training;
  training.gradient = 0;
  for (int step = 0; step < 30; ++step) {
    Learn(&training, step);
    training.Train(Wgan(step));
  }
  EXPECT_EQ(training.found().substr(0, 19), "zero_gradient at 11")
      << "four of five steps are the critic's alone";
}

// A model that is trained for thirty steps, then another one.
TEST(OptimizersInTurn, WhatChangedInATurnOfOthersDidNotJumpAndDoesNotStandStill) {
  const auto run = [](const std::function<void(InTurns&, int, bool)>& at) {
    InTurns training;
    for (int step = 0; step < 1200; ++step) {
      const bool others = step / 30 % 2;
      Learn(&training, step);
      at(training, step, others);
      training.Train({others ? "Adam" : "SGD"});
      if (step % 30 == 0) training.Evaluate();
    }
    return training.found();
  };
  EXPECT_EQ(run([](InTurns& t, int, bool others) { t.running_mean += others ? 0.01 : 0; }), "");
  EXPECT_EQ(run([](InTurns& t, int step, bool others) {
              if (others) t.weight *= step < 120 ? 1.2 : 1 / 1.2;  // by 237 times in a turn, and back
              if (step >= 180) t.weight = 4 + 0.01 * step;
            }),
            "");
  EXPECT_EQ(run([](InTurns& t, int step, bool) { t.rate = step < 30 ? 1e-4 : 1e-2; }), "");
}

// The critic of the first Wasserstein GAN makes 100 steps for one of the generator now and then.
TEST(OptimizersInTurn, AWeightThatOthersMovedMeanwhileHasNotJumped) {
  const auto run = [](int far, bool replaced) {
    InTurns training;
    int of_critic = 0;
    for (int turn = 0; turn < 60; ++turn) {
      for (int step = turn == 45 ? far : 5; step > 0; --step) {
        training.weight *= 1.004;
        training.loss = 1 + 0.1 * (of_critic++ % 3);
        if (replaced && turn == 50 && step == 1) training.weight *= 0.5;
        training.Train(step == 1 ? std::set<std::string>{"SGD", "Adam"} : std::set<std::string>{"SGD"});
      }
    }
    return training.found().substr(0, 16);
  };
  EXPECT_EQ(run(5, false), "");
  EXPECT_EQ(run(100, false), "");
  EXPECT_EQ(run(5, true), "weights_replaced");
}

TEST(OptimizersInTurn, WhatIsNotJudgedIsSaidOnce) {
  InTurns training;
  for (int step = 0; step < 60; ++step) {
    Learn(&training, step);
    training.Train(Alternating(step));
  }
  const std::string remarks = training.Remarks();
  EXPECT_NE(remarks.find("whether losses fall, and what labels are (optimizers take turns"),
            std::string::npos)
      << remarks;
  const size_t fade = remarks.find("fewer than three matrices");
  ASSERT_NE(fade, std::string::npos) << remarks;
  EXPECT_EQ(remarks.find("fewer than three matrices", fade + 1), std::string::npos) << remarks;
}

}  // namespace
}  // namespace tdbg::rules::profile
