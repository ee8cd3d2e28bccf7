#include "forecast.h"

#include <utility>

#include "plan/groups.h"

namespace tdbg::python {

Result<Forecast> Forecast::FromPlan(std::string_view plan_json) {
  TDBG_ASSIGN_OR_RETURN(plan::Plan plan, plan::Plan::FromJson(plan_json));
  TDBG_ASSIGN_OR_RETURN(plan::CompiledPlan compiled, plan::CompiledPlan::Compile(std::move(plan)));
  return Forecast(std::move(compiled));
}

bool Forecast::Due(int mode, int64_t mode_step) const {
  return more || plan::LessOften(plan_.DueGroups(mode, mode_step), mode_step, look_every) != 0;
}

bool Forecast::RawDue(int mode, int64_t mode_step) const {
  constexpr uint64_t kNotRaw = plan::kSummaryGroup | plan::kHistogramGroup | plan::kMoreGroup;
  return more || (plan_.DueGroups(mode, mode_step) & ~kNotRaw) != 0;
}

}  // namespace tdbg::python
