#include "watch/replay.h"

#include <memory>

#include "watch/events.h"

namespace tdbg::watch {

rules::JobEnd EndOf(RunState state) {
  return state == RunState::kCrashed ? rules::JobEnd::kFailed : rules::JobEnd::kCompleted;
}

Result<std::vector<rules::RuleStatus>> Replay(Trial& trial, const std::vector<plan::RuleConfig>& rules,
                                              int64_t wall_nanos) {
  TDBG_ASSIGN_OR_RETURN(const std::unique_ptr<rules::Engine> engine, rules::Engine::Create(rules));
  TDBG_ASSIGN_OR_RETURN(const Decisions decisions, ReadDecisions(trial.path()));
  for (const rules::LostWorker& worker : decisions.lost) engine->DeclareLost(worker);
  auto refreshed = trial.Refresh();
  if (!refreshed.ok()) return refreshed.status();
  auto judged = engine->Advance(trial, wall_nanos);
  if (!judged.ok()) return judged.status();
  // A job that ended before any worker wrote (kWaiting) has ended all the same, if its launcher says so.
  if (decisions.end || trial.loaded_all_steps()) {
    judged = engine->Finish(trial, decisions.end.value_or(EndOf(trial.state())), wall_nanos);
    if (!judged.ok()) return judged.status();
  }
  return engine->statuses();
}

}  // namespace tdbg::watch
