// Breakpoints of a run: conditions that somebody set on a running job (docs/black-box.md, "Hold a step"), and
// workers that hold their training because of one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "actions/action.h"
#include "tdbg/status.h"
#include "tdbg/trial.h"
#include "watch/condition.h"

namespace tdbg::watch {

/// How long a training is held where nobody says: `pause`'s default.
inline constexpr int64_t kHoldSeconds = 600;

/// One of a run, as its control file and its events have it.
struct Breakpoint {
  enum class State : uint8_t { kSet, kHit, kRemoved };

  int64_t number = 0;  ///< 1, 2, ... in the order in which they were set in this run
  std::string id;      ///< of the request
  std::string condition, then, by;
  int64_t attempt = 0;      ///< steps of earlier attempts are not looked at,
  int64_t after_step = -1;  ///< nor is this global step of this one, nor those before it
  State state = State::kSet;
  std::string hit;        ///< what met the condition, for people
  int64_t hit_step = -1;  ///< global
};
const char* BreakpointStateName(Breakpoint::State state);

/// In the order of their numbers. A line that nobody's `tdbg break` wrote is passed over.
/// \error the control file's or the events'
Result<std::vector<Breakpoint>> ReadBreakpoints(const std::string& run);

/// "stop", "pause[:SECONDS]", "blackbox", "capture[:COLLECTION...]", "checkpoint_stop": what concerns the job
/// itself. A request in a file must not start a program or send anything. "capture" alone: what the tensor
/// that met the condition belongs to. \error kInvalidArgument
Status CheckThen(const std::string& then);

/// "CONDITION then ACTION"; without an action it is `pause`. Both are checked, and the statistic.
/// \error kInvalidArgument
Result<std::pair<Condition, std::string>> ParseBreak(std::string_view text);

/// A worker that holds its training between two steps.
struct Held {
  int64_t attempt = 0;
  std::string worker;
  int64_t after_step = -1, seconds = 0, wall_nanos = 0;
  std::string because;

  friend bool operator<(const Held& a, const Held& b) {
    return std::tie(a.attempt, a.worker, a.wall_nanos) < std::tie(b.attempt, b.worker, b.wall_nanos);
  }
};
/// Of the latest attempt, those that live.
std::vector<Held> HeldWorkers(const Trial& trial);

/// The watcher's side: looks at new steps. Costs a look at a file's size where no breakpoint was ever set.
class Breakpoints {
 public:
  explicit Breakpoints(std::string run) : run_(std::move(run)) {}

  /// Lines for the run's events, in order: (kind, fields).
  using Events = std::vector<std::pair<std::string, std::string>>;
  struct Hit {
    Breakpoint breakpoint;
    actions::Notice notice;  ///< but at_step, which is the caller's to choose
    std::string then;        ///< as ParseAction takes it
  };
  /// What has happened since the last call. A breakpoint is hit once.
  std::vector<Hit> Look(const Trial& trial, Events* events);
  bool is_held() const { return !held_.empty(); }

 private:
  struct Watched {
    Breakpoint breakpoint;
    Condition condition;
    bool is_good = true;     // its line can be understood
    int64_t looked_at = -1;  // the last global step
    uint64_t overlay = 0;    // TrialAccess::overlay_generation
    int64_t idle_steps = 0;  // since it was set, without a tensor that it names
    bool told_idle = false;
    std::map<std::pair<std::string, std::string>, History> histories;  // by tensor and worker
  };

  void ReadNew(Events* events);
  void LookAt(const Trial& trial, Watched& watched, std::vector<Hit>* hits, Events* events);
  void LookForHeld(const Trial& trial, Events* events);

  const std::string run_;
  uint64_t size_seen_ = 0;  // of the control file
  bool was_asked_ = false;  // somebody asked for a pause
  std::map<std::string, Watched> watched_;
  std::set<std::string> over_;  // ids that are hit or removed
  std::set<Held> held_;
};

}  // namespace tdbg::watch
