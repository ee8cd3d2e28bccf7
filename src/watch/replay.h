// Judging a run again: `tdbg check`, and what a test compares a watcher with.
#pragma once

#include <vector>

#include "plan/config.h"
#include "rules/engine.h"
#include "tdbg/status.h"
#include "tdbg/trial.h"

namespace tdbg::watch {

/// One pass over what the run holds, obeying what was decided by a clock while it was watched. With the rules
/// it was watched with, the statuses are those of its watcher. A run that is still going on is judged as far
/// as it got; rules without a hit are InProgress then. \error kInvalidArgument  the rules
Result<std::vector<rules::RuleStatus>> Replay(Trial& trial, const std::vector<plan::RuleConfig>& rules,
                                              int64_t wall_nanos);

/// How the run ended, for rules in progress, where no launcher wrote it down.
rules::JobEnd EndOf(RunState state);

}  // namespace tdbg::watch
