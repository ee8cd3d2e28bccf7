// Statuses of rules as `check` and `watch` print them.
#pragma once

#include <vector>

#include "cli/run_summary.h"
#include "cli/terminal.h"
#include "rules/engine.h"
#include "tdbg/status.h"
#include "tdbg/trial.h"
#include "trial/step_name.h"

namespace tdbg::cli {

/// \param names  of the findings' steps: NamesFor
std::string FormatVerdicts(const std::vector<rules::RuleStatus>& statuses, const StepNames& names,
                           const Terminal& terminal);
/// 1 if any found issues, else 8 if any could not be judged, else 0.
int ExitCodeOfVerdicts(const std::vector<rules::RuleStatus>& statuses);

/// Of a run that nobody watched: as the profile would have judged it then.
Result<std::vector<rules::RuleStatus>> JudgeByProfile(Trial& trial);
/// SummariseRun; of a run that nobody watched, as the profile would have judged it. What `explain` numbers.
Result<RunSummary> SummariseToExplain(Trial& trial);

}  // namespace tdbg::cli
