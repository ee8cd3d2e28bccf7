// A summary of a whole run: gathered once, shown by `run` at its end and by `status` and `ls`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/attempt_starts.h"
#include "cli/checkpoints.h"
#include "cli/empty_collections.h"
#include "cli/exporters.h"
#include "cli/json_output.h"
#include "cli/terminal.h"
#include "rules/engine.h"
#include "rules/incidents.h"
#include "tdbg/status.h"
#include "tdbg/trial.h"
#include "trial/overhead.h"
#include "trial/step_name.h"
#include "watch/events.h"
#include "watch/incident_lines.h"
#include "watch/origins.h"

namespace tdbg::cli {

/// How the job ended, from the run's events.
struct JobEnding {
  int64_t attempt = 0;
  int exit_code = 0;
  std::string stop;        ///< "none", "requested", "signal"
  std::string stopped_by;  ///< a rule's name, "user"
  int64_t wall_nanos = 0;
};

struct RunSummary {
  std::string path;  ///< absolute
  std::string name;
  RunState state = RunState::kWaiting;
  bool launcher_alive = false;
  std::optional<JobEnding> ending;  ///< of the latest attempt
  std::vector<int64_t> attempts;
  std::vector<std::string> hosts;    ///< of each attempt; empty: not known
  std::vector<AttemptStart> starts;  ///< AttemptStarts
  std::vector<CheckpointReturn> checkpoints;
  std::vector<std::string> workers;
  std::vector<WorkerEnd> failures;  ///< workers that raised; if the job failed, also those that disappeared
  int64_t steps = 0, train_steps = 0, eval_steps = 0;
  int64_t first_step = -1, last_step = -1, last_seen_step = -1;
  int64_t last_seen_wall_nanos = 0;
  size_t tensors = 0;
  uint64_t bytes = 0;
  std::vector<DroppedInfo> dropped;
  std::vector<EmptyCollection> empty_collections;
  std::vector<WorkersOverhead> overheads;  ///< of workers that look less often than the plan says
  int64_t coarse_steps = 0;                ///< of which rows were dropped, since coarse ones tell of them
  int64_t coarse_first = -1, coarse_last = -1;
  std::vector<std::string> damage;
  std::vector<ExportOutcome> exports;  ///< of the latest attempt, written while it trained
  std::vector<rules::RuleStatus> rules;
  std::vector<rules::Incident> incidents;     ///< of `rules`
  std::vector<watch::Origin> origins;         ///< of NaN and infinity, in order
  std::vector<watch::ActionOutcome> actions;  ///< taken about findings, in order
  StepNames names;                            ///< NamesFor
  std::string why_nothing;                    ///< set if nothing was captured
};

/// \param statuses  of a watcher that has just ended; empty: take those of the run's events
Result<RunSummary> SummariseRun(Trial& trial, std::vector<rules::RuleStatus> statuses);

/// How the steps of these findings, and of these origins and actions, are called.
StepNames NamesFor(const Trial& trial, const std::vector<rules::RuleStatus>& statuses,
                   const std::vector<watch::Origin>& origins,
                   const std::vector<watch::ActionOutcome>& actions = {});

/// True while the run's training or its launcher is alive.
bool IsAlive(const RunSummary& report);
/// "running", "stopped by VanishingGradient", "failed (exit code 137, SIGKILL)", ...: state and ending in a
/// few words.
std::string StateWords(const RunSummary& report);
/// "mean_abs 3.2e-09 < 1e-07"
std::string MeasureWords(const rules::Finding& finding);
/// "gradient/Net_conv1.weight: mean_abs 3.2e-09 < 1e-07"
std::string FindingWords(const rules::Finding& finding);
/// ("worker_1", "after step 19: ValueError: ..."), of the first few failures.
std::vector<std::pair<std::string, std::string>> FailureLines(const RunSummary& report);
/// Did the job fail by itself?
bool Failed(const RunSummary& report);
/// "1 step", "12 raw tensors".
std::string CountOfDropped(const DroppedInfo& drop);
/// "2 statistics (unsupported), steps 0 to 3"
std::string DroppedWords(const DroppedInfo& drop);
/// "2 statistics (unsupported), steps 0 to 3 (worker_0): What tdbg cannot record: ..."
std::string DroppedLine(const DroppedInfo& drop);
/// "since step 256 statistics at one step in 16: ...", a line for each worker.
std::vector<std::string> OverheadLines(const RunSummary& report);
Json DroppedToJson(const std::vector<DroppedInfo>& dropped);
Colour ColourOf(rules::RuleState state);

Json SummaryToJson(const RunSummary& report);
/// \param names  of its step, if mode and number of it are to be told, too
Json FindingToJson(const rules::Finding& finding, const StepNames& names = {});
/// SageMaker's four fields first, then ours; which finding follows from which.
Json VerdictsToJson(const std::vector<rules::RuleStatus>& statuses, const StepNames& names = {});
/// One object for each incident: cause, evidence, consequences, advice.
Json IncidentsToJson(const std::vector<rules::Incident>& incidents, const StepNames& names);
/// Where NaN and infinity began: each record, with its attempt and worker.
Json OriginsToJson(const std::vector<watch::Origin>& origins, const StepNames& names);
/// "step 403: ..." of each origin, of the first few, with the worker where there are several.
std::vector<std::string> OriginLines(const std::vector<watch::Origin>& origins, const StepNames& names);
/// The summary at the end of `tdbg run`: what was found, judged and dropped; what to look at next; where the
/// run is.
std::string FormatSummary(const RunSummary& report, const Terminal& terminal);

}  // namespace tdbg::cli
