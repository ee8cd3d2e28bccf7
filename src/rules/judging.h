// What most rules write at the end of a judgement and of their registration.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "rules/rule.h"
#include "rules/step_context.h"

namespace tdbg::rules {

/// Says that `finding` is about this tensor of this worker at this step.
inline void SetPlace(const StepContext& step, TensorIndex tensor, WorkerIndex worker, Finding* finding) {
  finding->global_step = step.global_step();
  finding->tensor = step.tensor(tensor).name;
  finding->worker = step.worker_name(worker);
}

/// A finding at that place, to which the caller adds what was measured.
inline Finding FindingAt(const StepContext& step, TensorIndex tensor, WorkerIndex worker) {
  Finding finding;
  SetPlace(step, tensor, worker, &finding);
  return finding;
}

/// The result of Rule::Invoke. A finding counts even if part of the step is missing; "nothing found" does
/// not.
///
/// \param judged  was there anything to judge?
inline Judged JudgedOf(const StepContext& step, bool judged, const std::vector<Finding>& findings) {
  if (!findings.empty()) return Judged::kJudged;
  if (step.statistics_incomplete()) return Judged::kIncomplete;
  return judged ? Judged::kJudged : Judged::kNotDue;
}

/// What a RuleFactory returns: an R, made from these arguments.
template <typename R, typename... Arguments>
Result<std::unique_ptr<Rule>> MakeRule(Arguments&&... arguments) {
  return std::unique_ptr<Rule>(std::make_unique<R>(std::forward<Arguments>(arguments)...));
}

}  // namespace tdbg::rules
