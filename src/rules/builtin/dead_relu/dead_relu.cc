// Layers of which most ReLUs put out nothing but zeros. README.md beside this file.
#include "rules/inactive_units.h"
#include "rules/judging.h"
#include "rules/rule.h"
#include "rules/selector.h"

namespace tdbg::rules {
namespace {

constexpr const char* kDocumented = ".*relu_output|.*ReLU_output";

}  // namespace

void RegisterDeadRelu(RuleRegistry* registry) {
  RuleInfo info;
  info.class_name = "DeadRelu";
  info.snake_name = "dead_relu";
  info.scope = "deep learning";
  info.summary = "Most units of a ReLU layer are never above zero.";
  info.parameters =
      InactiveUnits::LimitParameters("A unit that is above zero in a smaller share of its outputs is dead.",
                                     "A layer with a larger share of dead units is a hit.");
  info.parameters.insert(
      info.parameters.begin(),
      DocumentedRegexParameter("tensor_regex", kDocumented,
                               "Outputs to inspect by name; the default means the collection "
                               "relu_output."));
  registry->Add(std::move(info), [](const Parameters& parameters) -> Result<std::unique_ptr<Rule>> {
    TDBG_ASSIGN_OR_RETURN(Selector selector,
                          Selector::MakeDocumented(parameters, "tensor_regex", kDocumented, {"relu_output"}));
    const Statistic above_zero{Statistic::Kind::kCountAbove, {0}};
    const plan::Need inspected = selector.Need();
    return MakeRule<InactiveUnits>(
        DerivedValues(std::move(selector), [above_zero](const TensorInfo&) { return above_zero; }),
        std::vector<plan::StatisticNeed>{{inspected.collections, inspected.tensor_regex, above_zero}},
        InactiveUnits::LimitsOf(parameters),
        InactiveUnits::Words{"dead_units_percent", "above 0", "at least one ReLU's outputs"});
  });
}

}  // namespace tdbg::rules
