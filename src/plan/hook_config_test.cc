#include "plan/hook_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tdbg::plan {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int kTrain = 1, kEval = 2, kPredict = 3, kGlobal = 4;

struct Read {
  HookConfig hook;
  std::vector<std::string> warnings;
};
Read Parsed(const char* text, const char* framework = "pytorch") {
  Read read;
  auto hook = ParseSmdebugConfig(json::parse(text), {"hook.json"}, framework, &read.warnings);
  EXPECT_TRUE(hook.ok()) << hook.status().ToString();
  if (hook.ok()) read.hook = *hook;
  return read;
}
std::string Refusal(const char* text) {
  std::vector<std::string> warnings;
  const auto hook = ParseSmdebugConfig(json::parse(text), {"hook.json"}, "pytorch", &warnings);
  EXPECT_FALSE(hook.ok()) << text;
  return hook.status().message();
}
Plan Planned(const HookConfig& hook, Plan plan = EmptyPlan()) {
  const Status status = ApplyHook(hook, &plan);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return plan;
}
TensorPlan Of(const Plan& plan, std::string_view name, std::string_view kind = {}) {
  const auto compiled = CompiledPlan::Compile(plan);
  return compiled->Resolve({name, kind, {}, nullptr, 1000});
}
/// Steps below `end` at which the tensor's values are saved.
std::vector<int64_t> Saved(const Plan& plan, std::string_view name, int mode = kTrain, int64_t end = 2001) {
  const auto compiled = CompiledPlan::Compile(plan);
  const TensorPlan tensor = compiled->Resolve({name, {}, {}, nullptr, 1000});
  std::vector<int64_t> steps;
  for (int64_t s = 0; s < end; ++s) {
    if (tensor.raw_groups & compiled->DueGroups(mode, s)) steps.push_back(s);
  }
  return steps;
}

TEST(HookConfigTest, NothingConfiguredSavesLossesEvery500Steps) {
  const Plan plan = Planned(Parsed("{}").hook);
  EXPECT_THAT(Saved(plan, "CrossEntropyLoss_output_0"), ElementsAre(0, 500, 1000, 1500, 2000));
  EXPECT_THAT(Saved(plan, "CrossEntropyLoss_output_0", kEval), ElementsAre(0, 500, 1000, 1500, 2000));
  EXPECT_THAT(Saved(plan, "Net_fc.weight"), IsEmpty());
  EXPECT_EQ(plan.step_by, "forward");
  EXPECT_EQ(plan.include_workers, 0);
  EXPECT_FALSE(plan.empty_steps);
}

TEST(HookConfigTest, TheFilePlacedInAContainer) {
  const Read read =
      Parsed(R"({"S3OutputPath": "s3://bucket/job/debug-output", "LocalPath": "/opt/ml/output/tensors",
      "HookParameters": null, "CollectionConfigurations": null})");
  EXPECT_THAT(read.warnings, IsEmpty());
  EXPECT_EQ(read.hook.out_dir, "/opt/ml/output/tensors");
  EXPECT_THAT(read.hook.include_collections, ElementsAre("losses"));
}

TEST(HookConfigTest, CollectionsOfAJobWithRules) {
  const Plan plan = Planned(Parsed(R"({"S3OutputPath": "s3://b/j", "CollectionConfigurations": [
      {"CollectionName": "gradients", "CollectionParameters": {"save_interval": "500"}},
      {"CollectionName": "losses", "CollectionParameters": {"save_interval": "250"}},
      {"CollectionName": "relu_output", "CollectionParameters": {"include_regex": ".*relu_output", "save_interval": "1000"}},
      {"CollectionName": "biases"}]})")
                                .hook);
  EXPECT_THAT(Saved(plan, "gradient/Net_fc.weight"), ElementsAre(0, 500, 1000, 1500, 2000));
  EXPECT_THAT(Saved(plan, "gradient/Net_fc.weight", kEval), IsEmpty());
  EXPECT_THAT(Saved(plan, "gradient/Net_fc.weight", kGlobal), ElementsAre(0, 500, 1000, 1500, 2000));
  EXPECT_EQ(Saved(plan, "MSELoss_output_0").size(), 9u);
  EXPECT_THAT(Saved(plan, "relu_output_0"), ElementsAre(0, 1000, 2000));
  EXPECT_THAT(Saved(plan, "Net_fc.bias"), ElementsAre(0, 500, 1000, 1500, 2000));
}

// Lowest to highest: default, hook, hook's mode, collection, collection's mode.
TEST(HookConfigTest, ACollectionsOwnIntervalWinsEvenOverTheHooksForAMode) {
  const Plan plan =
      Planned(Parsed(R"({"HookParameters": {"save_interval": "100", "train.save_interval": "200",
        "eval.save_interval": 300, "save_all": "False", "start_step": "0", "end_step": "2000"},
      "CollectionConfigurations": [
        {"CollectionName": "weights", "CollectionParameters": {"save_interval": "400", "eval.save_interval": "1000"}},
        {"CollectionName": "biases", "CollectionParameters": null}]})")
                  .hook);
  EXPECT_THAT(Saved(plan, "Net_fc.weight"), ElementsAre(0, 400, 800, 1200, 1600));
  EXPECT_THAT(Saved(plan, "Net_fc.weight", kEval), ElementsAre(0, 1000));
  EXPECT_EQ(Saved(plan, "Net_fc.bias").size(), 10u);
  EXPECT_EQ(Saved(plan, "Net_fc.bias", kEval).size(), 7u);
  EXPECT_EQ(Saved(plan, "Net_fc.bias", kPredict).size(), 20u);
}

TEST(HookConfigTest, SaveStepsAreAUnionWithTheInterval) {
  const Plan plan = Planned(
      Parsed(R"({"HookParameters": {"save_interval": "7", "save_steps": "0,1,2,3"}})", "xgboost").hook);
  EXPECT_THAT(Saved(plan, "train-rmse", kGlobal, 20), ElementsAre(0, 1, 2, 3, 7, 14));
  const Plan off = Planned(Parsed(R"({"CollectionConfigurations": [{"CollectionName": "weights",
      "CollectionParameters": {"save_steps": [3], "end_step": 0}}]})")
                               .hook);
  EXPECT_THAT(Saved(off, "Net_fc.weight"), ElementsAre(3));
}

// smdebug: 500 for a collection that is named in JSON, 10 for the others (specification, 2.3).
TEST(HookConfigTest, XgBoostSavesEvery10RoundsNamedOrNot) {
  const Plan plan = Planned(
      Parsed(R"({"CollectionConfigurations": [{"CollectionName": "feature_importance"}]})", "xgboost").hook);
  EXPECT_THAT(Saved(plan, "feature_importance/gain/f1", kGlobal, 21), ElementsAre(0, 10, 20));
  EXPECT_THAT(Saved(plan, "validation_0-rmse", kGlobal, 21), ElementsAre(0, 10, 20));
  EXPECT_THAT(Of(plan, "average_shap/bias").collections, IsEmpty());
  EXPECT_THAT(Of(plan, "average_shap/alpha").collections,
              ElementsAre("average_shap"));  // its regex drops these
}

TEST(HookConfigTest, ReductionsAreStatisticsAtTheSavedSteps) {
  const Plan plan = Planned(Parsed(R"({"HookParameters": {"save_interval": 10, "reductions": "mean, abs_l1"},
      "CollectionConfigurations": [{"CollectionName": "weights"},
        {"CollectionName": "biases", "CollectionParameters": {"reductions": "max", "save_raw_tensor": true}},
        {"CollectionName": "gradients", "CollectionParameters": {"reductions": "prod"}}]})")
                                .hook);
  const TensorPlan weight = Of(plan, "Net_fc.weight");
  EXPECT_EQ(weight.raw_groups, 0u);
  EXPECT_NE(weight.summary_groups, 0u);
  EXPECT_EQ(weight.summary_groups & 1, 0u);  // not at summaries_every
  const TensorPlan bias = Of(plan, "Net_fc.bias");
  EXPECT_NE(bias.raw_groups, 0u);
  EXPECT_EQ(bias.summary_groups, bias.raw_groups);
  EXPECT_NE(Of(plan, "gradient/Net_fc.weight").raw_groups, 0u) << "no statistic holds a product";
  const TensorPlan loss = Of(plan, "MSELoss_output_0");
  EXPECT_NE(loss.raw_groups, 0u) << "losses are never reduced";
  EXPECT_EQ(loss.summary_groups, 0u);
}

TEST(HookConfigTest, SaveAllRegexAndTheCollectionAll) {
  EXPECT_EQ(Saved(Planned(Parsed(R"({"HookParameters": {"save_all": "true"}})").hook), "anything").size(),
            5u);
  const Plan regex = Planned(Parsed(R"({"HookParameters": {"include_regex": "fc1, relu_[12]"}})").hook);
  EXPECT_EQ(Saved(regex, "fc1_output_0").size(), 5u);
  EXPECT_EQ(Saved(regex, "relu_2_output_0").size(), 5u);
  EXPECT_THAT(Saved(regex, "fc2_output_0"), IsEmpty());
  // Including `all` saves what is in any collection, and puts nothing into itself.
  const Plan all = Planned(Parsed(R"({"CollectionConfigurations": [{"CollectionName": "all"}]})").hook);
  EXPECT_EQ(Saved(all, "Net_fc.weight").size(), 5u);
  EXPECT_THAT(Saved(all, "fc_output_0"), IsEmpty());
}

TEST(HookConfigTest, UnknownKeysAreOneWarning) {
  const Read read =
      Parsed(R"({"LocalPath": "/tmp/x", "Comment": 1, "HookParameters": {"key": "value", "train.foo": "1"},
      "CollectionConfigurations": [{"CollectionName": "weights", "CollectionParameters": {"parameter": "value"}}]})");
  ASSERT_EQ(read.warnings.size(), 1u);
  EXPECT_THAT(read.warnings[0], HasSubstr("Comment, HookParameters.key, HookParameters.train.foo, "
                                          "CollectionConfigurations[0].CollectionParameters.parameter"));
}

TEST(HookConfigTest, TheSameCollectionTwiceSavesWhatSavesMore) {
  for (const char* text : {R"({"CollectionConfigurations": [
        {"CollectionName": "losses", "CollectionParameters": {"save_interval": "500"}},
        {"CollectionName": "losses", "CollectionParameters": {"save_interval": "5", "include_regex": "extra"}}]})",
                           R"({"CollectionConfigurations": [
        {"CollectionName": "losses", "CollectionParameters": {"save_interval": "5", "include_regex": "extra"}},
        {"CollectionName": "losses", "CollectionParameters": {"save_interval": "500"}}]})"}) {
    const Read read = Parsed(text);
    const Plan plan = Planned(read.hook);
    EXPECT_EQ(Saved(plan, "MSELoss_output_0").size(), 401u);
    EXPECT_EQ(Saved(plan, "extra").size(), 401u);
    ASSERT_EQ(read.warnings.size(), 1u);
    EXPECT_THAT(read.warnings[0], HasSubstr("twice"));
  }
}

TEST(HookConfigTest, OfTheSameCollectionTwiceAListStaysAndWhatIsSwitchedOffTakesNothing) {
  const std::string off = R"({"CollectionName": "losses", "CollectionParameters":
                              {"save_interval": "1", "end_step": "0", "save_steps": "3"}})";
  const std::string on = R"({"CollectionName": "losses", "CollectionParameters": {"save_interval": "1000"}})";
  for (const std::string& both : {off + "," + on, on + "," + off}) {
    const std::string text = R"({"CollectionConfigurations": [)" + both + "]}";
    EXPECT_THAT(Saved(Planned(Parsed(text.c_str()).hook), "MSELoss_output_0"), ElementsAre(0, 3, 1000, 2000))
        << both;
  }
}

TEST(HookConfigTest, WhatMeansNothingIsRefusedByName) {
  EXPECT_THAT(Refusal(R"({"HookParameters": {"save_interval": "ten"}})"),
              HasSubstr("HookParameters.save_interval"));
  EXPECT_THAT(Refusal(R"({"HookParameters": {"save_interval": 0}})"), HasSubstr("at least 1"));
  EXPECT_THAT(Refusal(R"({"HookParameters": {"save_steps": "1,x"}})"), HasSubstr("0,10,500"));
  EXPECT_THAT(Refusal(R"({"HookParameters": {"save_all": "maybe"}})"), HasSubstr("true or false"));
  EXPECT_THAT(Refusal(R"({"HookParameters": {"reductions": "median"}})"),
              HasSubstr("unknown reduction \"median\""));
  EXPECT_THAT(Refusal(R"({"HookParameters": [1]})"), HasSubstr("expected an object"));
  EXPECT_THAT(Refusal(R"({"CollectionConfigurations": [{"CollectionParameters": {}}]})"),
              HasSubstr("CollectionName"));
  EXPECT_THAT(Refusal(R"({"CollectionConfigurations": {"losses": {}}})"), HasSubstr("expected a list"));
  EXPECT_THAT(Refusal("[]"), HasSubstr("expected a JSON object"));
  Plan plan = EmptyPlan();
  EXPECT_THAT(ApplyHook(Parsed(R"({"CollectionConfigurations": [{"CollectionName": "mine"}]})").hook, &plan)
                  .message(),
              HasSubstr("\"mine\" has neither"));
  plan = EmptyPlan();
  EXPECT_THAT(ApplyHook(Parsed(R"({"HookParameters": {"include_regex": "("}})").hook, &plan).message(),
              HasSubstr("\"default\": include_regex"));
  EXPECT_THAT(DefaultHook("torch").status().message(), HasSubstr("pytorch"));
}

TEST(HookConfigTest, AHookSurvivesJson) {
  const HookConfig hook =
      Parsed(R"({"LocalPath": "/tmp/x", "HookParameters": {"save_interval": "10", "end_step": 100,
      "reductions": "mean", "include_workers": "all", "export_tensorboard": "True", "tensorboard_dir": "/tmp/tb"},
      "CollectionConfigurations": [{"CollectionName": "mine", "CollectionParameters": {"include_regex": "a,b",
      "train.save_steps": "1,2", "save_histogram": "false"}}]})")
          .hook;
  const json written = HookToJson(hook);
  const auto again = HookFromJson(written.dump());
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_EQ(HookToJson(*again), written);
  EXPECT_EQ(written["save_config"]["TRAIN"],
            json::parse(R"({"save_interval": 10, "start_step": 0, "end_step": 100, "save_steps": []})"));
  EXPECT_EQ(Planned(*again).ToJson(), Planned(hook).ToJson());
  EXPECT_THAT(HookFromJson(R"({"framework": "pytorch", "colections": []})").status().message(),
              HasSubstr("did you mean \"collections\""));
}

TEST(HookConfigTest, APlanWithASchedulePerModeSurvivesItsFile) {
  const Plan plan =
      Planned(Parsed(R"({"HookParameters": {"reductions": "mean", "eval.save_interval": 3}})").hook);
  const auto again = Plan::FromJson(plan.ToJson());
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->ToJson(), plan.ToJson());
  EXPECT_FALSE(again->empty_steps);
}

// A script with a hook, under `tdbg run --rule`: what the launcher asked for stays, the hook's comes on top.
TEST(HookConfigTest, OnTopOfALaunchersPlanNothingOfItIsLost) {
  const Plan plan = Planned(Parsed(R"({"HookParameters": {"save_interval": 10},
      "CollectionConfigurations": [{"CollectionName": "gradients"}]})")
                                .hook,
                            Plan::Default());
  const TensorPlan gradient = Of(plan, "gradient/Net_fc.weight", "gradient");
  EXPECT_EQ(gradient.summary_groups & 1, 1u);
  EXPECT_NE(gradient.raw_groups, 0u);
  EXPECT_EQ(Of(plan, "Net_fc.weight", "weight").raw_groups, 0u);
}

TEST(HookConfigTest, TensorFlowsCollectionsHoldWhatATensorIs) {
  HookConfig hook = *DefaultHook("tensorflow");
  hook.include_collections = {"gradients", "outputs"};
  const Plan plan = Planned(hook);
  EXPECT_NE(Of(plan, "gradients/hidden/kernelGrad", "gradient").raw_groups, 0u);
  for (const char* kind : {"output", "prediction", "label"})
    EXPECT_NE(Of(plan, "x", kind).raw_groups, 0u) << kind;
  EXPECT_EQ(Of(plan, "hidden/weights/hidden/kernel:0", "weight").raw_groups, 0u);
  EXPECT_EQ(Of(plan, "inputs", "input").raw_groups, 0u);
  // Others go by names, whatever a tensor is.
  HookConfig pytorch = *DefaultHook("pytorch");
  pytorch.include_collections = {"gradients"};
  EXPECT_EQ(Of(Planned(pytorch), "Net_fc.weight", "gradient").raw_groups, 0u);
}

TEST(HookConfigTest, AsAConfigurationOfTheCommandLine) {
  const auto config = ParseConfig(json::parse(R"({"LocalPath": "/tmp/x", "Other": 1,
      "CollectionConfigurations": [{"CollectionName": "weights"}]})"),
                                  {"hook.json"});
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->dir, "/tmp/x");
  EXPECT_EQ(config->warnings.size(), 1u);
  const auto plan = ResolvePlan(*config, {});
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(Of(*plan, "Net_fc.weight", "weight").summary_groups, 0u);
  EXPECT_EQ(Saved(*plan, "Net_fc.weight").size(), 5u);
  EXPECT_FALSE(plan->context);
  // A rule that is asked for gets its statistics at every step all the same.
  Need need;
  need.who = "r";
  need.collections = {"gradients"};
  const auto judged = ResolvePlan(*config, {need});
  ASSERT_TRUE(judged.ok()) << judged.status().ToString();
  EXPECT_EQ(Of(*judged, "gradient/Net_fc.weight", "gradient").summary_groups & 1, 1u);
  EXPECT_THAT(ParseConfig(json::parse(R"({"HookParameters": {}, "rules": []})"), {"x"}).status().message(),
              HasSubstr("\"rules\" is tdbg's"));
}

TEST(HookConfigTest, RulesInAHooksFileAreRefusedBecauseNothingWouldJudge) {
  for (const char* key : {"rules", "on_issue", "DebugRuleConfigurations"}) {
    std::vector<std::string> warnings;
    const json document = {{"HookParameters", json::object()}, {key, json::array()}};
    const auto hook = ParseSmdebugConfig(document, {"h.json"}, "", &warnings);
    EXPECT_THAT(hook.status().message(), HasSubstr(std::string("h.json: \"") + key + "\""));
    EXPECT_THAT(hook.status().message(), HasSubstr("tdbg run --config FILE"));
  }
}

}  // namespace
}  // namespace tdbg::plan
