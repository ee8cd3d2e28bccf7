// What can be said of a run as a whole: gathered once, shown by `run` at its end and by `status` and `ls`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/exporters.h"
#include "cli/json_output.h"
#include "cli/terminal.h"
#include "rules/engine.h"
#include "tdbg/status.h"
#include "tdbg/trial.h"
#include "watch/events.h"
#include "watch/origins.h"

namespace tdbg::cli {

/// How the job ended, as the run's events say.
struct JobEnding {
  int64_t attempt = 0;
  int exit_code = 0;
  std::string stop;        ///< "none", "requested", "signal"
  std::string stopped_by;  ///< a rule's name, "user"
  int64_t wall_nanos = 0;
};

struct Report {
  std::string path;  ///< absolute
  std::string name;
  RunState state = RunState::kWaiting;
  bool launcher_alive = false;
  std::optional<JobEnding> ending;  ///< of the latest attempt
  std::vector<int64_t> attempts;
  std::vector<std::string> workers;
  std::vector<WorkerEnd> failures;  ///< those that raised; where the job failed, those without a goodbye, too
  int64_t steps = 0, train_steps = 0, eval_steps = 0;
  int64_t first_step = -1, last_step = -1, last_seen_step = -1;
  int64_t last_seen_wall_nanos = 0;
  size_t tensors = 0;
  uint64_t bytes = 0;
  std::vector<DroppedInfo> dropped;
  std::vector<std::string> damage;
  std::vector<ExportOutcome> exports;  ///< of the latest attempt, written while it trained
  std::vector<rules::RuleStatus> rules;
  std::vector<watch::Origin> origins;         ///< of NaN and infinity, the first one first
  std::vector<watch::ActionOutcome> actions;  ///< taken about findings, in order
  std::string why_nothing;                    ///< set where nothing was captured
};

/// \param statuses  of a watcher that has just ended; empty: what the run's events say.
Result<Report> MakeReport(Trial& trial, std::vector<rules::RuleStatus> statuses);

/// True while the run's training or its launcher lives.
bool IsAlive(const Report& report);
/// "running", "stopped by VanishingGradient", "failed (exit code 137, SIGKILL)", ...: state and ending in a
/// few words.
std::string StateWords(const Report& report);
/// "mean_abs 3.2e-09 < 1e-07"
std::string MeasureWords(const rules::Finding& finding);
/// "gradient/Net_conv1.weight: mean_abs 3.2e-09 < 1e-07"
std::string FindingWords(const rules::Finding& finding);
/// ("worker_1", "after step 19: ValueError: ..."), of the first few failures.
std::vector<std::pair<std::string, std::string>> FailureLines(const Report& report);
/// The job ended by itself, and not well.
bool Failed(const Report& report);
/// "1 step", "12 raw tensors".
std::string CountOfDropped(const DroppedInfo& drop);
Colour ColourOf(rules::RuleState state);

Json ReportToJson(const Report& report);
Json FindingToJson(const rules::Finding& finding);
/// SageMaker's four fields first, then ours; which finding follows from which.
Json VerdictsToJson(const std::vector<rules::RuleStatus>& statuses);
/// Where NaN and infinity began: each record, with its attempt and worker.
Json OriginsToJson(const std::vector<watch::Origin>& origins);
/// "step 403: ..." of each origin, of the first few, with the worker where there are several.
std::vector<std::string> OriginLines(const std::vector<watch::Origin>& origins);
/// The end of `tdbg run`: what was found, judged, lost; what to look at next; where the run is.
std::string FormatSummary(const Report& report, const Terminal& terminal);

}  // namespace tdbg::cli
