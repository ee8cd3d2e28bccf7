#include "plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/config.h"
#include "plan/groups.h"

namespace tdbg::plan {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::vector<int64_t> DueSteps(const Schedule& s, int64_t until) {
  std::vector<int64_t> due;
  for (int64_t step = 0; step < until; ++step) {
    if (s.Due(step)) due.push_back(step);
  }
  return due;
}

// The table of smdebug's SaveConfigMode.
TEST(ScheduleTest, SavesTheStepsThatSmdebugSaves) {
  EXPECT_THAT(DueSteps({}, 1001), ElementsAre(0, 500, 1000));
  EXPECT_THAT(DueSteps({.interval = 100, .end = 200}, 500), ElementsAre(0, 100));
  EXPECT_THAT(DueSteps({.interval = 100, .end = 201}, 500), ElementsAre(0, 100, 200));
  EXPECT_THAT(DueSteps({.interval = 100, .start = 150}, 301), ElementsAre(200, 300));
  EXPECT_THAT(DueSteps({.steps = {3, 7}}, 501), ElementsAre(0, 3, 7, 500));
  EXPECT_THAT(DueSteps({.end = 0, .steps = {3}}, 501), ElementsAre(3));
  EXPECT_THAT(DueSteps({.end = 0}, 501), ElementsAre());
}

CompiledPlan Compiled(Plan plan) {
  auto compiled = CompiledPlan::Compile(std::move(plan));
  EXPECT_TRUE(compiled.ok()) << compiled.status().ToString();
  return *std::move(compiled);
}

TensorFacts Facts(std::string_view name, std::string_view kind, std::string_view module_kind = "") {
  return {name, kind, module_kind, nullptr, 1000};
}

TEST(PlanTest, DefaultKeepsStatisticsOfParametersGradientsAndLossesAtEveryStep) {
  const CompiledPlan plan = Compiled(Plan::Default());
  for (const auto& [name, kind] : {std::pair{"Net_conv1.weight", "weight"},
                                   {"Net_conv1.bias", "bias"},
                                   {"gradient/Net_conv1.weight", "gradient"},
                                   {"CrossEntropyLoss_output_0", "loss"}}) {
    const TensorPlan t = plan.Resolve(Facts(name, kind));
    EXPECT_EQ(t.summary_groups, 1u) << name;
    EXPECT_EQ(t.raw_groups, 0u) << name;
  }
  EXPECT_FALSE(plan.Resolve(Facts("Net_relu1_ReLU_output_0", "output", "relu")).wanted());
  for (int64_t step : {1, 9, 17}) EXPECT_EQ(plan.DueGroups(1, step), kSummaryGroup);
  for (int64_t step : {0, 10, 200}) EXPECT_EQ(plan.DueGroups(1, step), kSummaryGroup | kHistogramGroup);
}

TEST(PlanTest, StatisticsOfACollectionAreResolvedPerTensorEachOnce) {
  Plan plan = Plan::Default();
  for (const char* name : {"rule:A", "rule:B"}) {
    CollectionPlan own;
    own.name = name;
    own.kinds = {"@relu_output"};
    own.keep = true;
    own.summaries = own.histogram = false;
    own.statistics = {*Statistic::FromId("count_above(0)")};
    plan.collections.push_back(own);
  }
  const auto again = Plan::FromJson(plan.ToJson());
  ASSERT_TRUE(again.ok());
  const CompiledPlan compiled = Compiled(*again);
  const TensorPlan relu = compiled.Resolve(Facts("relu1_output_0", "output", "relu"));
  EXPECT_TRUE(relu.wanted());
  EXPECT_EQ(relu.summary_groups, 0u);
  ASSERT_EQ(relu.statistics.size(), 1u);
  EXPECT_EQ(relu.statistics[0].Id(), "count_above(0)");
  EXPECT_TRUE(compiled.Resolve(Facts("conv1.weight", "weight")).statistics.empty());
  EXPECT_EQ(compiled.DueGroups(1, 3), 1u);
}

TEST(PlanTest, AStatisticOfALaterVersionIsLeftOut) {
  const auto plan = Plan::FromJson(R"json({"kind":"tdbg.plan","major":1,"minor":7,"collections":
      [{"name":"a","keep":true,"statistics":["medians(1)","count_above(0)"]}]})json");
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  ASSERT_EQ(plan->collections[0].statistics.size(), 1u);
}

TEST(PlanTest, ANeedForAStatisticKeepsItAndNothingElse) {
  Need need;
  need.who = "DeadRelu";
  need.statistics = {{{"relu_output"}, {"mine$"}, *Statistic::FromId("count_above(0)")}};
  const auto plan = ResolvePlan({}, {need});
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  const CompiledPlan compiled = Compiled(*plan);
  for (const auto& [name, module] : {std::pair{"relu1_output_0", "relu"}, {"mine", "elu"}}) {
    const TensorPlan t = compiled.Resolve(Facts(name, "output", module));
    EXPECT_EQ(t.summary_groups | t.raw_groups, 0u) << name;
    EXPECT_EQ(t.statistics.size(), 1u) << name;
    EXPECT_THAT(t.collections, Not(Contains(HasSubstr("rule:")))) << name;
  }
  Config off;
  off.summaries_every = 0;
  EXPECT_FALSE(ResolvePlan(off, {need}).ok());
  need.statistics[0].collections = {"relu_outputs"};
  EXPECT_THAT(ResolvePlan({}, {need}).status().message(), HasSubstr("relu_output"));
}

TEST(PlanTest, SmdebugsRegexesJudgeOnlyTensorsOfWhichNobodySaidTheKind) {
  const CompiledPlan plan = Compiled(Plan::Default());
  EXPECT_THAT(plan.Resolve(Facts("fc.weight", "")).collections, Contains("weights"));
  EXPECT_THAT(plan.Resolve(Facts("gradient/fc.weight", "")).collections, Not(Contains("weights")));
  EXPECT_FALSE(plan.Resolve(Facts("exp_avg/fc.weight", "optimizer")).wanted());
}

TEST(PlanTest, AModulesKindDecidesAndItsNameOnlyWhereTheKindIsNotKnown) {
  const CompiledPlan plan = Compiled(Plan::Default());
  EXPECT_THAT(plan.Resolve(Facts("Net_act_output_0", "output", "relu")).collections, Contains("relu_output"));
  EXPECT_THAT(plan.Resolve(Facts("Net_ReLU_output_0", "output", "")).collections, Contains("relu_output"));
  EXPECT_THAT(plan.Resolve(Facts("Net_ReLU_output_0", "output", "gelu")).collections,
              Not(Contains("relu_output")));
}

TEST(PlanTest, AnAdaptorsWordMakesATensorAMember) {
  Plan p = Plan::Default();
  const std::vector<std::string> said = {"losses", "mine"};
  const CompiledPlan plan = Compiled(p);
  const TensorPlan t = plan.Resolve({"weird", "output", "", &said, 1});
  EXPECT_TRUE(t.wanted());
  EXPECT_THAT(t.collections, ElementsAre("all", "losses", "mine", "outputs"));
}

TEST(PlanTest, GradientsOfOutputsAreKeptWhereSomebodyNamesThem) {
  const auto kept = [](const std::string& collection, const std::string& regex) {
    Plan p = Plan::Default();
    for (CollectionPlan& c : p.collections) c.keep = c.name == collection;
    if (!regex.empty()) {
      p.collections.push_back({.name = "mine", .include_regex = {regex}, .keep = true});
    }
    return Compiled(p).Resolve(Facts("output_gradient/conv1_output_0", "output_gradient", "conv")).wanted();
  };
  EXPECT_TRUE(kept("output_gradients", ""));
  EXPECT_TRUE(kept("", "^output_gradient/conv"));
  EXPECT_FALSE(kept("all", ""));
  EXPECT_FALSE(kept("", ".*"));
  EXPECT_FALSE(kept("", "^output_gradient/fc"));
  EXPECT_FALSE(kept("gradients", ""));
}

TEST(PlanTest, SmallTensorsHaveNoHistogram) {
  const CompiledPlan plan = Compiled(Plan::Default());
  EXPECT_EQ(0u, plan.Resolve({"w", "weight", "", nullptr, 255}).histogram_groups);
  EXPECT_EQ(plan.Resolve({"w", "weight", "", nullptr, 256}).histogram_groups, kHistogramGroup);
}

TEST(PlanTest, HistogramsComeWithTheFirstStatisticsAtOrAfterAMultipleOfTheirInterval) {
  const auto due_at = [](int64_t every, int64_t histograms) {
    Plan p = Plan::Default();
    p.summaries_every = every;
    p.histograms_every = histograms;
    const CompiledPlan plan = Compiled(p);
    std::vector<int64_t> steps;
    for (int64_t step = 0; step < 36; ++step) {
      const uint64_t due = plan.DueGroups(2, step);
      if ((due & kHistogramGroup) != 0) steps.push_back(step);
      EXPECT_TRUE((due & kHistogramGroup) == 0 || (due & kSummaryGroup) != 0);
    }
    return steps;
  };
  EXPECT_THAT(due_at(1, 10), ElementsAre(0, 10, 20, 30));
  EXPECT_EQ(due_at(1, 1).size(), 36u);
  EXPECT_THAT(due_at(3, 10), ElementsAre(0, 12, 21, 30));
  EXPECT_THAT(due_at(16, 10), ElementsAre(0, 16, 32));
  EXPECT_THAT(due_at(1, 0), ElementsAre());
  EXPECT_THAT(due_at(0, 10), ElementsAre());
}

TEST(PlanTest, HistogramsOfWhatASaveScheduleTakesComeWithEachOfItsSteps) {
  Plan p = Plan::Default();
  p.summaries_every = 0;
  CollectionPlan c;
  c.name = "smdebug's";
  c.kinds = {"weight"};
  c.keep = c.summaries_when_saved = true;
  c.summaries = c.raw_values = false;
  c.raw[1] = Schedule{.interval = 3};
  p.collections.push_back(c);
  const CompiledPlan plan = Compiled(p);
  const TensorPlan weight = plan.Resolve(Facts("w", "weight"));
  EXPECT_NE(weight.histogram_groups, 0u);
  EXPECT_EQ(weight.histogram_groups, weight.summary_groups);
  EXPECT_EQ(plan.DueGroups(1, 3), weight.histogram_groups);
}

TEST(PlanTest, APlanOfMinor1HasHistogramsAtEveryStepOrNone) {
  EXPECT_EQ(Plan::FromJson(R"({"kind":"tdbg.plan","major":1,"minor":1,"histograms":true})")->histograms_every,
            1);
  EXPECT_EQ(
      Plan::FromJson(R"({"kind":"tdbg.plan","major":1,"minor":1,"histograms":false})")->histograms_every, 0);
  EXPECT_EQ(Plan::FromJson(R"({"kind":"tdbg.plan","major":1,"minor":1})")->histograms_every, 1);
  EXPECT_EQ(Plan::FromJson(Plan::Default().ToJson())->histograms_every, kHistogramsEvery);
  EXPECT_FALSE(Plan::FromJson(R"({"kind":"tdbg.plan","major":1,"histograms_every":-1})").ok());
}

TEST(PlanTest, SchedulesThatAreEqualShareAGroup) {
  Plan p = Plan::Default();
  for (CollectionPlan& c : p.collections) {
    if (c.name != "weights" && c.name != "gradients" && c.name != "biases") continue;
    c.raw[1] = Schedule{.interval = c.name == "biases" ? 3 : 2};
  }
  const CompiledPlan plan = Compiled(p);
  const uint64_t weights = plan.Resolve(Facts("w", "weight")).raw_groups;
  const uint64_t biases = plan.Resolve(Facts("b", "bias")).raw_groups;
  EXPECT_EQ(weights, plan.Resolve(Facts("g", "gradient")).raw_groups);
  EXPECT_NE(weights, biases);
  EXPECT_EQ(plan.DueGroups(1, 2), 1u | weights);
  EXPECT_EQ(plan.DueGroups(1, 3), 1u | biases);
  EXPECT_EQ(plan.DueGroups(1, 6), 1u | weights | biases);
  EXPECT_EQ(plan.DueGroups(2, 6), 1u) << "raw tensors of evaluations were not asked for";
}

TEST(PlanTest, NothingIsDueWhereStatisticsAreOff) {
  Plan p = Plan::Default();
  p.summaries_every = 0;
  const CompiledPlan plan = Compiled(p);
  EXPECT_EQ(plan.DueGroups(1, 0), 0u);
  EXPECT_FALSE(plan.Resolve(Facts("w", "weight")).wanted());
}

TEST(PlanTest, JsonRoundTripKeepsEverything) {
  Plan p = Plan::Default();
  p.summaries_every = 7;
  p.step_by = "forward";
  p.when_full = "block";
  p.journal_directory = "/tmp/x";
  p.budget_bytes = uint64_t{1} << 40;
  p.include_workers = 0;
  p.shap_rows = 256;
  p.flight = 20;
  p.verify_every = 100;
  p.allow_stop = p.record_end = p.context = false;
  p.histograms_every = 21;
  CollectionPlan c;
  c.name = "mine";
  c.include_regex = {"a\"b", "\\d+"};
  c.tensor_names = {"x"};
  c.keep = true;
  c.reductions = {"abs_mean"};
  c.raw[1] = Schedule{.interval = 3, .start = 4, .end = 50, .steps = {1, 2}};
  c.raw[4] = Schedule{};
  p.collections.push_back(c);
  const auto back = Plan::FromJson(p.ToJson());
  ASSERT_TRUE(back.ok()) << back.status().ToString();
  EXPECT_EQ(back->ToJson(), p.ToJson());
  EXPECT_EQ(back->shap_rows, 256);
  EXPECT_EQ(back->flight, 20);
  EXPECT_EQ(back->verify_every, 100);
  EXPECT_EQ(back->histograms_every, 21);
  EXPECT_EQ(*back->collections.back().raw[1], *c.raw[1]);
  EXPECT_FALSE(back->collections.back().raw[2].has_value());
}

TEST(PlanTest, RefusesWhatIsNoPlanAndWhatANewerVersionWrote) {
  EXPECT_EQ(Plan::FromJson("{").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Plan::FromJson("[]").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Plan::FromJson("{\"kind\":\"run\"}").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Plan::FromJson(R"({"kind":"tdbg.plan","major":2})").status().code(), Code::kUnimplemented);
  const auto bad = Plan::FromJson(
      R"({"kind":"tdbg.plan","major":1,"collections":[{"name":"a","raw":{"train":{"interval":0}}}]})");
  EXPECT_THAT(bad.status().message(),
              HasSubstr("collections[0].raw.train.interval: expected an integer of at least 1"));
  EXPECT_TRUE(Plan::FromJson(R"({"kind":"tdbg.plan","major":1,"minor":9,"news":1})").ok());
}

TEST(PlanTest, ABadRegexNamesItsCollection) {
  Plan p;
  p.collections.push_back({.name = "mine", .include_regex = {"a("}});
  const auto compiled = CompiledPlan::Compile(p);
  ASSERT_FALSE(compiled.ok());
  EXPECT_THAT(compiled.status().message(), HasSubstr("\"mine\""));
}

}  // namespace
}  // namespace tdbg::plan
