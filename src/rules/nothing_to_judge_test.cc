// What is said where rules had nothing to judge.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "base/testing.h"
#include "rules/details.h"
#include "rules/engine.h"
#include "rules/testing.h"

namespace tdbg::rules {
namespace {

using testing::HasSubstr;

TEST(NothingToJudgeTest, ADefaultRuleThatDoesNotUnderstandTheRunIsNoError) {
  class OfClasses : public Rule {
   public:
    plan::Need Needs() const override { return {}; }
    Result<Judged> Invoke(const StepContext& step, std::vector<Finding>*) override {
      if (step.global_step() == 0) return Judged::kJudged;
      return InvalidArgument("predictions holds 2.7, which is no class number");
    }
    std::string WouldHaveNeeded() const override { return "classes"; }
  };
  RuleRegistry registry;
  RuleInfo info;
  info.class_name = "Classes";
  info.snake_name = "classes";
  registry.Add(info, [](const Parameters&) -> Result<std::unique_ptr<Rule>> {
    return std::unique_ptr<Rule>(std::make_unique<OfClasses>());
  });
  MemorySource run;
  const TensorIndex tensor = run.Tensor("predictions", "predictions");
  run.Step({{tensor, 1}});
  run.Step({{tensor, 1}});
  plan::RuleConfig named, unnamed;
  named.rule = unnamed.rule = "Classes";
  unnamed.name = "unnamed";
  unnamed.optional = true;
  const auto engine = Engine::Create({unnamed, named}, registry);
  TDBG_ASSERT_OK(engine);
  TDBG_ASSERT_OK((*engine)->Finish(run, JobEnd::kCompleted, 1));
  const std::vector<RuleStatus>& statuses = (*engine)->statuses();
  EXPECT_TRUE(HadNothing(statuses[0])) << statuses[0].details;
  EXPECT_THAT(statuses[0].details, HasSubstr("2.7, which is no class number"));
  EXPECT_EQ(statuses[0].steps_judged, 0);
  EXPECT_EQ(statuses[1].state, RuleState::kError) << "it was asked for";
}

TEST(NothingToJudgeTest, WordsOfACleanRunSayHowManyRulesJudged) {
  std::vector<RuleStatus> statuses(3);
  EXPECT_TRUE(JudgingOf(statuses).NothingJudged());
  EXPECT_FALSE(JudgingOf({}).NothingJudged());
  statuses[0].steps_judged = statuses[1].steps_judged = 4;
  EXPECT_EQ(JudgingOf(statuses).ByHowMany(), " by 2 of 3 rules");
  statuses[2].steps_judged = 1;
  EXPECT_EQ(JudgingOf(statuses).ByHowMany(), "");
}

}  // namespace
}  // namespace tdbg::rules
