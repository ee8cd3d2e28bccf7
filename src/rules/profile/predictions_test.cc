// Detectors of what is predicted, each with a training that trips it and a twin that is well.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <string>

#include "rules/profile/testing.h"

namespace tdbg::rules::profile {
namespace {

double Noise(int step, double size) { return size * std::sin(1e3 * step); }

std::string Regress(double target_std, double std, double correlation, const std::function<double(int)>& mean,
                    const std::function<double(int)>& bias) {
  Looked training(AddPredictions, "mse_loss", "MSELoss_output");
  return training.RunLooked(600, [&](int step) {
    training.Regression(mean(step), target_std, std, correlation + Noise(step, 0.05), bias(step));
  });
}

TEST(Predictions, ARegressionThatLearnsNothing) {
  const auto none = [](int) { return 0.0; };
  EXPECT_EQ(Regress(2, 0.3, 0, none, none), "no_improvement at 200");
  EXPECT_EQ(Regress(2, 0.3, 0.14, none, none), "") << "noise that it has learnt a little of";
  EXPECT_EQ(Regress(2, 1.6, 0.8, none, none), "");
  EXPECT_EQ(Regress(2, 0.03, 0.07, none, none), "") << "it begins: little, but more than by chance";
  const std::string late = Regress(2, 0.3, 0, none, [](int step) { return 30 * std::exp(-0.02 * step); });
  EXPECT_EQ(late.substr(0, 19), "no_improvement at 2") << "not while it falls: " << late;
  EXPECT_EQ(Regress(2, 0.3, 0, [](int step) { return 0.1 * step; }, none), "") << "another network's targets";
  EXPECT_EQ(Regress(0, 0.3, 0, none, none), "") << "a judge's: all ones";
}

TEST(Predictions, ARateThatStillRisesIsGivenTime) {
  Looked training(AddPredictions, "mse_loss", "MSELoss_output");
  EXPECT_EQ(training.RunLooked(600,
                               [&](int step) {
                                 training.rate = std::min(1.0, step / 200.0);
                                 training.Regression(0, 2, 0.3, Noise(step, 0.05));
                               }),
            "no_improvement at 304");
}

TEST(Predictions, SeldomClassesThatAreNotTold) {
  // A loss far below ln 2 from the start: one label in a hundred.
  const auto run = [](double correlation) {
    Looked training(AddPredictions, "binary_cross_entropy_with_logits", "BCEWithLogitsLoss_output");
    return training.RunLooked(400, [&](int step) {
      training.Regression(0.01, 0.1, 0.01, correlation + Noise(step, 0.02));
      training.loss = 0.056;
    });
  };
  EXPECT_EQ(run(0), "no_improvement at 200");
  EXPECT_EQ(run(0.3), "");
}

TEST(Predictions, ALossWhoseTargetsAreKnownIsJudged) {
  Looked known(AddPredictions, "mse_loss", "MSELoss_output");
  Training unknown(AddPredictions, DType::kFloat32, "MSELoss_output");
  known.RunLooked(30, [&](int) { known.Regression(0, 1, 0.9, 0.9); });
  unknown.Run(30, [](int) {});
  EXPECT_EQ(known.Unjudged(), "");
  EXPECT_NE(unknown.Unjudged().find("how good guessing is"), std::string::npos);
}

// \param share  of what targets differ by, at a step
std::string Constant(
    const char* function, const char* loss, bool single, const std::function<double(int)>& share,
    const std::function<void(Looked&, int)>& more = [](Looked&, int) {}) {
  Looked training(AddPredictions, function, loss, single);
  training.RunLooked(300, [&](int step) {
    training.Regression(0.5, 0.4, 0.4 * share(step), 0.02);
    more(training, step);
  });
  const std::string& all = training.found_all();
  return all.substr(0, all.find(','));
}

TEST(Predictions, AllRowsAlike) {
  const auto alike = [](int) { return 0.001; };
  EXPECT_EQ(Constant("mse_loss", "MSELoss_output", false, alike), "predicts_a_constant at 112");
  EXPECT_EQ(Constant("binary_cross_entropy", "BCELoss_output", false, alike), "predicts_a_constant at 112");
  EXPECT_EQ(Constant(
                "mse_loss", "MSELoss_output", false, [](int) { return 0.05; },
                [](Looked& t, int) { t.series["predictions/correlation"] = 0.5; }),
            "")
      << "it has learnt a little";
  EXPECT_EQ(
      Constant("mse_loss", "MSELoss_output", false, [](int step) { return 1e-5 * std::exp(0.05 * step); }),
      "")
      << "a last layer that begins at zero";
  EXPECT_EQ(Constant("mse_loss", "MSELoss_output", false, alike,
                     [](Looked& t, int step) { t.series["predictions/loss"] = 9 * std::exp(-0.01 * step); }),
            "")
      << "it finds the mean first";
  EXPECT_EQ(Constant("mse_loss", "MSELoss_output", false, alike,
                     [](Looked& t, int) { t.series["targets/between"] = t.series["targets/guess"] = 0; }),
            "")
      << "one target for all";
  EXPECT_EQ(Constant("mse_loss", "MSELoss_output", false, alike,
                     [](Looked& t, int) { t.series["input/same_rows"] = 1; }),
            "")
      << "of one input";
  EXPECT_EQ(Constant("mse_loss", "MSELoss_output", false, alike,
                     [](Looked& t, int step) { t.rate = 0.001 * step; }),
            "")
      << "a warm-up";
}

TEST(Predictions, WhatBecomesAlikeWasLearntOnceOrCannotBe) {
  const auto run = [](double correlation) {
    Looked training(AddPredictions, "mse_loss", "MSELoss_output", false);
    return training.RunLooked(400, [&](int step) {
      const bool alike = step >= 80;
      training.Regression(0.5, 0.4, alike ? 0.001 : 0.3, alike ? 0 : correlation);
    });
  };
  EXPECT_EQ(run(0.8), "predicts_a_constant at 200") << "a collapse";
  EXPECT_EQ(run(0), "no_improvement at 200") << "of targets that are other rows'";
}

TEST(Predictions, APartOfALossIsAPictureOrAValue) {
  const auto alike = [](int) { return 0.001; };
  const auto part = [](Looked& t, int step) { t.differentiated = 2 + step; };
  EXPECT_EQ(Constant("mse_loss", "MSELoss_output", false, alike, part), "predicts_a_constant at 112");
  EXPECT_EQ(Constant("mse_loss", "MSELoss_output", true, alike, part), "") << "beside a policy's";
  const auto noise = [](int) { return 0.1; };
  const auto by_chance = [&](Looked& t, int step) {
    part(t, step);
    t.series["predictions/correlation"] = 0;
    t.series["predictions/loss"] = 1.01 * t.series["targets/guess"];
  };
  EXPECT_EQ(Constant("mse_loss", "MSELoss_output", false, noise, by_chance), "no_improvement at 200");
  EXPECT_EQ(Constant("mse_loss", "MSELoss_output", true, noise, by_chance), "");
  EXPECT_EQ(Constant("mse_loss", "MSELoss_output", true, alike), "predicts_a_constant at 112");
}

TEST(Predictions, WhatIsSeldomHasSmallProbabilities) {
  // One in a thousand: logits that differ by 0.5 are probabilities that differ by 0.0005.
  const auto run = [](double logits) {
    Looked training(AddPredictions, "binary_cross_entropy_with_logits", "BCEWithLogitsLoss_output");
    return training.RunLooked(200, [&](int) {
      training.Regression(0.001, 0.032, 0.001 * logits, 0.02);
      training.loss = 0.008;
    });
  };
  EXPECT_EQ(run(0.5), "");
  EXPECT_EQ(run(0.001), "predicts_a_constant at 112");
}

TEST(Predictions, LogitsThatAreAlike) {
  const auto run = [](double between, double labels) {
    Looked training(AddPredictions, "cross_entropy", "CrossEntropyLoss_output");
    return training.RunLooked(300, [&](int) {
      training.series["predictions/between"] = between;
      training.series["labels/min"] = 0;
      training.series["labels/max"] = labels;
    });
  };
  EXPECT_EQ(run(1e-4, 7), "predicts_a_constant at 112");
  EXPECT_EQ(run(0.002, 7), "predicts_a_constant at 200") << "a deep network may be slow";
  EXPECT_EQ(run(0.02, 7), "") << "labels that are other rows'";
  EXPECT_EQ(run(0.001, 0), "") << "one label";
}

// Q-learning: values begin at nothing, and so does the loss.
TEST(Predictions, ValuesThatGrowAreNoLossThatDiverges) {
  const auto run = [](double missed, bool told) {
    Looked training(AddLearning, "mse_loss", "MSELoss_output");
    return training
        .RunLooked(400,
                   [&](int step) {
                     const double value = 0.05 + 10 * (1 - std::exp(-0.02 * step));
                     training.Regression(value, 0.4 * value, 0.4 * value, 1,
                                         step < 5 ? 0.01 : missed * value);
                     if (!told)
                       std::erase_if(training.series, [](const auto& one) { return one.first[0] == 't'; });
                   })
        .substr(0, 9);
  };
  EXPECT_EQ(run(0.2, true), "");
  EXPECT_EQ(run(0.2, false), "diverging") << "of targets that are not known it has to be said";
  EXPECT_EQ(run(0.8, true), "diverging") << "worse than one value for all";
}

TEST(Predictions, AsHighAsValuesOfNothing) {
  const auto run = [](double deviation) {
    Looked training(AddLearning, "mse_loss", "MSELoss_output");
    return training.RunLooked(200, [&](int step) {
      const double off = step < 5 ? 0.1 : step < 60 ? 0.01 : 0.11;
      training.Regression(1, step < 60 ? 0.1 : deviation, step < 60 ? 0.1 : deviation, 1, off);
    });
  };
  EXPECT_EQ(run(0.1), "loss_back at 79");
  EXPECT_EQ(run(0.5), "") << "by now there is more to know";
}

// A loss that the script computes by itself, looked at as predictions are.
class Own : public Looked {
 public:
  explicit Own(void (*add)(Detectors*), const char* function = "mse_loss")
      : Looked(add, function, "backward_loss") {
    contexts["own_loss"] = std::string(R"({"function": ")") + function + "\"}";
  }
  std::string RunOwn(int steps, const std::function<void(int)>& at) {
    return RunLooked(steps, [&](int step) {
      series.erase("own_loss");
      if (step < 20 || step % 8 == 0) series["own_loss"] = 1;
      at(step);
    });
  }
};

TEST(OwnLosses, AreJudgedAsWhatTheyAreEqualTo) {
  const auto noise = [](Own& training) {
    return [&](int step) { training.Regression(0, 2, 0.3, Noise(step, 0.05)); };
  };
  Own squared(AddPredictions);
  EXPECT_EQ(squared.RunOwn(600, noise(squared)), "no_improvement at 200");
  Own other(AddPredictions, "of_a_later_version");
  EXPECT_EQ(other.RunOwn(600, noise(other)), "") << "a part of what is trained on, for all that is known";
  Own unsaid(AddPredictions);
  EXPECT_EQ(unsaid.RunOwn(600,
                          [&](int step) {
                            unsaid.series.erase("own_loss");
                            noise(unsaid)(step);
                          }),
            "");
  Own negative(AddPredictions);
  EXPECT_EQ(negative.RunOwn(600,
                            [&](int step) {
                              noise(negative)(step);
                              negative.loss *= -1;
                            }),
            "")
      << "what is to grow";
  Own far(AddTargets);
  EXPECT_EQ(far.RunOwn(400, [&](int) { far.Regression(3000, 200, 1, 0, -2990); }), "targets_unscaled at 104");
}

TEST(OwnLosses, FallWhereTheyDo) {
  const auto rises = [](double sign, int other_from, bool told = true) {
    Own training(AddLearning);
    return training.RunOwn(200, [&](int step) {
      if (told) training.Regression(0, 2, 0.3, 0, 5);
      if (step >= other_from && training.series.contains("own_loss")) training.series["own_loss"] = 0;
      training.loss = sign * (step < 60 ? std::max(1.0, 20.0 - step) : 30.0 + step);
    });
  };
  EXPECT_EQ(rises(1, 200), "diverging at 64");
  EXPECT_EQ(rises(1, 200, false), "") << "of values, targets may grow that were not looked at";
  EXPECT_EQ(rises(-1, 200), "") << "its negative is to grow";
  EXPECT_EQ(rises(1, 40), "") << "it is another one by then";
}

TEST(OwnLosses, JumpAsFarAsAScriptsOwnMay) {
  // First rewards are news to values whose loss is computed by hand, too.
  const auto jumps = [](const char* name, double to) {
    Training training(AddNumerics, DType::kFloat32, name);
    training.contexts["own_loss"] = R"({"function": "mse_loss"})";
    return training.Run(100, [&](int step) {
      training.series["own_loss"] = 1;
      training.weight += 0.01;
      training.loss = step == 80 ? to : 1 + Noise(step, 0.1);
    });
  };
  EXPECT_EQ(jumps("MSELoss_output", 40), "loss_jump at 80");
  EXPECT_EQ(jumps("backward_loss", 40), "");
  EXPECT_EQ(jumps("backward_loss", 400), "loss_jump at 80");
}

}  // namespace
}  // namespace tdbg::rules::profile
