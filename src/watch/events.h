// events.jsonl: what happened to a run that is no measurement. Written by the launcher and the watcher, one
// JSON object a line; README.md beside this file lists kinds and fields.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rules/engine.h"
#include "tdbg/status.h"

namespace tdbg::watch {

/// One line of events.jsonl. Kinds: run_started, job_started, rule_status, action, worker_lost, stalled,
/// rule_time_limit, job_ended, watch_error. \param fields_json  an object; its members follow kind,
/// wall_nanos and time
std::string EventLine(const std::string& kind, int64_t wall_nanos, const std::string& fields_json);

/// Statuses as `tdbg status` shows them for a run that is or was watched: the latest of each rule in
/// events.jsonl. Empty for a run that nobody watched. A torn or unknown line is no error: it is left out.
Result<std::vector<rules::RuleStatus>> ReadStatuses(const std::string& run_path);

/// What was decided by a clock while the run was watched. A replay that obeys it reaches the same verdicts.
struct Decisions {
  std::vector<rules::LostWorker> lost;
  std::vector<rules::Stall> stalls;
  /// Time limits that rules reached, except where a later watcher judged the rule again.
  std::vector<rules::TimeLimitReached> time_limits;
  bool stalls_were_watched = false;  ///< a rule that waits for stalls was watching: there were no others
  /// How the job ended last; nothing while it runs, or if nobody launched it.
  std::optional<rules::JobEnd> end = {};
  int64_t end_wall_nanos = 0;  ///< of `end`
};
Result<Decisions> ReadDecisions(const std::string& run_path);

// ---- The fields, for whoever writes them
// ---------------------------------------------------------------------

/// \param run  named in it where not empty: for receivers who do not hold the file in their hands
std::string StatusFields(const rules::RuleStatus& status, int64_t global_step, const std::string& run = {});
std::string WorkerLostFields(const rules::LostWorker& worker);
std::string StalledFields(const rules::Stall& stall);
std::string TimeLimitFields(const rules::TimeLimitReached& reached);
struct ActionOutcome {
  std::string rule, action, target, output;
  int64_t global_step = 0, attempt = 0, millis = 0;
  int64_t wall_nanos = 0;  ///< when it was done; of one that was read
  Status status;
};
/// What was done about findings, in order. \error as ReadStatuses
Result<std::vector<ActionOutcome>> ReadActions(const std::string& run_path);
std::string ActionFields(const ActionOutcome& outcome);
std::string ErrorFields(const Status& status);

}  // namespace tdbg::watch
