#include "rules/running_rule.h"

#include <fmt/format.h>

#include "base/text.h"
#include "rules/details.h"
#include "trial/columns.h"

namespace tdbg::rules {

bool Running::NeededSomethingHidden(const StepContext& context) {
  bool found = false;
  if (context.hidden_rows().empty()) return false;
  needed.Update(context);
  for (const StepContext::HiddenRow& row : context.hidden_rows()) {
    if (!needed.contains(row.tensor)) continue;
    found = true;
    unknown |= row.unknown;
    if (unknown_of.empty()) unknown_of = context.tensor(row.tensor).name;
  }
  return found;
}

std::string Running::Incomplete(const RuleStatus& status, const std::vector<DroppedInfo>& dropped,
                                const std::vector<std::string>& damage) const {
  const bool raw = rule->Needs().raw;
  std::string text;
  if (status.steps_incomplete > 0) {
    text += fmt::format("{} of {} lacked {}; ", status.steps_incomplete,
                        base::Counted(status.steps_incomplete + status.steps_judged, "step"),
                        raw ? "values" : "statistics");
  }
  if (unknown != 0) {
    text += fmt::format("{} cannot be known from the reductions that were saved of {}; ",
                        columns::Names(unknown), unknown_of);
  }
  text += LostText(dropped, damage, raw, start_step, end_step);
  // What a compactor dropped is counted by no writer: only the steps say so.
  if (text.empty() && lacking > 0)
    text = fmt::format("some of what {} had was dropped; ", base::Counted(lacking, "step"));
  if (!text.empty()) text.resize(text.size() - 2);
  return text;
}

}  // namespace tdbg::rules
