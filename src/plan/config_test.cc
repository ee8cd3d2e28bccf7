#include "plan/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tdbg::plan {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

Result<Config> Parse(const char* text) {
  const Source source{"debug.yaml",
                      [](const std::string& pointer) { return pointer.starts_with("/rules/0") ? 12 : 0; }};
  return ParseConfig(json::parse(text), source);
}
std::string Refusal(const char* text) {
  const auto config = Parse(text);
  EXPECT_FALSE(config.ok()) << text;
  return config.status().message();
}
Config Parsed(const char* text) {
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

TEST(ConfigTest, EveryKeyIsRead) {
  const Config c = Parsed(R"({
    "dir": "runs/a", "summaries": {"every": 10, "histograms": false}, "context": "False", "record_end": true,
    "step_by": "forward", "when_full": "block", "journal": {"size": "16MiB", "directory": "/tmp"},
    "budget": 1000, "stop_grace_seconds": "5", "on_issue": "exec:mail -s a,b me",
    "collections": {"weights": {"save_interval": 100, "train.save_steps": [1, 2], "raw": true, "histogram": false},
                    "mine": {"include_regex": ["a,b", "c"], "tensor_names": "x, y", "reductions": "abs_mean,max"}},
    "rules": ["ExplodingTensor", {"rule": "vanishing_gradient", "name": "v", "parameters": {"threshold": 1e-6,
              "on": true, "names": ["a", "b"]}, "on_issue": ["stop"]}]})");
  EXPECT_EQ(c.dir, "runs/a");
  EXPECT_EQ(c.summaries_every, 10);
  EXPECT_EQ(c.histograms, false);
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
  EXPECT_EQ(Refusal(R"({"rules": [{"rule": "A", "paramters": {}}]})"),
            "debug.yaml:12: rules[0]: unknown key \"paramters\"; did you mean \"parameters\"? "
            "Accepted: rule, rule_file, name, parameters, on_issue, limit_seconds, limit_start_seconds, "
            "limit_memory");
  EXPECT_THAT(Refusal(R"({"colections": {}})"),
              HasSubstr("debug.yaml: unknown key \"colections\"; did you mean \"collections\"?"));
  EXPECT_THAT(Refusal(R"({"summaries": {"every": "often"}})"),
              HasSubstr("summaries.every: found \"often\", expected an integer of at least 0"));
  EXPECT_THAT(Refusal(R"({"when_full": "blok"})"), HasSubstr("did you mean \"block\"?"));
  EXPECT_THAT(
      Refusal(R"({"collections": {"weights": {"save_intervall": 3}}})"),
      HasSubstr("collections.weights: unknown key \"save_intervall\"; did you mean \"save_interval\"?"));
  EXPECT_THAT(
      Refusal(R"({"collections": {"weights": {"save_interval": 0}}})"),
      HasSubstr("collections.weights.save_interval: found \"0\", expected an integer of at least 1 (steps)"));
  EXPECT_THAT(Refusal(R"({"collections": {"weights": {"reductions": "abs_l1"}}})"), HasSubstr("abs_l1_norm"));
  EXPECT_THAT(Refusal(R"({"on_issue": ["halt"]})"),
              HasSubstr("Accepted: stop, exec:COMMAND, webhook:URL, email:ADDRESS"));
  EXPECT_THAT(Refusal(R"({"journal": {"size": "12"}})"), HasSubstr("at least 1MiB"));
  EXPECT_THAT(Refusal(R"({"collections": [{"raw": true}]})"),
              HasSubstr("collections[0]: the key \"name\" is missing"));
  EXPECT_THAT(Refusal("[]"), HasSubstr("expected an object"));
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

TEST(ResolveTest, ARuleForOutputsSwitchesTheirStatisticsOn) {
  const Need need{.collections = {"tanh_input"}, .who = "SaturatedActivation"};
  EXPECT_TRUE(Find(Resolved("{}", {need}), "tanh_input").keep);
}

}  // namespace
}  // namespace tdbg::plan
