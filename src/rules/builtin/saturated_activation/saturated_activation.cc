// Layers of tanh or sigmoid of which most units lie where the function is flat. README.md beside this file.
#include <fmt/format.h>

#include <algorithm>

#include "rules/inactive_units.h"
#include "rules/judging.h"
#include "rules/parameter_specs.h"
#include "rules/rule.h"
#include "rules/selector.h"

namespace tdbg::rules {
namespace {

constexpr const char* kDocumented = ".*tanh_input|.*sigmoid_input";
constexpr double kNoBound = -std::numeric_limits<double>::infinity();

bool In(const TensorInfo& info, std::string_view collection) {
  return std::find(info.collections.begin(), info.collections.end(), collection) != info.collections.end();
}

bool Named(const TensorInfo& info, std::string_view lower, std::string_view capital) {
  return info.name.find(lower) != std::string::npos || info.name.find(capital) != std::string::npos;
}

/// Goes by the kind of the module that takes the tensor; runs of other tools lack kinds, and names decide.
Result<Statistic> InsideOf(const TensorInfo& info, const Statistic& tanh, const Statistic& sigmoid) {
  if (info.module_kind == "tanh" || In(info, "tanh_input")) return tanh;
  if (info.module_kind == "sigmoid" || In(info, "sigmoid_input")) return sigmoid;
  if (Named(info, "tanh", "Tanh")) return tanh;
  if (Named(info, "sigmoid", "Sigmoid")) return sigmoid;
  return InvalidArgument("neither its module nor its name says whether a tanh or a sigmoid takes it");
}

Result<Statistic> Inside(const Parameters& parameters, const std::string& function) {
  const std::string low = "threshold_" + function + "_min", high = "threshold_" + function + "_max";
  Statistic statistic{Statistic::Kind::kCountWithin, {parameters.Float(low), parameters.Float(high)}};
  if (statistic.parameters[0] < statistic.parameters[1]) return statistic;
  return InvalidArgument(fmt::format("parameter {}: {:g} is not below {} {:g}: every unit would be saturated",
                                     low, statistic.parameters[0], high, statistic.parameters[1]));
}

}  // namespace

void RegisterSaturatedActivation(RuleRegistry* registry) {
  RuleInfo info;
  info.class_name = "SaturatedActivation";
  info.snake_name = "saturated_activation";
  info.scope = "deep learning";
  info.summary = "Most units of a tanh or sigmoid layer lie where the function is flat.";
  info.parameters = InactiveUnits::LimitParameters(
      "A unit of which a smaller share of the inputs lies strictly between the bounds is saturated.",
      "A layer with a larger share of saturated units is a hit.");
  const auto bound = [](const char* name, const char* value, const char* help) {
    return NumberParameter(name, "float", value, kNoBound, "of the input", help);
  };
  info.parameters.insert(
      info.parameters.begin(),
      {DocumentedRegexParameter("tensor_regex", kDocumented,
                                "Inputs to inspect by name; the default means the collections tanh_input and "
                                "sigmoid_input."),
       bound("threshold_tanh_min", "-9.4999", "From here down a tanh is flat."),
       bound("threshold_tanh_max", "9.4999", "From here up a tanh is flat."),
       bound("threshold_sigmoid_min", "-23", "From here down a sigmoid is flat."),
       bound("threshold_sigmoid_max", "16.99999", "From here up a sigmoid is flat.")});
  registry->Add(std::move(info), [](const Parameters& parameters) -> Result<std::unique_ptr<Rule>> {
    TDBG_ASSIGN_OR_RETURN(const Statistic tanh, Inside(parameters, "tanh"));
    TDBG_ASSIGN_OR_RETURN(const Statistic sigmoid, Inside(parameters, "sigmoid"));
    TDBG_ASSIGN_OR_RETURN(Selector selector, Selector::MakeDocumented(parameters, "tensor_regex", kDocumented,
                                                                      {"tanh_input", "sigmoid_input"}));
    const plan::Need inspected = selector.Need();
    std::vector<plan::StatisticNeed> needs = {{{"tanh_input"}, {}, tanh}, {{"sigmoid_input"}, {}, sigmoid}};
    if (inspected.collections
            .empty()) {  // which of the two a name stands for is known only when the tensor is there
      needs = {{{}, inspected.tensor_regex, tanh}, {{}, inspected.tensor_regex, sigmoid}};
    }
    DerivedValues values(std::move(selector),
                         [=](const TensorInfo& tensor) { return InsideOf(tensor, tanh, sigmoid); });
    return MakeRule<InactiveUnits>(std::move(values), std::move(needs), InactiveUnits::LimitsOf(parameters),
                                   InactiveUnits::Words{"saturated_units_percent", "between the bounds",
                                                        "at least one tanh's or sigmoid's inputs"});
  });
}

}  // namespace tdbg::rules
