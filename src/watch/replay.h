// Judges a run again: for `tdbg check`, and for tests that compare a watcher with it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "plan/config.h"
#include "rules/engine.h"
#include "tdbg/status.h"
#include "tdbg/trial.h"

namespace tdbg::watch {

/// Judges everything in the run, following decisions that depended on a clock while it was watched. With the
/// watcher's rules, the statuses are the watcher's. A running job is judged as far as it got; rules without a
/// finding are then InProgress. What is muted in the run is no issue (ApplyMutesOf). \error kInvalidArgument
/// the rules
/// \param reports  if given: gets the documents that rules made of the run, for the caller to write
/// (report_files.h)
/// \param attempt  with which `trial` was opened; rules in processes of their own open the run themselves
Result<std::vector<rules::RuleStatus>> Replay(
    Trial& trial, const std::vector<plan::RuleConfig>& rules, int64_t wall_nanos,
    std::vector<std::pair<size_t, rules::Report>>* reports = nullptr, int64_t attempt = -1);

}  // namespace tdbg::watch
