// What was found in steps that a later attempt has replaced, live and in a replay.
#include "rules/kept_findings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "base/testing.h"
#include "rules/engine.h"
#include "rules/testing.h"

namespace tdbg::rules {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;

plan::RuleConfig Config(const std::string& rule, const std::map<std::string, std::string>& parameters = {}) {
  plan::RuleConfig config;
  config.rule = rule;
  config.parameters = parameters;
  if (rule == "VanishingGradient") config.parameters.try_emplace("patience", "1");
  return config;
}

std::unique_ptr<Engine> MakeEngine(const std::vector<plan::RuleConfig>& configs) {
  auto engine = Engine::Create(configs);
  EXPECT_TRUE(engine.ok()) << engine.status().ToString();
  return engine.ok() ? *std::move(engine) : nullptr;
}

std::vector<std::pair<int64_t, int64_t>> StepsAndAttempts(const RuleStatus& status) {
  std::vector<std::pair<int64_t, int64_t>> found;
  for (const Finding& finding : status.findings) found.emplace_back(finding.global_step, finding.attempt);
  return found;
}

TEST(KeptFindingsTest, WhatWasFoundInAStepThatIsTrainedAgainStands) {
  using Values = std::vector<double>;
  // Attempt 1 has the steps from 3 on, attempt 2 those from 4 on.
  const auto verdict = [](const Values& first, const std::vector<Values>& later) {
    MemorySource run;
    const TensorIndex a = run.Tensor("gradient/a", "gradients");
    for (const double value : first) run.Step({{a, value}});
    size_t begin = 3;
    for (const Values& values : later) run.Later(begin++, a, values);
    const auto engine = MakeEngine({Config("VanishingGradient")});
    EXPECT_TRUE(engine->Finish(run, JobEnd::kCompleted, 1).ok());
    EXPECT_TRUE(engine->decided());
    return engine->statuses()[0];
  };
  RuleStatus status = verdict({1, 1, 1, 1, 0, 1}, {{1, 1, 1, 1}});
  EXPECT_EQ(status.state, RuleState::kIssuesFound);
  EXPECT_THAT(StepsAndAttempts(status), ElementsAre(Pair(4, 0)));
  EXPECT_THAT(status.details, HasSubstr("in attempt 0, whose step 4 was trained again since"));
  // A step that was not replaced is the run's own, and the attempts behind it change nothing.
  status = verdict({1, 0, 1, 1, 1, 1}, {{1, 1, 1, 1}, {1, 1}});
  EXPECT_THAT(StepsAndAttempts(status), ElementsAre(Pair(1, -1)));
  EXPECT_THAT(status.details, Not(HasSubstr("attempt")));
  // The rule looks for more in each attempt; what it finds again at the same step it says once.
  status = verdict({1, 1, 1, 1, 0, 1}, {{1, 1, 0, 1}});
  EXPECT_THAT(StepsAndAttempts(status), ElementsAre(Pair(4, 0), Pair(5, -1)));
  status = verdict({1, 1, 1, 1, 0, 1}, {{1, 0, 1, 1}});
  EXPECT_THAT(StepsAndAttempts(status), ElementsAre(Pair(4, -1)));
  // Three attempts: the second one's finding, in a step that the third replaced.
  status = verdict({1, 1, 1, 1, 1, 1}, {{1, 1, 0}, {1, 1}});
  EXPECT_THAT(StepsAndAttempts(status), ElementsAre(Pair(5, 1)));
  EXPECT_EQ(verdict({1, 1, 1, 1, 1, 1}, {{1, 1, 1}, {1, 1}}).state, RuleState::kNoIssuesFound);
}

TEST(KeptFindingsTest, FindingsOfReplacedStepsAreTheSameLiveAndInAReplay) {
  std::mt19937 chance(31);
  const auto some = [&](int most) {
    std::vector<double> values;
    for (int i = static_cast<int>(chance() % static_cast<unsigned>(most)) + 1; i > 0; --i)
      values.push_back(chance() % 5 == 0 ? 0 : 1);
    return values;
  };
  int found = 0;
  for (int world = 0; world < 200; ++world) {
    std::vector<std::vector<double>> attempts;
    for (int i = 0; i < 4; ++i) attempts.push_back(some(8));
    std::vector<size_t> firsts = {0};
    for (size_t i = 1, last = attempts[0].size(); i < attempts.size(); ++i) {
      firsts.push_back(chance() % (last + 1));
      last = firsts[i] + attempts[i].size();
    }
    const auto make = [&](MemorySource* run, size_t shown) {
      const TensorIndex a = run->Tensor("gradient/a", "gradients");
      run->apart = {2};
      for (const double value : attempts[0]) run->Step({{a, value}});
      for (size_t i = 1; i < shown; ++i) run->Later(firsts[i], a, attempts[i]);
      return a;
    };
    MemorySource whole, growing;
    make(&whole, attempts.size());
    const auto replay = MakeEngine({Config("VanishingGradient")}),
               live = MakeEngine({Config("VanishingGradient")});
    TDBG_ASSERT_OK(replay->Finish(whole, JobEnd::kCompleted, 1));
    const TensorIndex a = make(&growing, 1);
    for (size_t i = 1; i < attempts.size(); ++i) {  // someone looks between two attempts, or not
      if (chance() % 2 == 0) TDBG_ASSERT_OK(live->Advance(growing, 1));
      growing.Later(firsts[i], a, attempts[i]);
    }
    TDBG_ASSERT_OK(live->Finish(growing, JobEnd::kCompleted, 1));
    EXPECT_EQ(live->statuses()[0].details, replay->statuses()[0].details) << world;
    EXPECT_EQ(StepsAndAttempts(live->statuses()[0]), StepsAndAttempts(replay->statuses()[0])) << world;
    bool any = false;
    for (const std::vector<double>& values : attempts) any |= std::ranges::count(values, 0.0) > 0;
    EXPECT_EQ(live->statuses()[0].state == RuleState::kIssuesFound, any) << world;
    found += any;
  }
  EXPECT_GT(found, 50);
  EXPECT_LT(found, 200);
}

TEST(KeptFindingsTest, AnAttemptThatIsLaidBehindIsComparedWithNothingBeforeIt) {
  MemorySource run;
  const TensorIndex loss = run.Tensor("loss", "losses");
  const auto verdict = [&](bool apart) {
    MemorySource laid;
    (void)laid.Tensor("loss", "losses");
    if (apart) laid.apart = {1};
    for (const double value : {4, 3, 2, 1}) laid.Step({{loss, value}});
    laid.Later(4, loss, {4, 3, 2, 1});  // from the beginning, as it seems
    const auto engine = MakeEngine({Config("LossNotDecreasing", {{"interval", "1"}, {"num_steps", "1"}})});
    EXPECT_TRUE(engine->Finish(laid, JobEnd::kCompleted, 1).ok());
    return engine->statuses()[0].state;
  };
  EXPECT_EQ(verdict(true), RuleState::kNoIssuesFound);
  EXPECT_EQ(verdict(false), RuleState::kIssuesFound);
}

}  // namespace
}  // namespace tdbg::rules
