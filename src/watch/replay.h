// Judging a run again: `tdbg check`, and what a test compares a watcher with.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plan/config.h"
#include "rules/engine.h"
#include "tdbg/status.h"
#include "tdbg/trial.h"

namespace tdbg::watch {

/// One pass over what the run holds, obeying what was decided by a clock while it was watched. With the rules
/// it was watched with, the statuses are those of its watcher. A run that is still going on is judged as far
/// as it got; rules without a hit are InProgress then. \error kInvalidArgument  the rules
/// \param reports  if given: what rules made of the whole run, for the caller to write (report_files.h)
/// \param attempt  with which `trial` was opened: rules in processes of their own open it again
Result<std::vector<rules::RuleStatus>> Replay(
    Trial& trial, const std::vector<plan::RuleConfig>& rules, int64_t wall_nanos,
    std::vector<std::pair<size_t, rules::Report>>* reports = nullptr, int64_t attempt = -1);

/// How rules open other runs: by path, or by the name of a run beside `run`.
rules::RuleEnvironment EnvironmentOf(const std::string& run);

/// The plan the run was captured with; nothing where it holds none that can be read.
std::optional<plan::Plan> PlanOf(const std::string& run);

/// How the run ended, for rules in progress, where no launcher wrote it down.
rules::JobEnd EndOf(RunState state);

}  // namespace tdbg::watch
