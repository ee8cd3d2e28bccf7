// A few features that decide nearly everything. README.md beside this file.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>

#include "base/stable_sort.h"
#include "base/text.h"
#include "rules/judging.h"
#include "rules/loss_values.h"
#include "rules/parameter_specs.h"
#include "rules/rule.h"
#include "rules/selector.h"
#include "rules/step_context.h"

namespace tdbg::rules {
namespace {

constexpr char kDefaultRegex[] = ".*feature_importance/weight";

class FeatureImportanceOverweight : public Rule {
 public:
  FeatureImportanceOverweight(Selector selector, double threshold, bool threshold_given, int64_t features)
      : importances_(std::move(selector)),
        threshold_(threshold),
        threshold_given_(threshold_given),
        features_(static_cast<size_t>(features)) {}

  plan::Need Needs() const override {
    plan::Need need = importances_.selector().Need();
    need.collections.push_back("feature_importance");
    return need;
  }

  Result<Judged> Invoke(const StepContext& step, std::vector<Finding>* findings) override {
    // "feature_importance/weight/f3" is of kind "feature_importance/weight".
    std::map<std::pair<WorkerIndex, std::string>, std::vector<LossValue>> kinds;
    for (const LossValue& importance : importances_.Read(step)) {
      const std::string& name = step.tensor(importance.tensor).name;
      kinds[{importance.worker, name.substr(0, name.rfind('/'))}].push_back(importance);
    }
    bool judged = false;
    for (auto& [key, values] : kinds) {
      const double total = std::accumulate(values.begin(), values.end(), 0.0,
                                           [](double sum, const LossValue& v) { return sum + v.value; });
      if (!std::isfinite(total) || total <= 0) continue;
      judged = true;
      // All of several features hold all of the importance, whatever they are worth. A single one that has
      // any is what the rule looks for.
      const size_t shown = std::min(features_, std::max<size_t>(values.size() - 1, 1));
      base::StableSort(&values, [](const LossValue& a, const LossValue& b) { return a.value > b.value; });
      double sum = 0;
      std::string which;
      for (size_t i = 0; i < shown; ++i) {
        sum += values[i].value;
        const std::string& name = step.tensor(values[i].tensor).name;
        which += fmt::format("{}{} {:g}", i ? ", " : "", name.substr(name.rfind('/') + 1), values[i].value);
      }
      // Of few features the largest hold much even if all are worth the same: without a threshold of the
      // user's half of the way from there to all of it is asked for at least.
      const double equal = static_cast<double>(shown) / static_cast<double>(values.size());
      const double threshold =
          values.size() == 1 ? threshold_ : std::max(threshold_, threshold_given_ ? equal : (1 + equal) / 2);
      if (!(sum / total > threshold)) continue;
      Finding finding = FindingAt(step, values[0].tensor, key.first);
      finding.measure = "share_of_largest";
      finding.value = sum / total;
      finding.comparison = ">";
      finding.threshold = threshold;
      finding.text = fmt::format("{} of {}: {}", shown, base::Counted(values.size(), "feature"),
                                 which);  // the largest first
      findings->push_back(std::move(finding));
    }
    return JudgedOf(step, judged, *findings);
  }

  std::string WouldHaveNeeded() const override {
    return "importances of features: tensors " + importances_.selector().Describe();
  }

 private:
  LossReader importances_;  // one number per feature and step, as losses are
  double threshold_;
  bool threshold_given_;
  size_t features_;
};

}  // namespace

void RegisterFeatureImportanceOverweight(RuleRegistry* registry) {
  RuleInfo info;
  info.class_name = "FeatureImportanceOverweight";
  info.snake_name = "feature_importance_overweight";
  info.scope = "xgboost";
  info.summary = "A few features hold nearly all of the importance.";
  ParameterSpec regex = TensorRegexParameter("The importances, by name.");
  regex.default_value = kDefaultRegex;
  ParameterSpec threshold = NumberParameter("threshold", "float", "0.8", 0, "share of the kind's total",
                                            "A larger share of the largest importances is a hit.");
  threshold.maximum = 1;
  info.parameters = {
      threshold,
      NumberParameter("nfeatures", "int", "3", 1, "features", "So many of the largest are added up."),
      regex,
  };
  registry->Add(std::move(info), [](const Parameters& parameters) -> Result<std::unique_ptr<Rule>> {
    TDBG_ASSIGN_OR_RETURN(Selector selector, Selector::Make({}, parameters.List("tensor_regex")));
    return MakeRule<FeatureImportanceOverweight>(std::move(selector), parameters.Float("threshold"),
                                                 parameters.IsGiven("threshold"),
                                                 parameters.Int("nfeatures"));
  });
}

}  // namespace tdbg::rules
