// An action is done once per finding, whoever watches: what was done is in the run's events, and of several
// who would do it at one moment one does.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actions/action.h"
#include "watch/events.h"

namespace tdbg::watch {

/// Leaves out of `list` what was done for this finding, by another watcher of this run or of its next
/// attempt, which finds it again. And the same rule does not send the same message twice within the
/// cool-down, which is logged; actions on the job itself (stop, capture) are not messages.
void LeaveOutTaken(const actions::Notice& notice, int64_t wall_nanos, int64_t cooldown_seconds,
                   const std::function<void(const std::string&)>& log,
                   std::vector<std::shared_ptr<actions::Action>>* list);

/// Takes the turn at an action, which lasts until the result is let go of, or the process dies. Waits for
/// whoever has it, ten minutes at most, and not where nothing can be locked: a run without events, a file
/// system without locks. `next` names rule, action, target, step and attempt. Null: it was done meanwhile.
std::shared_ptr<void> TakeTurn(const std::string& run, const ActionOutcome& next);

}  // namespace tdbg::watch
