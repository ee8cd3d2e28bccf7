#include "plan/config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "plan/groups.h"

namespace tdbg::plan {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

Result<Config> Parse(const std::string& text) {
  const Source source{"debug.yaml",
                      [](const std::string& pointer) { return pointer.starts_with("/rules/0") ? 12 : 0; }};
  return ParseConfig(json::parse(text), source);
}
std::string Refusal(const std::string& text) {
  const auto config = Parse(text);
  EXPECT_FALSE(config.ok()) << text;
  return config.status().message();
}
Config Parsed(const std::string& text) {
  auto config = Parse(text);
  EXPECT_TRUE(config.ok()) << config.status().ToString();
  return config.ok() ? *config : Config{};
}
const CollectionPlan& Find(const Plan& plan, const std::string& name) {
  for (const CollectionPlan& c : plan.collections) {
    if (c.name == name) return c;
  }
  static const CollectionPlan none;
  ADD_FAILURE() << name;
  return none;
}
Plan Resolved(const char* text, const std::vector<Need>& needs = {}) {
  auto plan = ResolvePlan(Parsed(text), needs);
  EXPECT_TRUE(plan.ok()) << plan.status().ToString();
  return plan.ok() ? *plan : Plan{};
}
std::string Contradiction(const char* text, const std::vector<Need>& needs = {}) {
  const auto plan = ResolvePlan(Parsed(text), needs);
  EXPECT_FALSE(plan.ok()) << text;
  return plan.status().message();
}

TEST(ConfigTest, DerivedStatisticsAreKeptBesideOrInsteadOfSummaries) {
  Need need;
  need.who = "r";
  need.collections_to_save.emplace_back().name = "relu_output";
  const char* const text = R"json({"collections": {"relu_output": {
      "summaries": false, "statistics": ["count_above(0)", "sums(-1)"]}}})json";
  const Plan plan = Resolved(text, {need});
  const CollectionPlan& kept = Find(plan, "relu_output");
  EXPECT_TRUE(kept.keep);
  ASSERT_EQ(kept.statistics.size(), 2u) << "a rule that saves the same collection takes nothing away";
  EXPECT_EQ(kept.statistics[1].Id(), "sums(-1)");
  EXPECT_FALSE(Find(Resolved(text), "relu_output").summaries);
  EXPECT_TRUE(Find(Resolved(text), "relu_output").keep);
  EXPECT_THAT(Contradiction(R"json({"summaries": {"every": 0},
                                    "collections": {"relu_output": {"statistics": "sums(1)"}}})json"),
              HasSubstr("summaries.every"));
}

TEST(ConfigTest, EveryKeyIsRead) {
  const Config c = Parsed(R"json({
    "dir": "runs/a", "summaries": {"every": 10, "histograms": false}, "context": "False", "record_end": true,
    "step_by": "forward", "when_full": "block", "journal": {"size": "16MiB", "directory": "/tmp"},
    "budget": 1000, "stop_grace_seconds": "5", "on_issue": "exec:mail -s a,b me", "action_cooldown_seconds": 60,
    "shap_rows": 256,
    "flight": 20,
    "verify_every": 100,
    "collections": {"weights": {"save_interval": 100, "train.save_steps": [1, 2], "raw": true, "histogram": false},
                    "mine": {"include_regex": ["a,b", "c"], "tensor_names": "x, y", "reductions": "abs_mean,max",
                             "statistics": ["count_within(-1,1)", "sums(1)"]}},
    "rules": ["ExplodingTensor", {"rule": "vanishing_gradient", "name": "v", "parameters": {"threshold": 1e-6,
              "on": true, "names": ["a", "b"]}, "on_issue": ["stop"], "action_cooldown_seconds": 0}]})json");
  EXPECT_EQ(c.action_cooldown_seconds, 60);
  EXPECT_EQ(c.shap_rows, 256);
  EXPECT_EQ(c.flight, 20);
  EXPECT_EQ(c.verify_every, 100);
  EXPECT_EQ(c.rules.at(1).action_cooldown_seconds, 0);
  EXPECT_EQ(c.collections.at(0).statistics.size() + c.collections.at(1).statistics.size(), 2u);
  EXPECT_EQ(c.dir, "runs/a");
  EXPECT_EQ(c.summaries_every, 10);
  EXPECT_EQ(c.histograms_every, 0);
  EXPECT_EQ(c.context, false);
  EXPECT_EQ(c.record_end, true);
  EXPECT_EQ(c.journal_bytes, 16u << 20);
  EXPECT_EQ(c.budget_bytes, 1000u);
  EXPECT_EQ(c.stop_grace_seconds, 5);
  EXPECT_THAT(c.on_issue, ElementsAre("exec:mail -s a,b me"));
  ASSERT_EQ(c.collections.size(), 2u);
  EXPECT_THAT(c.collections[0].include_regex, ElementsAre("a,b", "c"));
  EXPECT_THAT(c.collections[0].tensor_names, ElementsAre("x", "y"));
  EXPECT_EQ(c.collections[1].save.at("train.save_steps"), "1,2");
  ASSERT_EQ(c.rules.size(), 2u);
  EXPECT_EQ(c.rules[1].parameters.at("threshold"), "1e-06");
  EXPECT_EQ(c.rules[1].parameters.at("on"), "True");
  EXPECT_EQ(c.rules[1].parameters.at("names"), "a,b");
  EXPECT_EQ(c.rules[1].where, "debug.yaml");
  EXPECT_EQ(c.rules[0].where, "debug.yaml:12");
}

TEST(ConfigTest, ARefusalNamesFileLineKeyAndTheNearestName) {
  EXPECT_THAT(Refusal(R"({"rules": [{"rule": "A", "paramters": {}}]})"),
              HasSubstr("debug.yaml:12: rules[0]: unknown key \"paramters\"; did you mean \"parameters\"? "
                        "Accepted: rule, rule_file, name, parameters, on_issue, collections_to_save"));
  EXPECT_THAT(Refusal(R"({"colections": {}})"),
              HasSubstr("debug.yaml: unknown key \"colections\"; did you mean \"collections\"?"));
  EXPECT_THAT(Refusal(R"({"summaries": {"every": "often"}})"),
              HasSubstr("summaries.every: found \"often\", expected an integer of at least 0"));
  EXPECT_THAT(
      Refusal(R"({"summaries": {"histograms": "often"}})"),
      HasSubstr("summaries.histograms: found \"often\", expected true, false or an integer of at least 0"));
  EXPECT_THAT(Refusal(R"({"summaries": {"histograms": -1}})"), HasSubstr("summaries.histograms: found -1"));
  EXPECT_THAT(Refusal(R"({"when_full": "blok"})"), HasSubstr("did you mean \"block\"?"));
  EXPECT_THAT(
      Refusal(R"({"collections": {"weights": {"save_intervall": 3}}})"),
      HasSubstr("collections.weights: unknown key \"save_intervall\"; did you mean \"save_interval\"?"));
  EXPECT_THAT(
      Refusal(R"({"collections": {"weights": {"save_interval": 0}}})"),
      HasSubstr("collections.weights.save_interval: found \"0\", expected an integer of at least 1 (steps)"));
  EXPECT_THAT(Refusal(R"({"collections": {"weights": {"reductions": "abs_l1"}}})"), HasSubstr("abs_l1_norm"));
  EXPECT_THAT(Refusal(R"({"collections": {"weights": {"statistics": "count_over"}}})"),
              HasSubstr("count_above(threshold)"));
  EXPECT_THAT(Refusal(R"({"action_cooldown_seconds": -1})"), HasSubstr("action_cooldown_seconds"));
  EXPECT_THAT(Refusal(R"({"on_issue": ["halt"]})"),
              HasSubstr("Accepted: stop, exec:COMMAND, webhook:URL, email:ADDRESS"));
  EXPECT_THAT(Refusal(R"({"journal": {"size": "12"}})"), HasSubstr("at least 1MiB"));
  EXPECT_THAT(Refusal(R"({"collections": [{"raw": true}]})"),
              HasSubstr("collections[0]: the key \"name\" is missing"));
  EXPECT_THAT(Refusal("[]"), HasSubstr("expected an object"));
}

TEST(ConfigTest, HistogramsTakeATruthValueOrAnInterval) {
  const auto every = [](const std::string& value) {
    const std::string text = R"({"summaries": {"histograms": )" + value + "}}";
    return Resolved(text.c_str()).histograms_every;
  };
  EXPECT_EQ(Resolved("{}").histograms_every, 10);
  EXPECT_EQ(every("true"), 1);
  EXPECT_EQ(every("\"True\""), 1);
  EXPECT_EQ(every("false"), 0);
  EXPECT_EQ(every("0"), 0);
  EXPECT_EQ(every("25"), 25);
  EXPECT_EQ(every("\"25\""), 25);
}

TEST(ConfigTest, ARuleGetsHistogramsWithTheStatisticsOfTheStepsThatItJudges) {
  Need need;
  need.who = "r";
  need.collections = need.histogram_collections = {"gradients"};
  need.histogram_steps = 3;
  const auto due_at = [&](const char* config) {
    const auto plan = CompiledPlan::Compile(Resolved(config, {need}));
    std::vector<int64_t> steps;
    const TensorPlan gradient = plan->Resolve({"g", "gradient", "", nullptr, 1000});
    EXPECT_EQ(gradient.raw_groups, 0u) << "no values";
    EXPECT_EQ(plan->Resolve({"w", "weight", "", nullptr, 1000}).histogram_groups, kHistogramGroup);
    for (int64_t step = 0; step < 25; ++step) {
      if ((plan->DueGroups(1, step) & gradient.histogram_groups) != 0) steps.push_back(step);
    }
    return steps;
  };
  EXPECT_THAT(due_at("{}"), ElementsAre(0, 1, 2, 10, 20));
  EXPECT_THAT(due_at(R"({"summaries": {"every": 4}})"), ElementsAre(0, 4, 8, 12, 20));
  need.histogram_steps = -1;
  EXPECT_EQ(due_at("{}").size(), 25u);
  EXPECT_EQ(ResolvePlan(Parsed(R"({"summaries": {"histograms": false}})"), {need}).status().code(),
            Code::kInvalidArgument);
}

TEST(ConfigTest, FlagsOverrideKeyByKeyAndListsAreAppended) {
  const Config file = Parsed(R"({"dir": "a", "summaries": {"every": 5}, "rules": ["A"],
                                 "collections": {"weights": {"save_interval": 100, "start_step": 10}}})");
  Config flags = Parsed(R"({"summaries": {"every": 1}, "rules": ["B"]})");
  flags.collections.push_back(*ParseCollectFlag("weights:7"));
  const Config merged = MergeConfigs(file, flags);
  EXPECT_EQ(merged.dir, "a");
  EXPECT_EQ(merged.summaries_every, 1);
  EXPECT_EQ(merged.rules.size(), 2u);
  ASSERT_EQ(merged.collections.size(), 1u);
  EXPECT_EQ(merged.collections[0].save.at("save_interval"), "7");
  EXPECT_EQ(merged.collections[0].save.at("start_step"), "10");
}

TEST(ConfigTest, CollectFlags) {
  EXPECT_FALSE(ParseCollectFlag("gradients")->raw.has_value());
  EXPECT_TRUE(*ParseCollectFlag("gradients:10")->raw);
  EXPECT_THAT(ParseCollectFlag("gradients:x").status().message(),
              HasSubstr("expected an integer of at least 1"));
  EXPECT_FALSE(ParseCollectFlag(":3").ok());
}

TEST(ResolveTest, ASaveKeyKeepsRawTensorsAndItsModesOverrideIt) {
  const Plan plan = Resolved(R"({"collections": {"outputs": {"save_interval": 100, "eval.save_interval": 5,
                                                             "end_step": 200}}})");
  const CollectionPlan& c = Find(plan, "outputs");
  EXPECT_TRUE(c.keep);
  EXPECT_EQ(*c.raw[1], (Schedule{.interval = 100, .end = 200}));
  EXPECT_EQ(*c.raw[2], (Schedule{.interval = 5, .end = 200}));
  EXPECT_FALSE(Find(plan, "weights").raw[1].has_value());
}

TEST(ResolveTest, NamingACollectionKeepsItsStatistics) {
  const CollectionPlan c = Find(Resolved(R"({"collections": ["relu_output"]})"), "relu_output");
  EXPECT_TRUE(c.keep && c.summaries);
  EXPECT_FALSE(c.raw[1].has_value());
}

TEST(ResolveTest, WhatIsComputedToBeRecordedFollowsItsSaveKeys) {
  for (const char* name : {"average_shap", "full_shap"}) {
    const auto plan = [&](const char* keys) {
      return Find(Resolved(fmt::format(R"({{"collections": {{"{}": {}}}}})", name, keys).c_str()), name);
    };
    const CollectionPlan saved = plan(R"({"save_interval": 10})");
    EXPECT_TRUE(saved.keep && saved.summaries_when_saved && !saved.summaries) << name;
    EXPECT_TRUE(plan(R"({"save_interval": 10, "summaries": true})").summaries) << name;
    EXPECT_TRUE(plan("{}").summaries) << name;
  }
  EXPECT_TRUE(Find(Resolved(R"({"collections": {"outputs": {"save_interval": 10}}})"), "outputs").summaries);
}

TEST(ResolveTest, ACollectionCanBeSwitchedOff) {
  EXPECT_FALSE(Find(Resolved(R"({"collections": {"biases": {"summaries": false}}})"), "biases").keep);
}

TEST(ResolveTest, ContradictionsAreRefused) {
  EXPECT_THAT(Contradiction(R"({"collections": {"weigths": null}})"),
              HasSubstr("unknown collection \"weigths\"; did you mean \"weights\"?"));
  EXPECT_THAT(Contradiction(R"({"collections": {"weights": {"start_step": 9, "end_step": 3}}})"),
              HasSubstr("end_step 3 is before start_step 9"));
  EXPECT_THAT(Contradiction(R"({"collections": {"weights": {"raw": false, "save_interval": 3}}})"),
              HasSubstr("raw: false"));
  EXPECT_THAT(Contradiction(R"({"collections": {"mine": {"include_regex": "a("}}})"),
              HasSubstr("debug.yaml: collections.mine.include_regex"));
  EXPECT_THAT(Contradiction(R"({"collections": {"weights": {"reductions": "prod"}}})"),
              HasSubstr("add raw: true"));
  EXPECT_THAT(Contradiction(R"({"when_full": "block", "budget": "1GB"})"), HasSubstr("choose one"));
  const Need need{.collections = {"gradients"}, .who = "VanishingGradient"};
  EXPECT_THAT(Contradiction(R"({"summaries": {"every": 0}})", {need}), HasSubstr("VanishingGradient"));
  EXPECT_THAT(Contradiction(R"({"collections": {"gradients": {"summaries": false}}})", {need}),
              HasSubstr("collections.gradients.summaries: false"));
  EXPECT_EQ(Resolved(R"({"when_full": "block"})").budget_bytes, 0u);
}

TEST(ResolveTest, ARulesNeedForValuesLeavesTheUsersScheduleAlone) {
  const Need need{.collections = {"weights"},
                  .tensor_regex = {"^extra"},
                  .raw = true,
                  .raw_schedule = Schedule{.interval = 50},
                  .who = "WeightUpdateRatio"};
  const Plan plan = Resolved(R"({"collections": {"weights": {"save_interval": 7}}})", {need});
  EXPECT_EQ(Find(plan, "weights").raw[1]->interval, 7);
  auto compiled = CompiledPlan::Compile(plan);
  ASSERT_TRUE(compiled.ok());
  const TensorPlan w = compiled->Resolve({"w", "weight", "", nullptr, 9});
  EXPECT_TRUE(w.raw_groups & compiled->DueGroups(1, 7));
  EXPECT_TRUE(w.raw_groups & compiled->DueGroups(1, 50));
  EXPECT_FALSE(w.raw_groups & compiled->DueGroups(1, 51));
  EXPECT_THAT(w.collections, ElementsAre("all", "weights")) << "a rule's need is no collection of the user's";
  EXPECT_TRUE(compiled->Resolve({"extra1", "output", "", nullptr, 9}).raw_groups);
}

TEST(ConfigTest, ARuleIsReadInOurWordsTheSdksAndTheRequests) {
  for (
      const char* text : {
          R"({"rules": [{"rule": "weight_update_ratio", "name": "slow", "parameters": {"num_steps": 5},
               "collections_to_save": [{"name": "weights", "save_interval": 20}, "biases"]}]})",
          R"({"rules": [{"base_config": "weight_update_ratio", "name": "slow", "rule_parameters": {"num_steps": "5"},
               "collections_to_save": [{"name": "weights", "parameters": {"save_interval": "20"}}, {"name": "biases"}]}]})",
          R"({"rules": [{"RuleConfigurationName": "slow", "RuleEvaluatorImage": "x.dkr.ecr.amazonaws.com/rules:latest",
               "RuleParameters": {"rule_to_invoke": "weight_update_ratio", "num_steps": "5"},
               "collections_to_save": [{"CollectionName": "weights", "CollectionParameters": {"save_interval": "20"}},
                                       {"CollectionName": "biases"}]}]})"}) {
    const RuleConfig rule = Parsed(text).rules.at(0);
    EXPECT_EQ(rule.rule, "weight_update_ratio") << text;
    EXPECT_EQ(rule.name, "slow") << text;
    EXPECT_EQ(rule.parameters.at("num_steps"), "5") << text;
    ASSERT_EQ(rule.collections_to_save.size(), 2u) << text;
    EXPECT_EQ(rule.collections_to_save[0].name, "weights") << text;
    EXPECT_EQ(rule.collections_to_save[0].save.at("save_interval"), "20") << text;
    EXPECT_EQ(rule.collections_to_save[1].name, "biases") << text;
  }
  EXPECT_THAT(Refusal(R"({"rules": [{"rule": "x", "collections_to_save": "weights"}]})"),
              HasSubstr("expected a list"));
  EXPECT_THAT(
      Refusal(
          R"({"rules": [{"rule": "x", "collections_to_save": [{"name": "w", "parameters": {"save": 1}}]}]})"),
      HasSubstr("unknown key \"save\""));
  EXPECT_THAT(Refusal(R"({"rules": [{"name": "x"}]})"), HasSubstr("the key \"rule\" is missing"));
}

// What rule_configs.dead_relu() and the like return.
constexpr char kPackaged[] = R"({"DebugRuleConfiguration": {"RuleConfigurationName": "DeadRelu",
    "RuleParameters": {"rule_to_invoke": "DeadRelu", "threshold_inactivity": "1.0"}},
    "CollectionConfigurations": [{"CollectionName": "relu_output", "CollectionParameters":
        {"include_regex": ".*relu_output", "save_interval": "500"}}]})";

TEST(ConfigTest, ARuleIsReadAsSmdebugRulesconfigReturnsIt) {
  const std::string packaged = kPackaged;
  for (const std::string& text : {packaged, "{\"base_config\": " + packaged + "}"}) {
    const RuleConfig rule = Parsed("{\"rules\": [" + text + "]}").rules.at(0);
    EXPECT_EQ(rule.rule, "DeadRelu");
    EXPECT_EQ(rule.name, "DeadRelu");
    EXPECT_EQ(rule.parameters.at("threshold_inactivity"), "1.0");
    ASSERT_EQ(rule.collections_to_save.size(), 1u);
    EXPECT_EQ(rule.collections_to_save[0].name, "relu_output");
    EXPECT_THAT(rule.collections_to_save[0].include_regex, ElementsAre(".*relu_output"));
    EXPECT_EQ(rule.collections_to_save[0].save.at("save_interval"), "500");
  }
  // As Rule.sagemaker: what stands beside base_config wins over what is in it.
  const RuleConfig rule = Parsed("{\"rules\": [{\"base_config\": " + packaged + R"(, "name": "mine",
      "rule_parameters": {"threshold_inactivity": "2"}, "collections_to_save": [{"name": "biases", "save_interval": 5}]}]})")
                              .rules.at(0);
  EXPECT_EQ(rule.name, "mine");
  EXPECT_EQ(rule.parameters.at("threshold_inactivity"), "2");
  ASSERT_EQ(rule.collections_to_save.size(), 1u);
  EXPECT_EQ(rule.collections_to_save[0].name, "biases");
}

TEST(ConfigTest, WhatIsUnknownInAPackagedRuleIsRefused) {
  const auto refused = [](const std::string& rule) { return Refusal("{\"rules\": [" + rule + "]}"); };
  EXPECT_THAT(
      refused(
          R"({"DebugRuleConfiguration": {"RuleParameters": {"rule_to_invoke": "X"}}, "Collections": []})"),
      HasSubstr("unknown key \"Collections\""));
  EXPECT_THAT(
      refused(
          R"({"base_config": {"DebugRuleConfiguration": {"RuleParameters": {"rule_to_invoke": "X"}, "Volume": 1}}})"),
      HasSubstr("unknown key \"Volume\""));
  EXPECT_THAT(refused(R"({"DebugRuleConfiguration": {}})"), HasSubstr("the key \"rule\" is missing"));
  EXPECT_THAT(refused(R"({"base_config": {"CollectionConfigurations": []}})"),
              HasSubstr("the key \"DebugRuleConfiguration\" is missing"));
  EXPECT_THAT(refused(R"({"DebugRuleConfiguration": {"RuleParameters": {"rule_to_invoke": "X"}},
                          "CollectionConfigurations": [{"CollectionName": "w", "CollectionParameters": {"save": "1"}}]})"),
              HasSubstr("unknown key \"save\""));
}

TEST(ConfigTest, PackagedRulesThatSaveOneCollectionSaveWhatEitherDoes) {
  const Config config = Parsed(R"({"rules": [
      {"DebugRuleConfiguration": {"RuleParameters": {"rule_to_invoke": "vanishing_gradient"}}, "CollectionConfigurations":
          [{"CollectionName": "gradients", "CollectionParameters": {"save_interval": "500"}}]},
      {"DebugRuleConfiguration": {"RuleParameters": {"rule_to_invoke": "exploding_tensor"}}, "CollectionConfigurations":
          [{"CollectionName": "gradients", "CollectionParameters": {"save_interval": "100"}}]}]})");
  std::vector<Need> needs(2);
  for (size_t i = 0; i < 2; ++i) {
    needs[i].who = config.rules[i].rule;
    needs[i].collections = {"gradients"};
    needs[i].collections_to_save = config.rules[i].collections_to_save;
  }
  const auto plan = ResolvePlan(config, needs);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  const auto compiled = CompiledPlan::Compile(*plan);
  const TensorPlan gradient = compiled->Resolve({"gradient/w", "gradient", "", nullptr, 9});
  EXPECT_TRUE(compiled->DueGroups(1, 100) & gradient.raw_groups);
  EXPECT_FALSE(compiled->DueGroups(1, 99) & gradient.raw_groups);
  EXPECT_TRUE(gradient.summary_groups & 1) << "a rule judges statistics of every step";
}

Need ValuesOf(const char* collection, const char* rule) {
  Need need;
  need.collections = {collection};
  need.raw = true;
  need.who = rule;
  return need;
}

TEST(ResolveTest, CollectionsSavedWithARuleReplaceItsOwnValuesAndAddToTheUsers) {
  Need need = ValuesOf("weights", "slow");
  CollectionConfig saved;
  saved.name = "weights";
  saved.save["save_interval"] = "20";
  need.collections_to_save = {saved};
  Plan plan = Resolved("{}", {need});
  EXPECT_EQ(Find(plan, "weights").raw[1]->interval, 20);
  EXPECT_TRUE(
      std::ranges::none_of(plan.collections, [](const CollectionPlan& c) { return c.name == "rule:slow"; }));
  // Both entries count, whichever saves more.
  plan = Resolved(R"({"collections": {"weights": {"save_interval": 100, "save_steps": [3]}}})", {need});
  EXPECT_EQ(Find(plan, "weights").raw[1]->interval, 20);
  EXPECT_THAT(Find(plan, "weights").raw[1]->steps, ElementsAre(3));
  plan = Resolved(R"({"collections": {"weights": {"save_interval": 5, "histogram": true}}})", {need});
  EXPECT_EQ(Find(plan, "weights").raw[1]->interval, 5);
  // Several instances of a rule, each with its own.
  Need other = need;
  other.who = "fast";
  other.collections_to_save[0].save["save_interval"] = "4";
  EXPECT_EQ(Find(Resolved("{}", {need, other}), "weights").raw[1]->interval, 4);
  // A collection without values leaves the rule its own.
  need.collections_to_save[0].save.clear();
  plan = Resolved("{}", {need});
  EXPECT_EQ(Find(plan, "rule:slow").raw[1]->interval, 500);
  // One of the user's own making.
  need.collections_to_save[0].name = "mine";
  EXPECT_THAT(ResolvePlan({}, {need}).status().message(), HasSubstr("rule slow"));
  need.collections_to_save[0].include_regex = {"fc"};
  EXPECT_TRUE(Find(Resolved("{}", {need}), "mine").keep);
}

TEST(ResolveTest, ValuesOfSmallTensorsOnly) {
  Need need;
  need.collections = {"gradients"};
  need.raw_collections = {"gradients"};
  need.raw_max_elements = 255;
  need.raw_schedule.emplace().interval = 1;
  need.who = "x";
  auto plan = Plan::FromJson(Resolved("{}", {need}).ToJson());
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  const auto compiled = CompiledPlan::Compile(*plan);
  ASSERT_TRUE(compiled.ok());
  EXPECT_NE(compiled->Resolve({"g", "gradient", "", nullptr, 255}).raw_groups, 0u);
  EXPECT_EQ(compiled->Resolve({"g", "gradient", "", nullptr, 256}).raw_groups, 0u);
  EXPECT_EQ(compiled->Resolve({"g", "gradient", "", nullptr, 0}).raw_groups, 0u)
      << "a shape that varies may grow";
  EXPECT_EQ(compiled->Resolve({"w", "weight", "", nullptr, 8}).raw_groups, 0u);
}

TEST(ResolveTest, WhatAPlanCanNeverShowARuleIsSaid) {
  const Plan plan = Resolved(R"({"collections": {"biases": {"save_interval": 9}}})");
  Need need;
  need.collections = {"relu_output"};
  EXPECT_THAT(WhyNeverThere(need, plan), HasSubstr("keeps nothing of the collection relu_output"));
  need.collections = {"relu_output", "weights"};
  EXPECT_EQ(WhyNeverThere(need, plan), "") << "one of them is kept";
  EXPECT_THAT(WhyNeverThere(ValuesOf("weights", "x"), plan),
              HasSubstr("statistics of weights and no values"));
  EXPECT_EQ(WhyNeverThere(ValuesOf("biases", "x"), plan), "");
  EXPECT_EQ(WhyNeverThere(ValuesOf("losses", "x"), plan), "") << "numbers need no values";
  need.collections = {"relu_output"};
  EXPECT_EQ(WhyNeverThere(need, Resolved(R"({"collections": {"mine": {"include_regex": "x"}}})")), "")
      << "a pattern may match anything";
  need.tensor_regex = {"x"};
  EXPECT_EQ(WhyNeverThere(need, plan), "");
}

TEST(ResolveTest, ARuleForOutputsSwitchesTheirStatisticsOn) {
  const Need need{.collections = {"tanh_input"}, .who = "SaturatedActivation"};
  EXPECT_TRUE(Find(Resolved("{}", {need}), "tanh_input").keep);
}

}  // namespace
}  // namespace tdbg::plan
