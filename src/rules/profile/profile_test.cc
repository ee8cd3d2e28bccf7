// Each detector with a training that trips it and a twin that is well; what adaptors record is made up here.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "rules/incidents.h"
#include "rules/profile/catalogue.h"
#include "rules/profile/detector.h"
#include "rules/profile/reexecution.h"
#include "rules/profile/testing.h"
#include "rules/rule.h"
#include "trial/testing.h"

namespace tdbg::rules::profile {
namespace {

TEST(ProfileDetectors, GradientsThatAreNeverReset) {
  Training kept(AddWiring), reset(AddWiring);
  EXPECT_EQ(kept.Run(30, [&](int) { kept.series["gradients_kept"] = 1; }), "gradients_kept at 9");
  EXPECT_EQ(reset.Run(30, [&](int step) { reset.series["gradients_kept"] = step % 4 != 0; }), "");
}

TEST(ProfileDetectors, ALossOfTwoShapes) {
  Training training(AddWiring);
  training.contexts["loss_broadcast"] = R"({"input": [32, 1], "target": [32]})";
  EXPECT_EQ(training.Run(5, [](int) {}), "loss_broadcast at 1");
}

TEST(ProfileDetectors, AStepThatGaveSomethingElseTheSecondTime) {
  Training training(AddReexecution);
  EXPECT_EQ(training.Run(5,
                         [&](int step) {
                           if (step == 3)
                             training.contexts["not_repeatable"] =
                                 R"({"sentence": "it differs", "tensor": "gradient/Net_l1.weight"})";
                         }),
            "not_repeatable at 3");
  Training damaged(AddReexecution);
  damaged.contexts["not_repeatable"] = R"({"sentence": 5})";
  EXPECT_EQ(damaged.Run(5, [](int) {}), "");
}

// The incident that these findings are.
Incident IncidentOf(const Training& training) {
  RuleStatus status;
  status.name = status.rule = "Profile";
  status.state = RuleState::kIssuesFound;
  status.findings = training.findings();
  const std::vector<Incident> incidents = IncidentsOf({status});
  EXPECT_EQ(incidents.size(), 1u);
  return incidents.empty() ? Incident() : incidents.front();
}

TEST(ProfileDetectors, ANaNOfAnEvaluationHasAnAdviceOfItsOwn) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto run = [&](ModeKey mode, bool of_weights) {
    Training training(AddNonfinite);
    for (int step = 0; step < 20; ++step) {
      training.Step(ModeKey::kTrain);
      if (step != 10) continue;
      training.loss = nan;
      if (of_weights) training.weight_is_nan = true;
      training.Step(mode);
      training.loss = 1;
      training.weight_is_nan = false;
    }
    return IncidentOf(training);
  };
  const Incident evaluated = run(ModeKey::kEval, false), trained = run(ModeKey::kTrain, false);
  EXPECT_EQ(evaluated.first_step, 11);
  EXPECT_NE(evaluated.advice.find("if the training itself stays finite"), std::string::npos)
      << evaluated.advice;
  EXPECT_EQ(trained.advice, Find("nonfinite")->advice);
  EXPECT_EQ(run(ModeKey::kEval, true).advice, trained.advice) << "an update made it";
}

TEST(ProfileDetectors, ATrainingThatIsNaNAfterItsEvaluationsIsTold) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Training training(AddNonfinite);
  for (int step = 0; step < 60; ++step) {
    training.loss = step < 40 ? 1 : nan;
    training.Step(ModeKey::kTrain);
    if (step % 10 != 9) continue;
    training.loss = nan;
    training.Step(ModeKey::kEval);
  }
  EXPECT_EQ(training.found_all(), "nonfinite at 10, nonfinite at 44");
  RuleStatus status;
  status.findings = training.findings();
  const std::vector<Incident> incidents = IncidentsOf({status});
  ASSERT_EQ(incidents.size(), 2u) << "of the evaluation nothing in training follows";
  EXPECT_EQ(incidents[1].advice, Find("nonfinite")->advice);
  // An update before the evaluation made it: one NaN.
  Training updated(AddNonfinite);
  for (int step = 0; step < 20; ++step) {
    updated.loss = step < 10 ? 1 : nan;
    updated.Step(step == 10 ? ModeKey::kEval : ModeKey::kTrain);
  }
  EXPECT_EQ(updated.found_all(), "nonfinite at 10");
}

TEST(ProfileDetectors, EachOptimizerLacksGradientsOfItsOwn) {
  Training training(AddConnections);
  training.contexts["gradients_absent/SGD"] = R"({"names": ["Net_l1.weight"]})";
  EXPECT_EQ(training.Run(20,
                         [&](int) {
                           training.series["gradients_absent"] = 0;  // of the other one, which came first
                           training.series["optimizer_step/Adam"] = 1;
                         }),
            "no_gradient at 9");
}

TEST(ProfileDetectors, ANormThatAnEvaluationLeftFrozen) {
  const auto run = [](bool evaluated, bool left, bool scale_is_frozen) {
    Training training(AddModes);
    if (scale_is_frozen) training.contexts["parameters"] = R"({"frozen": ["Net_norm.weight"]})";
    return training.Run(60, [&](int step) {
      if (step == 30 && evaluated) training.Step(ModeKey::kEval);
      if (step < 30 || !left) training.running_mean += 0.01;
    });
  };
  EXPECT_EQ(run(true, true, false), "norm_frozen at 40");
  EXPECT_EQ(run(true, false, false), "");
  EXPECT_EQ(run(false, true, false), "") << "somebody froze it, or it has converged";
  EXPECT_EQ(run(true, true, true), "") << "on purpose";
}

TEST(ProfileDetectors, ANormThatNeverBegan) {
  Training untouched(AddModes), pretrained(AddModes);
  EXPECT_EQ(untouched.Run(40, [&](int) { untouched.running_mean = 0; }), "norm_frozen at 20");
  EXPECT_EQ(pretrained.Run(40, [](int) {}), "");
}

TEST(ProfileDetectors, ATrainingThatAnEvaluationLeftInItsMode) {
  const auto run = [](int since, int until, bool evaluated) {
    Training training(AddModes);
    return training.Run(60, [&](int step) {
      if (step == since && evaluated) training.Step(ModeKey::kEval);
      training.series.erase("trained_in_evaluation");
      if (step >= since && step < until) training.series["trained_in_evaluation"] = 2;
      training.running_mean += 0.01;
    });
  };
  EXPECT_EQ(run(30, 60, true), "left_evaluating at 40");
  EXPECT_EQ(run(30, 39, true), "") << "nine steps";
  EXPECT_EQ(run(30, 60, false), "") << "no evaluation did that";
  EXPECT_EQ(run(0, 60, true), "") << "a fine-tuning that never was in training mode";
}

TEST(ProfileDetectors, AnEvaluationInTrainingMode) {
  const auto run = [](int every, double losses) {
    Training training(AddEvaluation);
    return training.Run(60, [&](int step) {
      training.series.erase("evaluated_in_training");
      if (step % every == 0 && step > 0) training.series["evaluated_in_training"] = losses;
    });
  };
  EXPECT_EQ(run(10, 4), "evaluated_training at 11");
  EXPECT_EQ(run(10, 1), "evaluated_training at 31") << "of one batch each";
  EXPECT_EQ(run(2, 1), "") << "a part of the training";
  EXPECT_EQ(run(1, 8), "") << "batches that are chosen by their loss";
}

TEST(ProfileDetectors, GradientsThatUnderflow) {
  const auto run = [](DType dtype, double l2, uint64_t zeros, double bias) {
    Training training(AddNumerics, dtype);
    training.bias_gradient = bias;
    return training.Run(30, [&](int) {
      training.gradient = l2;
      training.gradient_zeros = zeros;
    });
  };
  EXPECT_EQ(run(DType::kFloat16, 3e-6, 200, -1), "gradient_underflow at 9");
  EXPECT_EQ(run(DType::kFloat16, 0, 256, -1), "gradient_underflow at 9") << "all of it is gone";
  EXPECT_EQ(run(DType::kFloat16, 3e-6, 100, -1), "") << "most of it is there";
  EXPECT_EQ(run(DType::kFloat16, 0.1, 200, -1), "") << "units that are dead";
  EXPECT_EQ(run(DType::kFloat32, 3e-6, 200, -1), "");
  EXPECT_EQ(run(DType::kFloat16, 0, 256, 0.1), "") << "what comes from the loss is large: the layer is dead";
}

TEST(ProfileDetectors, ARateThatDecaysAway) {
  Training decays(AddWiring), cosine(AddWiring);
  EXPECT_EQ(decays.Run(120, [&](int) { decays.rate *= 0.8; }).substr(0, 9), "rate_gone");
  EXPECT_EQ(cosine.Run(3000, [&](int step) { cosine.rate = 0.5 + 0.5 * std::cos(M_PI * step / 3000); }), "");
}

TEST(ProfileDetectors, ARateThatJumps) {
  Training jumps(AddWiring), warms_up(AddWiring);
  EXPECT_EQ(jumps.Run(60, [&](int step) { jumps.rate = step == 40 ? 10 : 0.01; }), "rate_jump at 40");
  EXPECT_EQ(warms_up.Run(200, [&](int step) { warms_up.rate = step / 200.0; }), "");
}

TEST(ProfileDetectors, ARateThatIsCut) {
  Training cut(AddWiring);
  EXPECT_EQ(cut.Run(60, [&](int step) { cut.rate = step < 40 ? 0.01 : 1e-6; }), "rate_cut at 44");
}

TEST(ProfileDetectors, AnInfinityThatNoLossFunctionReturned) {
  Training training(AddNonfinite);
  EXPECT_EQ(training.Run(20, [&](int step) { training.differentiated = step == 5 ? INFINITY : 1; }),
            "nonfinite at 5");
}

// Each step is a phase of its own: a critic alone, then both.
TEST(ProfileDetectors, ANanThatStaysIsReportedOnceWhereOptimizersTakeTurns) {
  Training training(AddNonfinite);
  auto rule = BuiltinRules().Make("profile", {});
  ASSERT_TRUE(rule.ok());
  int found = 0;
  for (int step = 0; step < 60; ++step) {
    training.series.erase("optimizer_step/Adam");
    if (step % 2) training.series["optimizer_step/Adam"] = step;
    training.differentiated = step < 20 ? 1 : INFINITY;
    training.Step(ModeKey::kTrain);
    std::vector<Finding> findings;
    EXPECT_TRUE((*rule)->Invoke(training, &findings).ok());
    for (const Finding& finding : findings) found += finding.detector == "nonfinite";
  }
  EXPECT_EQ(found, 1);
  EXPECT_NE((*rule)->Remarks().find("optimizers take turns"), std::string::npos);
}

TEST(ProfileDetectors, ANanThatReturnsAgainAndAgainIsToldSoOftenAndNoMore) {
  Training training(AddNonfinite);
  auto rule = BuiltinRules().Make("profile", {});
  ASSERT_TRUE(rule.ok());
  int found = 0;
  for (int step = 0; step < 30 * 60; ++step) {
    training.differentiated = step % 60 ? 1 : INFINITY;
    training.Step(ModeKey::kTrain);
    std::vector<Finding> findings;
    EXPECT_TRUE((*rule)->Invoke(training, &findings).ok());
    for (const Finding& finding : findings) found += finding.detector == "nonfinite";
  }
  EXPECT_EQ(found, 20);
}

TEST(ProfileDetectors, ALossThatDivergesAndOneThatIsNoisy) {
  Training diverges(AddLearning), noisy(AddLearning), a_part(AddLearning);
  EXPECT_EQ(diverges.Run(60, [&](int step) { diverges.loss = step < 30 ? 1 : 1 + step; }).substr(0, 9),
            "diverging");
  EXPECT_EQ(noisy.Run(60, [&](int step) { noisy.loss = step < 30 ? 1 : step % 5 ? 9 : 0.1; }), "");
  // Of a policy and the values that it is judged by: what is differentiated falls.
  EXPECT_EQ(a_part.Run(60,
                       [&](int step) {
                         a_part.loss = step < 30 ? 1 : 1 + step;
                         a_part.differentiated = 1 - step;
                       }),
            "");
}

TEST(ProfileDetectors, WeightsThatWereReplaced) {
  const auto run = [](const std::function<void(Training&)>& at_forty) {
    Training training(AddNumerics);
    return training.Run(60, [&](int step) {
      training.weight += 0.01;
      if (step == 40) at_forty(training);
    });
  };
  EXPECT_EQ(run([](Training& t) { t.weight = 1; }), "weights_replaced at 40");
  EXPECT_EQ(run([](Training&) {}), "");
  EXPECT_EQ(run([](Training& t) {
              t.attempt_number = 1;  // a checkpoint that was loaded on purpose
              t.weight = 1;
            }),
            "");
}

// Of steps that a compactor has thinned, or that a full disk did not take, nobody knows how weights changed.
TEST(ProfileDetectors, WeightsThatWentFarWhereNothingIsKnownWereNotReplaced) {
  const auto run = [](double factor, bool gap) {
    Training training(AddNumerics);
    return training.Run(80, [&](int step) {
      training.incomplete = gap && step >= 40 && step < 50;
      training.weight = step == 50 ? training.weight * factor : training.weight + 0.01;
    });
  };
  EXPECT_EQ(run(1.5, false), "weights_replaced at 50");
  EXPECT_EQ(run(1.5, true), "");
  EXPECT_EQ(run(20, false), "weight_jump at 50");
  EXPECT_EQ(run(20, true), "");
}

TEST(ProfileDetectors, UpdatesThatChangeNoWeight) {
  Training lost(AddUpdates), well(AddUpdates), cooled(AddUpdates), learnt(AddUpdates);
  EXPECT_EQ(lost.Run(40, [](int) {}).substr(0, 17), "weights_unchanged");
  EXPECT_EQ(well.Run(40, [&](int) { well.weight += 1e-9; }), "");
  EXPECT_EQ(cooled.Run(60,
                       [&](int step) {
                         if (step < 20) cooled.weight += 1e-3;
                         if (step == 20) cooled.rate *= 1e-3;
                       }),
            "");
  EXPECT_EQ(learnt.Run(60,
                       [&](int step) {
                         if (step < 20) learnt.weight += 1e-3;
                         if (step == 20) learnt.gradient *= 1e-4;
                       }),
            "");
}

TEST(ProfileDetectors, SmallUpdatesThatMomentumAddsUp) {
  const auto run = [](const std::string& options) {
    Training training(AddUpdates);
    training.rate = 2e-5;
    training.contexts["optimizer/SGD"] =
        R"({"class": "SGD", "groups": [{"parameters": ["Net_l1.weight"], "options": )" + options + "}]}";
    return training.Run(40, [&](int) { training.weight += 1e-9; });
  };
  EXPECT_EQ(run("{}"), "update_too_small at 19");
  EXPECT_EQ(run(R"({"momentum": 0.9})"), "");
}

TEST(ProfileDetectors, UpdatesThatSixteenBitsRoundAway) {
  const auto run = [](DType dtype, double rate) {
    Training training(AddUpdates, dtype);
    training.rate = rate;
    return training.Run(40, [&](int step) { training.weight += step % 2 ? 1e-3 : -1e-3; });
  };
  EXPECT_EQ(run(DType::kBFloat16, 0.005), "update_lost at 19");
  EXPECT_EQ(run(DType::kBFloat16, 0.05), "");
  EXPECT_EQ(run(DType::kFloat32, 0.005), "");
}

}  // namespace
}  // namespace tdbg::rules::profile
