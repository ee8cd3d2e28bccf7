// Every built-in rule, in the order in which `tdbg rules` lists them. docs/adding-a-rule.md.
#include "rules/rule.h"

namespace tdbg::rules {

// A rule is a folder and its line here. The names are those of smdebug's and SageMaker's configurations.
#define TDBG_BUILTIN_RULES(RULE)    \
  RULE(VanishingGradient)           \
  RULE(ExplodingTensor)             \
  RULE(LossNotDecreasing)           \
  RULE(AllZero)                     \
  RULE(TensorVariance)              \
  RULE(Overfit)                     \
  RULE(Overtraining)                \
  RULE(WeightUpdateRatio)           \
  RULE(UnchangedTensor)             \
  RULE(PoorWeightInitialization)    \
  RULE(DeadRelu)                    \
  RULE(SaturatedActivation)         \
  RULE(CheckInputImages)            \
  RULE(NLPSequenceRatio)            \
  RULE(ClassImbalance)              \
  RULE(SimilarAcrossRuns)           \
  RULE(StalledTrainingRule)         \
  RULE(Confusion)                   \
  RULE(FeatureImportanceOverweight) \
  RULE(TreeDepth)                   \
  RULE(CreateXgboostReport)         \
  RULE(Profile)

#define TDBG_DECLARE(name) void Register##name(RuleRegistry* registry);
TDBG_BUILTIN_RULES(TDBG_DECLARE)

const RuleRegistry& BuiltinRules() {
  static const RuleRegistry* const registry = [] {
    auto* const all = new RuleRegistry;
#define TDBG_REGISTER(name) Register##name(all);
    TDBG_BUILTIN_RULES(TDBG_REGISTER)
    return all;
  }();
  return *registry;
}

}  // namespace tdbg::rules
