#include "rules/inactive_units.h"

#include <fmt/format.h>

#include "base/text.h"
#include "rules/judging.h"
#include "rules/parameter_specs.h"
#include "rules/state_values.h"

namespace tdbg::rules {

InactiveUnits::InactiveUnits(DerivedValues values, std::vector<plan::StatisticNeed> needs,
                             const Limits& limits, Words words)
    : values_(std::move(values)), needs_(std::move(needs)), limits_(limits), words_(std::move(words)) {}

plan::Need InactiveUnits::Needs() const {
  plan::Need need;
  need.statistics = needs_;
  return need;
}

Result<Judged> InactiveUnits::Invoke(const StepContext& step, std::vector<Finding>* findings) {
  bool judged = false;
  const bool readable = values_.ForEach(
      step, [&](TensorIndex tensor, WorkerIndex worker, uint16_t sub, const StatisticValue& value) {
        if (value.elements == 0 || value.values.empty())
          return;  // of no elements, none is counted and none is not
        judged = true;
        // Multiplied before they are compared: 1 of 100 is then exactly 1 %.
        const double least = limits_.inactivity_percent * static_cast<double>(value.elements);
        size_t inactive = 0;
        for (const double count : value.values) inactive += 100.0 * count < least;
        const auto units = static_cast<double>(value.values.size());
        const double percent = 100.0 * static_cast<double>(inactive) / units;
        if (!(percent > limits_.layer_percent)) return;
        Finding finding = FindingAt(step, tensor, worker);
        finding.measure = words_.measure;
        finding.value = percent;
        finding.comparison = ">";
        finding.threshold = limits_.layer_percent;
        finding.text = fmt::format("{} of {} {} in less than {:g} % of {} each", inactive,
                                   base::Counted(value.values.size(), "unit is", "units are"), words_.counted,
                                   limits_.inactivity_percent, base::Counted(value.elements, "element"));
        if (sub != 0) finding.text += ", " + MicroStepText(sub);
        findings->push_back(std::move(finding));
      });
  if (!findings->empty()) return Judged::kJudged;
  if (!readable || step.statistics_incomplete()) return Judged::kIncomplete;
  return judged ? Judged::kJudged : Judged::kNotDue;
}

Result<Judged> InactiveUnits::AtEnd(const StepContext& last, std::vector<Finding>* findings) {
  (void)findings;
  TDBG_RETURN_IF_ERROR(values_.AllHadValues(last));
  return Judged::kNotDue;
}

std::string InactiveUnits::WouldHaveNeeded() const {
  std::string ids;
  for (const plan::StatisticNeed& need : needs_) ids += (ids.empty() ? "" : " or ") + need.statistic.Id();
  return fmt::format("{}, or raw values, of {} ({})", ids, words_.inspects, values_.inspected().Describe());
}

std::vector<ParameterSpec> InactiveUnits::LimitParameters(std::string inactivity_help,
                                                          std::string layer_help) {
  std::vector<ParameterSpec> specs = {
      NumberParameter("threshold_inactivity", "float", "1.0", 0, "percent", std::move(inactivity_help)),
      NumberParameter("threshold_layer", "float", "50.0", 0, "percent", std::move(layer_help)),
  };
  for (ParameterSpec& spec : specs) spec.maximum = 100;
  return specs;
}

InactiveUnits::Limits InactiveUnits::LimitsOf(const Parameters& parameters) {
  return {parameters.Float("threshold_inactivity"), parameters.Float("threshold_layer")};
}

}  // namespace tdbg::rules
