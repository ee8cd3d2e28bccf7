// Layers of which too many units do nothing: what DeadRelu and SaturatedActivation have in common.
#pragma once

#include <string>
#include <vector>

#include "rules/derived_values.h"
#include "rules/rule.h"

namespace tdbg::rules {

/// A unit is inactive if its statistic counts a share of its elements below `inactivity`. A layer is a
/// finding if more than `layer` of its units are inactive. Judged at every step at which an inspected tensor
/// has values.
class InactiveUnits : public Rule {
 public:
  struct Words {
    std::string measure;   ///< "dead_units_percent"
    std::string counted;   ///< what is counted: "above 0"; by statistic if there are several
    std::string inspects;  ///< for WouldHaveNeeded: "outputs of a ReLU"
  };
  struct Limits {
    double inactivity_percent = 1;
    double layer_percent = 50;
  };

  InactiveUnits(DerivedValues values, std::vector<plan::StatisticNeed> needs, const Limits& limits,
                Words words);

  plan::Need Needs() const override;
  Result<Judged> Invoke(const StepContext& step, std::vector<Finding>* findings) override;
  Result<Judged> AtEnd(const StepContext& last, std::vector<Finding>* findings) override;
  std::string WouldHaveNeeded() const override;

  /// threshold_inactivity and threshold_layer.
  static std::vector<ParameterSpec> LimitParameters(std::string inactivity_help, std::string layer_help);
  static Limits LimitsOf(const Parameters& parameters);

 private:
  DerivedValues values_;
  std::vector<plan::StatisticNeed> needs_;
  Limits limits_;
  Words words_;
};

}  // namespace tdbg::rules
