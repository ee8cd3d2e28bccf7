// One NaN is one piece of news, whichever rules it trips: every built-in rule, beside the one that says where
// it was, over a run in which all that can be is not finite from some step on.
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/testing.h"
#include "plan/config.h"
#include "rules/details.h"
#include "rules/rule.h"
#include "tdbg/run.h"
#include "tdbg/trial.h"
#include "watch/replay.h"

namespace tdbg::scenarios {
namespace {

constexpr int64_t kSteps = 60, kFrom = 30, kEvalEvery = 10;
constexpr double kFinite = 0;  // that the run goes bad with: not at all

// With limits at which none of them finds anything in a run of kSteps that is finite; those that need a
// booster's tensors or a clock have nothing to judge in it.
std::vector<plan::RuleConfig> EveryRule() {
  const std::map<std::string, std::map<std::string, std::string>> parameters = {
      {"AllZero", {{"collection_names", "gradients,losses,weights"}}},
      {"CheckInputImages", {{"threshold_samples", "4"}, {"threshold_mean", "10"}}},
      {"ClassImbalance", {{"samples", "20"}, {"threshold_misprediction", "100"}}},
      {"Confusion", {{"category_no", "2"}, {"min_diag", "0"}, {"max_off_diag", "1"}}},
      {"LossNotDecreasing", {{"interval", "5"}}},
      {"NLPSequenceRatio", {{"tensor_regex", "ids_input"}}},
      {"Overtraining", {{"interval", "1"}, {"patience_train", "50"}, {"patience_validation", "50"}}},
      {"TensorVariance", {{"tensor_regex", "fc"}, {"max_threshold", "1e9"}, {"min_threshold", "0"}}},
      {"UnchangedTensor",
       {{"collection_names", "weights,gradients"}, {"interval", "2"}, {"equal_nan", "true"}}},
      {"WeightUpdateRatio", {{"interval", "5"}}},
      {"PoorWeightInitialization", {{"distribution_range", "1e-9"}, {"threshold", "1e9"}}},
  };
  std::vector<plan::RuleConfig> all;
  for (const rules::RuleInfo* rule : rules::BuiltinRules().All()) {
    if (rule->class_name == "SimilarAcrossRuns")
      continue;  // it needs another run, and compares what is finite
    plan::RuleConfig config;
    config.name = config.rule = rule->class_name;
    const auto found = parameters.find(rule->class_name);
    if (found != parameters.end()) config.parameters = found->second;
    all.push_back(config);
  }
  return all;
}

// `bad`: what everything of floating point is from step kFrom on.
void Train(const std::string& directory, const std::string& plan_json, double bad) {
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
    bool goes_bad;
  };
  std::vector<Kept> all;
  const auto define = [&](TensorSpec spec, auto value, bool in_evaluation) {
    spec.dtype = DType::kFloat32;
    std::vector<int64_t> shape = spec.shape;
    const bool goes_bad = spec.kind != "label";
    all.push_back({(*run)->Define(spec), std::move(shape), value, in_evaluation, goes_bad});
  };
  const auto moving = [](int64_t s, int64_t i) {
    return 0.1 * static_cast<double>(i + 1) + 0.01 * static_cast<double>(s);
  };
  const auto spread = [](int64_t s, int64_t i) { return static_cast<double>((s + i) % 5) - 1.5; };
  define({.name = "fc.weight", .kind = "weight", .shape = {4, 8}}, moving, false);
  define({.name = "gradient/fc.weight", .kind = "gradient", .shape = {4, 8}}, spread, false);
  define(
      {.name = "loss_output_0", .kind = "loss", .shape = {}},
      [](int64_t s, int64_t) { return 100.0 / static_cast<double>(s + 1); }, true);
  define(
      {.name = "relu_output_0", .kind = "output", .module_kind = "relu", .shape = {4, 2}, .unit_axis = 1},
      [](int64_t s, int64_t i) { return static_cast<double>((s + i) % 2); }, true);
  define({.name = "tanh_input_0", .kind = "input", .module_kind = "tanh", .shape = {4, 2}, .unit_axis = 1},
         spread, true);
  define({.name = "Net_input_0", .kind = "input", .shape = {2, 1, 8, 8}, .collections = {"model_input"}},
         spread, true);
  define(
      {.name = "labels", .kind = "label", .shape = {4}},
      [](int64_t, int64_t i) { return static_cast<double>(i % 2); }, true);
  define(
      {.name = "predictions", .kind = "prediction", .shape = {4}},
      [](int64_t, int64_t i) { return static_cast<double>(i % 2); }, true);
  for (int64_t s = 0; s < kSteps; ++s) {
    const bool evaluation = s % kEvalEvery == kEvalEvery - 1;
    (*run)->BeginStep(evaluation ? ModeKey::kEval : ModeKey::kTrain);
    for (const Kept& kept : all) {
      if ((evaluation && !kept.in_evaluation) || kept.id == Run::kNotWanted) continue;
      int64_t count = 1;
      for (const int64_t n : kept.shape) count *= n;
      std::vector<float> values;
      const bool is_bad = kept.goes_bad && s >= kFrom && bad != kFinite;
      for (int64_t i = 0; i < count; ++i)
        values.push_back(static_cast<float>(is_bad ? bad : kept.value(s, i)));
      (*run)->Put(kept.id, {values.data(), DType::kFloat32, kept.shape, {}});
    }
    (*run)->EndStep();
  }
  (*run)->End("completed");
}

std::vector<rules::RuleStatus> Judge(const std::vector<plan::RuleConfig>& rules, double bad) {
  base::ScratchDirectory scratch;
  const std::string run = scratch / "run";
  const auto engine = rules::Engine::Create(rules);
  EXPECT_TRUE(engine.ok()) << engine.status().ToString();
  if (!engine.ok()) return {};
  auto plan = plan::ResolvePlan({}, (*engine)->Needs());
  EXPECT_TRUE(plan.ok()) << plan.status().ToString();
  if (!plan.ok()) return {};
  plan->journal_bytes = 1u << 20;
  Train(run, plan->ToJson(), bad);
  auto trial = Trial::Open(run);
  EXPECT_TRUE(trial.ok()) << trial.status().ToString();
  if (!trial.ok()) return {};
  auto statuses = watch::Replay(**trial, rules, 1);
  EXPECT_TRUE(statuses.ok()) << statuses.status().ToString();
  return statuses.ok() ? *std::move(statuses) : std::vector<rules::RuleStatus>{};
}

TEST(NonfiniteTest, WhateverItTripsFollowsFromIt) {
  const std::vector<plan::RuleConfig> all = EveryRule();
  for (const rules::RuleStatus& status : Judge(all, kFinite))
    EXPECT_NE(status.state, rules::RuleState::kIssuesFound) << status.rule << ": " << status.details;
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    SCOPED_TRACE(bad);
    const std::vector<rules::RuleStatus> statuses = Judge(all, bad);
    const std::vector<int> causes = rules::CausesOf(statuses);
    std::set<std::string> tripped;
    for (size_t i = 0; i < statuses.size(); ++i) {
      if (statuses[i].state != rules::RuleState::kIssuesFound) continue;
      tripped.insert(statuses[i].rule);
      if (statuses[i].rule == "ExplodingTensor") continue;
      EXPECT_TRUE(causes[i] >= 0 && statuses[static_cast<size_t>(causes[i])].rule == "ExplodingTensor")
          << statuses[i].rule << " tells it as news: " << statuses[i].details;
    }
    for (const char* const rule : {"ExplodingTensor", "LossNotDecreasing", "SaturatedActivation"})
      EXPECT_TRUE(tripped.contains(rule)) << rule;
    std::string names;
    for (const std::string& rule : tripped) names += rule + " ";
    RecordProperty("tripped", names);
  }
}

}  // namespace
}  // namespace tdbg::scenarios
