#include "watch/replay.h"

#include <algorithm>
#include <memory>

#include "base/file.h"
#include "rulehost/registry.h"
#include "rules/judged_run.h"
#include "trial/access.h"
#include "watch/events.h"
#include "watch/muted.h"

namespace tdbg::watch {
namespace {

constexpr int64_t kAnswerMillis = 1000;

// If no watcher looked for stalls, the run's time stamps say how long the job went on after its last
// heartbeat.
void DeclareStallAtEnd(const Trial& trial, const Decisions& decisions, rules::Engine* engine) {
  const auto threshold = engine->StallThreshold();
  if (!threshold || decisions.stalls_were_watched || !decisions.end) return;
  const TrialAccess access(trial);
  rules::Stall stall;
  int64_t last_wall_nanos = trial.last_seen_wall_nanos();
  if (!access.steps().empty()) {
    const TrialAccess::Step& last = access.steps().back();
    stall.attempt = last.attempt;
    stall.after_step = last.info.global_step;
    last_wall_nanos = std::max(last_wall_nanos, last.info.wall_nanos);
  }
  if (last_wall_nanos <= 0) return;
  stall.seconds = static_cast<double>(decisions.end_wall_nanos - last_wall_nanos) / 1e9;
  if (stall.seconds >= *threshold) engine->DeclareStalled(stall);
}

}  // namespace

Result<std::vector<rules::RuleStatus>> Replay(Trial& trial, const std::vector<plan::RuleConfig>& rules,
                                              int64_t wall_nanos,
                                              std::vector<std::pair<size_t, rules::Report>>* reports,
                                              int64_t attempt) {
  TDBG_ASSIGN_OR_RETURN(const std::unique_ptr<rulehost::Registry> registry,
                        rulehost::Registry::Create(rules, {trial.path(), attempt}));
  TDBG_ASSIGN_OR_RETURN(const std::unique_ptr<rules::Engine> engine,
                        rules::Engine::Create(rules, *registry, rules::EnvironmentOf(trial.path())));
  TDBG_ASSIGN_OR_RETURN(const Decisions decisions, ReadDecisions(trial.path()));
  if (const auto plan = rules::PlanOf(trial.path())) (void)engine->UsePlan(*plan);
  for (const rules::LostWorker& worker : decisions.lost) engine->DeclareLost(worker);
  for (const int64_t stopped : decisions.stopped) engine->DeclareStopped(stopped);
  for (const rules::Stall& stall : decisions.stalls) engine->DeclareStalled(stall);
  for (const rules::TimeLimitReached& reached : decisions.time_limits) engine->DeclareTimeLimit(reached);
  auto refreshed = trial.Refresh();
  if (!refreshed.ok()) return refreshed.status();
  auto judged = engine->Advance(trial, wall_nanos);
  if (!judged.ok()) return judged.status();
  while (engine->owed_answers()) {
    (void)engine->WaitForAnswer(kAnswerMillis);
    judged = engine->Advance(trial, wall_nanos);
    if (!judged.ok()) return judged.status();
  }
  DeclareStallAtEnd(trial, decisions, engine.get());
  // If no worker wrote anything (kWaiting), the job has ended if its launcher says so.
  if (decisions.end || trial.loaded_all_steps()) {
    while (!engine->decided()) {
      judged = engine->Finish(trial, decisions.end.value_or(rules::EndOf(trial.state())), wall_nanos);
      if (!judged.ok()) return judged.status();
      if (!engine->decided()) (void)engine->WaitForAnswer(kAnswerMillis);
    }
  }
  if (reports) *reports = engine->TakeReports();
  std::vector<rules::RuleStatus> statuses = engine->statuses();
  ApplyMutesOf(trial.path(), /*goes_on=*/!decisions.end && !trial.loaded_all_steps(), &statuses);
  return statuses;
}

}  // namespace tdbg::watch
