// Findings at steps that a later attempt has replaced: they stay in the verdict (docs/semantics.md,
// "Attempts").
#pragma once

#include <cstdint>
#include <vector>

#include "rules/engine.h"
#include "rules/rule.h"
#include "rules/step_source.h"

namespace tdbg::rules {

/// Of each of the status's findings the attempt whose step is shown there.
std::vector<int64_t> AttemptsOf(const RuleStatus& status, const StepSource& steps);
/// From `base` on other steps are shown now: findings there are marked with their attempts
/// (Finding::attempt).
/// \param attempts  AttemptsOf, before that
void MarkReplaced(int64_t base, const std::vector<int64_t>& attempts, RuleStatus* status);
/// Leaves the findings that are marked, and a status that says them, if there are any. False: there are none.
bool KeepReplaced(RuleStatus* status);
/// Adds what was found to what is kept, by steps. What was found before in a replaced step and now again in
/// the one that replaced it is said once.
void AddFindings(std::vector<Finding> found, RuleStatus* status);

}  // namespace tdbg::rules
