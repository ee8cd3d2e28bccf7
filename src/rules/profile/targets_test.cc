// Targets of a size that no network begins with, and losses that are added.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "rules/profile/testing.h"

namespace tdbg::rules::profile {
namespace {

TEST(Targets, TargetsThatAreNotScaled) {
  const auto run = [](double targets, const std::function<double(int)>& reached) {
    Looked training(AddTargets, "mse_loss", "MSELoss_output");
    return training.RunLooked(
        300, [&](int step) { training.Regression(targets, targets / 3, 0.1, 0, reached(step) - targets); });
  };
  EXPECT_EQ(run(1e6, [](int step) { return 0.1 * step; }), "targets_unscaled at 104");
  EXPECT_EQ(run(1e6, [](int step) { return 0.02 * step * step; }), "targets_unscaled at 200")
      << "beyond what networks begin with, and still nowhere";
  EXPECT_EQ(run(1000, [](int step) { return std::min(1000.0, 1.0 * step); }), "") << "it is on its way";
  EXPECT_EQ(run(1e6, [](int) { return 0.9e6; }), "") << "a last layer of that scale";
  EXPECT_EQ(run(2, [](int) { return 0.01; }), "");
}

TEST(Targets, TargetsThatAreNotScaledEndInNoNumbers) {
  const auto run = [](double targets) {
    Looked training(AddTargets, "mse_loss", "MSELoss_output");
    return training.RunLooked(20, [&](int step) {
      training.Regression(targets, targets / 3, 0.1, 0,
                          (step < 2 ? 0 : std::pow(-9.0, step)) * targets - targets);
      if (step >= 9) training.loss = NAN;
    });
  };
  EXPECT_EQ(run(1000), "targets_unscaled at 9");
  EXPECT_EQ(run(1), "");
}

// Targets of 3e-4 that differ by 1e-4, and a network whose own noise is a hundred times that.
TEST(Targets, ThatAreSmallerThanWhatANetworkCanTellApart) {
  const auto run = [](double mean, double deviation, double std, const std::function<double(int)>& moves) {
    Looked training(AddTargets, "mse_loss", "MSELoss_output");
    return training.RunLooked(400,
                              [&](int step) { training.Regression(mean * moves(step), deviation, std, 0); });
  };
  const auto still = [](int) { return 1.0; };
  EXPECT_EQ(run(3e-4, 1e-4, 1e-2, still), "targets_unscaled at 192");
  EXPECT_EQ(run(3e-4, 1e-4, 1e-4, still), "") << "and yet it does";
  EXPECT_EQ(run(3, 1, 100, still), "") << "of a usual size it diverges, and that is another matter";
  EXPECT_EQ(run(1e-5, 1e-4, 1e-2, [](int step) { return 9 * std::sin(step); }), "")
      << "another network's, before anything was won";
}

// A loss of classes and one of boxes, added.
std::string Boxes(double size, double reached, double boxes_loss, bool single = false) {
  Looked training(AddTargets, "cross_entropy", "CrossEntropyLoss_output", single);
  training.more_losses["SmoothL1Loss_output"] = boxes_loss;
  return training.RunLooked(60, [&](int) {
    training.loss = 1.1;
    training.series["predictions/between"] = 0.1;
    training.series["predictions/1/between"] = 0.1;
    training.series["targets/1/mean"] = size;
    training.series["targets/1/std"] = size / 2;
    training.series["predictions/1/mean"] = reached;
    training.series["predictions/1/std"] = 0.1;
    training.series["predictions/1/loss"] = boxes_loss;
  });
}

TEST(Targets, OfOneLossThatOutweighsAnother) {
  EXPECT_EQ(Boxes(400, 0.1, 380), "targets_unscaled at 2");
  EXPECT_EQ(Boxes(1, 0.1, 0.5), "");
  EXPECT_EQ(Boxes(400, 300, 80), "") << "a last layer of that scale";
  EXPECT_EQ(Boxes(400, 0.1, 3), "") << "divided by what it is in";
}

// A loss of classes beside a penalty.
std::string Penalty(double penalty, double better, double correlation, double later = 2) {
  Looked training(AddParts, "cross_entropy", "CrossEntropyLoss_output");
  return training.RunLooked(400, [&](int step) {
    training.loss = 2.08;
    training.differentiated = 2.08 + penalty * (step < 100 ? 1 + 0.01 * step : later);
    training.series["predictions/between"] = 0.01;
    training.series["targets/guess"] = 0.11;
    training.series["predictions/loss"] = 0.11 * better;
    training.series["predictions/correlation"] = correlation;
  });
}

TEST(Parts, APenaltyThatOutweighsTheLoss) {
  EXPECT_EQ(Penalty(300, 1, 0), "outweighed at 192");
  EXPECT_EQ(Penalty(2, 1, 0), "") << "it has its say";
  EXPECT_EQ(Penalty(300, 0.6, 0.5), "") << "small, and learnt";
  EXPECT_EQ(Penalty(300, 0.9, 0.1), "") << "better than guessing, if by little";
  EXPECT_EQ(Penalty(300, 1, 0.3), "") << "it begins to be";
  EXPECT_EQ(Penalty(300, 1, 0, 0), "") << "the penalty was for the beginning";
}

}  // namespace
}  // namespace tdbg::rules::profile
