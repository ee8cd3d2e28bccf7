#include "cli/prepared_rules.h"

#include <fmt/format.h>

#include "cli/output.h"
#include "cli/terminal.h"

namespace tdbg::cli {

Result<plan::Plan> PlanFor(const plan::Config& config, const std::vector<plan::Need>& needs) {
  TDBG_ASSIGN_OR_RETURN(plan::Plan plan, plan::ResolvePlan(config, needs));
  const auto compiled = plan::CompiledPlan::Compile(plan);
  if (!compiled.ok()) return compiled.status();
  return plan;
}

void NoteFirstVerdicts(const std::vector<std::pair<std::string, int64_t>>& least) {
  std::string text;
  for (const auto& [rule, steps] : least) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", Printable(rule), steps);
  }
  if (!text.empty()) Note("steps that rules need before they judge: " + text);
}

}  // namespace tdbg::cli
