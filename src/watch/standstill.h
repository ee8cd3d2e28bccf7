// For how long a training has stood still, by the watcher's own clock.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tdbg/trial.h"
#include "trial/access.h"

namespace tdbg::watch {

/// To be asked at every look. Standing still are both the heartbeat and the list of steps.
class Standstill {
 public:
  /// 0 where something has moved since the last look, where the training `is_held`, and where it is gone: it
  /// may be started again.
  double Seconds(const Trial& trial, bool is_held, int64_t now_millis) {
    const int64_t seen = trial.last_seen_step();
    const size_t steps = TrialAccess(trial).steps().size();
    const RunState state = trial.state();
    const bool gone = state == RunState::kEnded || state == RunState::kCrashed;
    if (is_held || gone || since_millis_ == 0 || seen != seen_step_ || steps != steps_) {
      seen_step_ = seen;
      steps_ = steps;
      since_millis_ = now_millis;
    }
    return static_cast<double>(now_millis - since_millis_) / 1e3;
  }

 private:
  int64_t seen_step_ = -1;
  size_t steps_ = 0;
  int64_t since_millis_ = 0;
};

}  // namespace tdbg::watch
