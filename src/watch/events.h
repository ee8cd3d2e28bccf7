// events.jsonl: what happened to a run, apart from measurements. Written by the launcher and the watcher, one
// JSON object a line; docs/format.md lists kinds and fields.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rules/engine.h"
#include "tdbg/status.h"
#include "watch/origins.h"

namespace tdbg::watch {

/// One line of events.jsonl. Kinds: run_started, job_started, rule_status, found, action, worker_lost,
/// stalled, rule_time_limit, job_ended, watch_error. \param fields_json  an object; its members follow kind,
/// wall_nanos and time
std::string EventLine(const std::string& kind, int64_t wall_nanos, const std::string& fields_json);

/// The latest status of each rule in events.jsonl, as it was recorded. Empty for a run that was never
/// watched. Torn and unknown lines are skipped.
Result<std::vector<rules::RuleStatus>> ReadStatuses(const std::string& run_path);
/// ReadStatuses as users are shown them: without what is muted in the run (ApplyMutesOf).
Result<std::vector<rules::RuleStatus>> ReadShownStatuses(const std::string& run_path);

/// Decisions that depended on a clock while the run was watched. A replay that follows them reaches the same
/// verdicts.
struct Decisions {
  std::vector<rules::LostWorker> lost;
  std::vector<rules::Stall> stalls;
  /// Time limits that rules reached, except where a later watcher judged the rule again.
  std::vector<rules::TimeLimitReached> time_limits;
  std::vector<int64_t> stopped;      ///< attempts that ended because somebody asked for it
  bool stalls_were_watched = false;  ///< a rule that waits for stalls was watching, so the list is complete
  /// How the job ended last; nothing while it runs, or if nobody launched it.
  std::optional<rules::JobEnd> end = {};
  int64_t end_wall_nanos = 0;  ///< of `end`
};
Result<Decisions> ReadDecisions(const std::string& run_path);

/// A rule that found no issues and missed nothing of the steps up to `until`, of attempts up to `attempt`:
/// rules::Engine::DeclareJudged.
struct JudgedWhole {
  std::string name, code;
  int64_t until = -1, attempt = 0;
};
/// Those of a run that a launcher started, one of each name: the last. \error as ReadStatuses
Result<std::vector<JudgedWhole>> ReadJudgedWhole(const std::string& run_path);

// ---- The fields, for writers of events
// ---------------------------------------------------------------------

/// \param origins  of the run, for the words of its incidents (Explain)
std::string StatusFields(const rules::RuleStatus& status, int64_t global_step,
                         const std::vector<Origin>& origins = {});
/// The same for receivers that do not read the run: it is named, and the step as people are told it.
std::string NoticeFields(const rules::RuleStatus& status, int64_t global_step,
                         const std::vector<Origin>& origins, const std::string& run,
                         const std::string& step_name);
std::string WorkerLostFields(const rules::LostWorker& worker);
std::string StalledFields(const rules::Stall& stall);
std::string TimeLimitFields(const rules::TimeLimitReached& reached);
struct ActionOutcome {
  std::string rule, action, target, output;
  int64_t global_step = 0, attempt = 0, millis = 0;
  int64_t wall_nanos = 0;  ///< when it was done; only of one that was read from a file
  Status status;
};
/// Actions that were performed, in order. \error as ReadStatuses
Result<std::vector<ActionOutcome>> ReadActions(const std::string& run_path);
std::string ActionFields(const ActionOutcome& outcome);
std::string ErrorFields(const Status& status);

}  // namespace tdbg::watch
