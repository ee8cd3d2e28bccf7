// Whether it learns: losses, validations, and what looks as if nothing were learnt.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "rules/profile/testing.h"

namespace tdbg::rules::profile {
namespace {

TEST(Learning, ALossThatIsBackWhereItBegan) {
  const auto run = [](const char* loss, double back, int until, double rows = 32) {
    Training training(AddLearning, DType::kFloat32, loss);
    training.series["batch_size"] = rows;
    return training.Run(80, [&](int step) {
      training.weight += 0.01;
      training.loss = step < 40 || step >= until ? std::max(0.5, 2 - 0.1 * step) : back;
    });
  };
  EXPECT_EQ(run("CrossEntropyLoss_output", 2, 80), "loss_back at 44");
  EXPECT_EQ(run("CrossEntropyLoss_output", 1, 80), "");
  EXPECT_EQ(run("MSELoss_output", 2, 80), "loss_back at 59");
  EXPECT_EQ(run("MSELoss_output", 2, 55), "") << "a target network was brought up to date";
  EXPECT_EQ(run("CrossEntropyLoss_output", 1.46, 50, 2), "") << "some batches of two";
  EXPECT_EQ(run("CrossEntropyLoss_output", 1.46, 80, 2), "loss_back at 59");
}

// \param zeros  elements of the first matrix' gradient, of 256, that are 0 at a step
std::string AsGoodAsGuessing(int steps, uint64_t zeros) {
  Training training(AddPredictions);
  training.gradient_zeros = zeros;
  training.loss = std::log(16.0);
  return training.Run(steps, [&](int step) { training.weight = 4 + 0.01 * step; });
}

TEST(Learning, RareFeaturesTakeTheirTime) {
  EXPECT_EQ(AsGoodAsGuessing(400, 0), "no_improvement at 199");
  EXPECT_EQ(AsGoodAsGuessing(400, 130), "no_improvement at 199") << "units that are off are no rare features";
  EXPECT_EQ(AsGoodAsGuessing(400, 230), "") << "one column in ten is there at a step";
  EXPECT_EQ(AsGoodAsGuessing(1200, 230), "no_improvement at 999");
}

TEST(Learning, OneSampleThatIsWrongInASmallBatch) {
  // A model that is sure, and one batch of 16 in which it gets one wrong; and a batch that is broken.
  const auto run = [](double jump) {
    Training training(AddNumerics);
    return training.Run(200, [&](int step) {
      training.weight += 0.01;
      training.loss = step == 150 ? jump : 2.1 * std::exp(-0.08 * step) + 0.001;
    });
  };
  EXPECT_EQ(run(1.9), "");
  EXPECT_EQ(run(2.6), "");
  EXPECT_EQ(run(30), "loss_jump at 150");
}

TEST(Learning, TheFirstRewardIsNews) {
  // Values of a game begin as nothing, and so does their loss; a regression that knows its targets jumps.
  const auto run = [](double guess) {
    Training training(AddNumerics, DType::kFloat32, "MSELoss_output");
    return training.Run(60, [&](int step) {
      training.weight += 0.01;
      training.loss = step == 40 ? 0.05 : 0.001;
      training.series["predictions/between"] = 0.01;
      training.series["predictions/loss"] = training.loss;
      training.series["targets/guess"] = guess;
    });
  };
  EXPECT_EQ(run(1e-4), "");
  EXPECT_EQ(run(0.5), "loss_jump at 40");
}

// \param std  of logits within a row; \param worse  than a guess
std::string Begins(double std, double worse, const char* function = "cross_entropy") {
  Looked training(AddStart, function, "CrossEntropyLoss_output");
  return training.RunLooked(30, [&](int step) {
    training.series["predictions/between"] = 1;
    training.series["predictions/std"] = step < 10 ? std : 9;
    training.series["predictions/loss"] = 0.01 * (step < 10 ? worse : 2);
    training.series["targets/guess"] = 0.01;
  });
}

TEST(Learning, SureBeforeAnythingWasLearnt) {
  EXPECT_EQ(Begins(166, 1.9), "logits_too_large at 2") << "a temperature of a thousandth";
  EXPECT_EQ(Begins(7, 1.8), "logits_too_large at 2");
  EXPECT_EQ(Begins(2.4, 1.07), "") << "what becomes sure later has learnt, or has other faults";
  EXPECT_EQ(Begins(9, 0.2), "") << "a model that was trained before";
  EXPECT_EQ(Begins(9, 1.9, "mse_loss"), "");
}

TEST(Learning, AFirstLossIsComparedWithItsOwnClasses) {
  const auto run = [](const char* shape) {
    Training training(AddStart);
    training.series["batch_size"] = 64;
    training.loss = 9;
    if (shape[0] != 0) training.contexts["loss_input"] = std::string(R"({"shape": )") + shape + "}";
    return training.Run(3, [](int) {});
  };
  EXPECT_EQ(run(""), "first_loss at 0");
  EXPECT_EQ(run("[16]"), "first_loss at 0");
  EXPECT_EQ(run("[5000]"), "") << "another head's loss";
  EXPECT_EQ(run("[]"), "first_loss at 0");
}

// Validations after every 20 steps of a training whose loss is `training` then.
std::string Validated(const std::vector<double>& validations, const std::vector<double>& training_losses) {
  Training training(AddEvaluation);
  for (size_t i = 0; i < validations.size(); ++i) {
    training.loss = training_losses[std::min(i, training_losses.size() - 1)];
    training.Run(20, [](int) {});
    training.loss = validations[i];
    training.Step(ModeKey::kEval);
  }
  training.loss = training_losses.back();
  return training.Run(1, [](int) {}).substr(0, 16);
}

// Two evaluations of two batches each among 120 steps of a training.
std::string Fed(double mean, double deviation, double loss, int evaluations = 5) {
  Training training(AddEvaluation);
  std::string found;
  for (int step = 0; step < 120; ++step) {
    training.series = {{"input/mean", 0.02 * (step % 5)}, {"input/std", 1 + 0.01 * (step % 3)}};
    training.loss = 0.1;
    training.Step(ModeKey::kTrain);
    if (step % 20 != 19 || step / 20 >= evaluations) continue;
    training.series = {{"evaluated_input/mean", mean}, {"evaluated_input/std", deviation}};
    training.loss = loss;
    training.Step(ModeKey::kEval);
    training.Step(ModeKey::kEval);
  }
  return training.found_all();
}

TEST(Evaluations, AreFedWhatTheTrainingIs) {
  EXPECT_EQ(Fed(0.05, 1, 0.12), "");
  EXPECT_EQ(Fed(50, 30, 9), "input_shifted at 44") << "not standardised, said after the second";
  EXPECT_EQ(Fed(50, 30, 9, 1), "") << "one may be a look at another set";
  EXPECT_EQ(Fed(0.5, 0.004, 0.9), "input_shifted at 44") << "divided by 255 twice";
  EXPECT_EQ(Fed(3, 1, 0.9), "input_shifted at 44") << "elsewhere, and worse for it";
  EXPECT_EQ(Fed(3, 1, 0.15), "") << "elsewhere, and no worse";
  EXPECT_EQ(Fed(0.5, 0.5, 0.9), "") << "a set that is worse, of the same numbers";
}

TEST(Evaluations, AValidationLossThatCreepsUp) {
  const std::vector<double> falls = {2.04, 1.78, 1.41, 1.1, 0.8, 0.58, 0.42, 0.3, 0.23, 0.17, 0.14, 0.11};
  const std::vector<double> stays = {2.04, 1.78, 1.72, 1.71, 1.7, 1.7, 1.7, 1.7, 1.7, 1.7, 1.7, 1.7};
  const std::vector<double> creeps = {2.02, 1.88, 1.78, 1.72, 1.71, 1.73, 1.78, 1.81, 1.86, 1.93, 1.97, 2.0};
  const std::vector<double> level = {2.02, 1.88, 1.78, 1.72, 1.71, 1.73, 1.74, 1.72, 1.73, 1.74, 1.73, 1.74};
  const std::vector<double> jumps = {2.02, 1.88, 1.78, 1.72, 1.71, 1.95, 1.73, 1.9, 1.74, 1.89, 1.72, 1.83};
  EXPECT_EQ(Validated(creeps, falls), "validation_rises");
  EXPECT_EQ(Validated(creeps, stays), "") << "the training loss does not fall: it is no overfitting";
  EXPECT_EQ(Validated(level, falls), "") << "a gap that widens is no fault";
  EXPECT_EQ(Validated(jumps, falls), "");
  EXPECT_EQ(Validated({creeps.begin(), creeps.begin() + 9}, falls), "") << "four so far";
}

TEST(Connections, ExpertsThatNoInputHasChosenYet) {
  // \param others  what else is without a gradient at a step of an even number
  const auto run = [](const char* always, const char* others, int steps) {
    Training training(AddConnections);
    return training.Run(steps, [&](int step) {
      const std::string more = step % 2 == 0 ? std::string(", \"") + others + "\"" : "";
      training.contexts["gradients_absent"] = std::string(R"({"names": [")") + always + "\"" + more + "]}";
      training.series["gradients_absent"] = 1;
    });
  };
  EXPECT_EQ(run("Net_experts.1.weight", "Net_experts.4.weight", 100), "");
  EXPECT_EQ(run("Net_experts.1.weight", "Net_experts.4.weight", 1000), "no_gradient at 999");
  EXPECT_EQ(run("Net_experts.1.weight", "Net_head.weight", 100), "no_gradient at 9");
  EXPECT_EQ(run("Net_layers.1.weight", "Net_layers.1.bias", 100), "no_gradient at 9");
}

TEST(Connections, LayersInAPlainList) {
  const auto run = [](const char* topic) {
    Training training(AddConnections);
    training.contexts["unregistered"] = topic;
    return training.Run(20, [](int) {});
  };
  EXPECT_EQ(run(R"({"where": ["Net.blocks"], "parameters": 4, "elements": 99})"), "no_optimizer at 0");
  EXPECT_EQ(run(R"({"where": [], "parameters": 4})"), "") << "damaged";
  EXPECT_EQ(run(R"({"where": ["Net.blocks"], "parameters": "4"})"), "") << "damaged";
}

TEST(Data, LogitsOfALossThatNobodySaw) {
  const auto run = [](const char* loss) {
    Training training(AddData, DType::kFloat32, loss);
    training.contexts["loss_input"] = R"({"function": "nll_loss", "shape": [16]})";
    training.series["loss_input/wrong"] = 1;
    training.loss = -2;  // and it falls
    return training.Run(20, [](int) {});
  };
  EXPECT_EQ(run("backward_loss"), "not_logits at 2");
  EXPECT_EQ(run("NLLLoss_output"), "not_logits at 2");
}

}  // namespace
}  // namespace tdbg::rules::profile
