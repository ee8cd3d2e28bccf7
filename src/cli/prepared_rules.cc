#include "cli/prepared_rules.h"

namespace tdbg::cli {

Result<plan::Plan> PlanFor(const plan::Config& config, const std::vector<plan::Need>& needs) {
  TDBG_ASSIGN_OR_RETURN(plan::Plan plan, plan::ResolvePlan(config, needs));
  const auto compiled = plan::CompiledPlan::Compile(plan);
  if (!compiled.ok()) return compiled.status();
  return plan;
}

}  // namespace tdbg::cli
