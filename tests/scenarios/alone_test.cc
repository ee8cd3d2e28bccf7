// A rule judges as if it were the run's only one: what other rules made the run keep is none of its business.
// Every rule beside every other, over runs that keep exactly what the two asked for.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/testing.h"
#include "plan/config.h"
#include "tdbg/run.h"
#include "tdbg/trial.h"
#include "verdict_text.h"
#include "watch/replay.h"

namespace tdbg::scenarios {
namespace {

using Rules = std::vector<plan::RuleConfig>;

plan::RuleConfig Rule(const std::string& rule, std::map<std::string, std::string> parameters = {},
                      const std::string& name = "") {
  plan::RuleConfig config;
  config.rule = rule;
  config.parameters = std::move(parameters);
  config.name = name.empty() ? rule : name;
  return config;
}

// Each built-in rule, and of those that compare values some steps apart another with another distance.
Rules EveryRule() {
  return {Rule("VanishingGradient"),
          Rule("ExplodingTensor"),
          Rule("LossNotDecreasing", {{"interval", "10"}}),
          Rule("AllZero", {{"collection_names", "gradients"}}),
          Rule("TensorVariance", {{"tensor_regex", "fc"}, {"max_threshold", "1e9"}}),
          Rule("Overfit"),
          Rule("Overtraining", {{"interval", "5"}}),
          Rule("WeightUpdateRatio"),
          Rule("WeightUpdateRatio", {{"interval", "10"}}, "RatioAt10"),
          Rule("WeightUpdateRatio", {{"interval", "12"}, {"start_step", "3"}}, "RatioAt12"),
          Rule("UnchangedTensor", {{"collection_names", "weights"}}),
          Rule("UnchangedTensor", {{"collection_names", "weights,gradients"}, {"interval", "7"}}, "At7"),
          Rule("PoorWeightInitialization", {{"distribution_range", "0.001"}}),
          Rule("DeadRelu"),
          Rule("SaturatedActivation"),
          Rule("CheckInputImages", {{"threshold_samples", "8"}}),
          Rule("NLPSequenceRatio", {{"tensor_regex", "ids_input"}}),
          Rule("ClassImbalance", {{"samples", "20"}}),
          Rule("StalledTrainingRule"),
          Rule("Confusion"),
          Rule("FeatureImportanceOverweight"),
          Rule("TreeDepth"),
          Rule("CreateXgboostReport")};
}

// A training of forty steps with an evaluation in between, whose weights move only every fifth step.
void Train(const std::string& directory, const std::string& plan_json) {
  RunOptions options;
  options.directory = directory;
  options.plan_json = plan_json;
  auto run = Run::Open(options);
  ASSERT_TRUE(run.ok()) << run.status().ToString();
  struct Kept {
    Run::Id id;
    std::vector<int64_t> shape;
    double (*value)(int64_t step, int64_t i);
    bool in_evaluation;
  };
  std::vector<Kept> all;
  const auto define = [&](TensorSpec spec, auto value, bool in_evaluation) {
    spec.dtype = DType::kFloat32;
    std::vector<int64_t> shape = spec.shape;
    all.push_back({(*run)->Define(spec), std::move(shape), value, in_evaluation});
  };
  define(
      {.name = "fc.weight", .kind = "weight", .shape = {4, 8}},
      [](int64_t s, int64_t i) {
        return 0.1 * static_cast<double>(i + 1) + 0.01 * static_cast<double>(s / 5);
      },
      false);
  define(
      {.name = "out.weight", .kind = "weight", .shape = {4}},
      [](int64_t, int64_t i) { return static_cast<double>(i); }, false);
  define(
      {.name = "gradient/fc.weight", .kind = "gradient", .shape = {4, 8}},
      [](int64_t s, int64_t i) { return 1e-3 * static_cast<double>(i + s % 3); }, false);
  define(
      {.name = "gradient/out.weight", .kind = "gradient", .shape = {4}},
      [](int64_t, int64_t) { return 1e-9; }, false);
  define(
      {.name = "loss_output_0", .kind = "loss", .shape = {}},
      [](int64_t s, int64_t) { return 2 - 0.01 * static_cast<double>(s); }, true);
  define(
      {.name = "relu_output_0", .kind = "output", .module_kind = "relu", .shape = {4, 2}, .unit_axis = 1},
      [](int64_t, int64_t i) { return i % 2 == 0 ? 0.0 : 1.0; }, true);
  define(
      {.name = "tanh_input_0", .kind = "input", .module_kind = "tanh", .shape = {4, 2}, .unit_axis = 1},
      [](int64_t, int64_t) { return 20.0; }, true);
  define(
      {.name = "Net_input_0", .kind = "input", .shape = {2, 1, 8, 8}, .collections = {"model_input"}},
      [](int64_t, int64_t) { return 1.0; }, true);
  define(
      {.name = "labels", .kind = "label", .shape = {4}},
      [](int64_t s, int64_t i) { return static_cast<double>((s + i) % 7 == 0); }, true);
  define(
      {.name = "predictions", .kind = "prediction", .shape = {4}}, [](int64_t, int64_t) { return 0.0; },
      true);
  for (int64_t s = 0; s < 40; ++s) {
    const bool evaluation = s >= 20 && s < 24;
    (*run)->BeginStep(evaluation ? ModeKey::kEval : ModeKey::kTrain);
    for (const Kept& kept : all) {
      if (evaluation && !kept.in_evaluation) continue;
      if (kept.id == Run::kNotWanted) continue;
      int64_t count = 1;
      for (const int64_t n : kept.shape) count *= n;
      std::vector<float> values;
      for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(kept.value(s, i)));
      (*run)->Put(kept.id, {values.data(), DType::kFloat32, kept.shape, {}});
    }
    (*run)->EndStep();
  }
  (*run)->End("completed");
}

// What the rules say of a run that kept what they asked for, by their names.
std::map<std::string, std::string> Verdicts(const Rules& rules) {
  base::ScratchDirectory scratch;
  const std::string run = scratch / "run";
  std::map<std::string, std::string> verdicts;
  const auto engine = rules::Engine::Create(rules);
  EXPECT_TRUE(engine.ok()) << engine.status().ToString();
  if (!engine.ok()) return verdicts;
  auto plan = plan::ResolvePlan({}, (*engine)->Needs());
  EXPECT_TRUE(plan.ok()) << plan.status().ToString();
  if (!plan.ok()) return verdicts;
  plan->journal_bytes = 1u << 20;
  Train(run, plan->ToJson());
  auto trial = Trial::Open(run);
  EXPECT_TRUE(trial.ok()) << trial.status().ToString();
  if (!trial.ok()) return verdicts;
  const auto statuses = watch::Replay(**trial, rules, 1);
  EXPECT_TRUE(statuses.ok()) << statuses.status().ToString();
  if (!statuses.ok()) return verdicts;
  for (const rules::RuleStatus& status : *statuses) verdicts[status.name] = VerdictText({status});
  return verdicts;
}

TEST(AloneTest, ARuleJudgesAsIfItWereTheOnlyOne) {
  const Rules all = EveryRule();
  std::map<std::string, std::string> alone;
  size_t judged = 0;
  for (const plan::RuleConfig& rule : all) {
    alone[rule.name] = Verdicts({rule})[rule.name];
    judged += alone[rule.name].find("judged 0") == std::string::npos;
  }
  EXPECT_GE(judged, 14u) << "the run holds what most rules look at";
  EXPECT_NE(alone["WeightUpdateRatio"].find("judged 0"), std::string::npos) << alone["WeightUpdateRatio"];
  EXPECT_NE(alone["RatioAt10"].find("IssuesFound"), std::string::npos) << alone["RatioAt10"];
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t j = i + 1; j < all.size(); ++j) {
      const auto together = Verdicts({all[i], all[j]});
      for (const auto& [name, verdict] : together)
        EXPECT_EQ(verdict, alone[name]) << all[i].name << " beside " << all[j].name;
    }
  }
  for (const auto& [name, verdict] : Verdicts(all)) EXPECT_EQ(verdict, alone[name]) << "beside all others";
}

}  // namespace
}  // namespace tdbg::scenarios
