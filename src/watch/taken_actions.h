// An action is done once per finding, whoever watches: what was done is in the run's events, and of several
// who would do it at one moment one does.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "actions/action.h"
#include "watch/events.h"

namespace tdbg::watch {

/// What was done for a run's findings. The run's events are read once, when it is first asked: many rules may
/// find something in one look, and the events of a long run are long.
class TakenActions {
 public:
  explicit TakenActions(std::string run) : run_(std::move(run)) {}

  /// Leaves out of `list` what was done for this finding, by another watcher of this run or of its next
  /// attempt, which finds it again. And the same rule does not send the same message twice within the
  /// cool-down, which is logged; actions on the job itself (stop, capture) are not messages.
  void LeaveOut(const actions::Notice& notice, int64_t wall_nanos, int64_t cooldown_seconds,
                const std::function<void(const std::string&)>& log,
                std::vector<std::shared_ptr<actions::Action>>* list);

 private:
  std::string run_;
  bool is_read_ = false;
  std::unordered_map<std::string, std::vector<ActionOutcome>> by_rule_;  ///< that succeeded
};

/// Takes the turn at an action, which lasts until the result is let go of, or the process dies. Waits for
/// whoever has it, ten minutes at most, and not where nothing can be locked: a run without events, a file
/// system without locks. `next` names rule, action, target, step and attempt. Null: it was done meanwhile.
std::shared_ptr<void> TakeTurn(const std::string& run, const ActionOutcome& next);

}  // namespace tdbg::watch
