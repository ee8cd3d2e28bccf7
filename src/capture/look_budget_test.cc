// Which large tensors are looked at when, by what looks at them cost and a step takes.
#include "capture/look_budget.h"

#include <gtest/gtest.h>

#include <map>

namespace tdbg::capture {
namespace {

/// A training of which `step` nanoseconds are its own, and looks at these tensors take what they take.
class Training {
 public:
  Training(double share, double step, std::map<LookBudget::Id, double> costs, int64_t spacing = 1)
      : budget_(share, spacing), step_(step), costs_(std::move(costs)), spacing_(spacing) {}

  void Step() {
    now_ += step_;
    const double begun = now_;
    for (const auto& [id, cost] : costs_) {
      if (n_ % spacing_ != 0 || !budget_.IsDue(id, n_)) continue;
      ++looks_[id];
      last_[id] = n_;
      now_ += cost;
      budget_.Looked({{id, LookBudget::kLarge}}, LookBudget::kLarge, static_cast<int64_t>(cost), true);
    }
    spent_ += now_ - begun;
    changes_ += budget_.StepEnded(static_cast<int64_t>(now_));
    ++n_;
  }
  void Steps(int n) {
    for (int i = 0; i < n; ++i) Step();
  }
  /// Of ours to the training's, from here on.
  double ShareOver(int steps) {
    const double spent = spent_;
    Steps(steps);
    return (spent_ - spent) / (step_ * steps);
  }

  LookBudget budget_;
  double step_;
  std::map<LookBudget::Id, double> costs_;
  std::map<LookBudget::Id, int> looks_;
  std::map<LookBudget::Id, int64_t> last_;
  int64_t n_ = 0, spacing_;
  double now_ = 1e9, spent_ = 0;
  int changes_ = 0;
};

TEST(LookBudget, WhatFitsIsLookedAtInEveryStep) {
  Training training(0.05, 1e6, {{1, 20e3}, {2, 29e3}});
  training.Steps(200);
  EXPECT_EQ(training.looks_[1], 200);
  EXPECT_EQ(training.looks_[2], 200);
  EXPECT_EQ(training.changes_, 0);
  EXPECT_TRUE(training.budget_.rare().empty());
}

TEST(LookBudget, ADearTensorIsLookedAtLessOftenAndTheOthersAreNot) {
  Training training(0.05, 1e6, {{1, 10e3}, {2, 26e6}});
  training.Steps(3);
  EXPECT_LE(training.looks_[2], 2) << "the second step knows already";
  EXPECT_LE(training.ShareOver(4096), 0.05);
  EXPECT_EQ(training.looks_[1], 3 + 4096);
  EXPECT_GE(training.looks_[2], 4096 / 1024);
  const auto rare = training.budget_.rare();
  ASSERT_EQ(rare.size(), 1u);
  EXPECT_EQ(rare[0].id, 2u);
  EXPECT_EQ(rare[0].every, 1024)
      << "26 ms in what 0.04 ms of each step give: every 650th, and so every 1024th";
  EXPECT_EQ(rare[0].nanos, 26e6);
}

TEST(LookBudget, TensorsOfOneCostShareAndAreLookedAtInTheSameSteps) {
  Training training(0.05, 1e6, {{1, 1e6}, {2, 1e6}, {3, 1e6}});
  training.Steps(40);
  EXPECT_LE(training.ShareOver(2048), 0.05);
  EXPECT_EQ(training.looks_[1], training.looks_[2]);
  EXPECT_EQ(training.last_[1], training.last_[3]);
  EXPECT_EQ(training.budget_.rare()[0].every, 64);
}

TEST(LookBudget, LongerStepsLeaveTimeForMore) {
  Training training(0.05, 1e6, {{1, 1e6}});
  training.Steps(100);
  ASSERT_EQ(training.budget_.rare()[0].every, 32);
  training.step_ = 40e6;
  training.Steps(100);
  EXPECT_TRUE(training.budget_.rare().empty());
}

TEST(LookBudget, APauseAndALittleNoiseChangeNothing) {
  Training training(0.05, 1e6, {{1, 1.6e6}});
  training.Steps(64);
  const int changes = training.changes_;
  for (int i = 0; i < 400; ++i) {
    training.step_ = i % 100 == 50 ? 5e9 : i % 2 == 0 ? 0.9e6 : 1.1e6;
    training.Step();
  }
  EXPECT_LE(training.changes_, changes + 2);
}

TEST(LookBudget, ALookThatTookMoreBecauseValuesWereKeptDoesNotCount) {
  LookBudget budget(0.05, 1);
  const std::vector<LookBudget::Look> looks = {{1, LookBudget::kLarge}};
  int64_t now = 1'000'000;
  for (int n = 0; n < 100; ++n) {
    (void)budget.IsDue(1, n);
    budget.Looked(looks, LookBudget::kLarge, n == 50 ? 90'000'000 : 10'000, n != 50);
    now += 1'000'000 + (n == 50 ? 90'000'000 : 10'000);
    (void)budget.StepEnded(now);
  }
  EXPECT_TRUE(budget.rare().empty());
}

TEST(LookBudget, StatisticsAtEveryTenthStepHaveTheTimeOfTen) {
  Training training(0.05, 1e6, {{1, 0.4e6}}, /*spacing=*/10);
  training.Steps(1000);
  EXPECT_EQ(training.looks_[1], 100);
}

TEST(LookBudget, WithoutALimitNothingIsMeasured) {
  const LookBudget budget(0, 1);
  EXPECT_FALSE(budget.on());
}

}  // namespace
}  // namespace tdbg::capture
