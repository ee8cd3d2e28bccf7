// The process (or thread) that follows a run: trial -> rules -> statuses and events -> actions.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plan/config.h"
#include "rules/engine.h"
#include "tdbg/status.h"
#include "watch/events.h"
#include "watch/found.h"

namespace tdbg::watch {

struct WatchOptions {
  std::string run;                      ///< path; may not exist yet
  std::vector<plan::RuleConfig> rules;  ///< each with its actions (on_issue), run-wide ones resolved in
  /// Performs "stop"; its argument is the name of the rule that asked. `tdbg run` signals its process group.
  /// A caller that sets it owns the job and calls JobEnded: until then the run is followed, even if its
  /// workers end in between. Empty: "stop" is a request in the control file, and the run is followed until
  /// its workers are gone.
  std::function<Status(const std::string& reason)> stop;
  /// Of a watcher that a training started beside itself: the attempt that this training begins. Until
  /// StarterGone the run is followed, whether or not it has workers yet; after it, until its workers are gone
  /// or a later attempt, which has a watcher of its own, has begun. What earlier attempts found is not acted
  /// on.
  std::optional<int64_t> started_by_attempt = {};
  /// Called from the watcher's thread whenever it has looked at the run; for the live line. May be empty.
  std::function<void(const struct Progress&)> on_progress;
  /// Called from the watcher's thread for each rule whose status is new or has changed, with the step of its
  /// finding, otherwise the last step that it judged. May be empty.
  std::function<void(const rules::RuleStatus& status, int64_t global_step)> on_status;
  /// Called from the watcher's thread for what a person is to be told at once. Not when the job is over: its
  /// summary follows then. May be empty.
  std::function<void(const Found& found)> on_found;
  /// Where several watch one job and one of them speaks: asked before anything is said or done.
  /// kFailedPrecondition: another one speaks by now, and Follow ends with it. Anything else that is no
  /// success: not at this moment. Empty: always.
  std::function<Status()> may_speak;
  /// The job is elsewhere, and `run` a copy that follows it: nothing is written into it, its breakpoints are
  /// left to the job's own watcher, and a silence may be the copy's, so that no standstill is declared.
  bool only_reads = false;
  /// A worker that was announced (world size) and has not written a step this long after the others committed
  /// one is declared lost, and the steps are judged without it. Recorded as an event, which a replay follows.
  int64_t lost_after_millis = 60'000;
  /// How long to wait for a run that cannot be read any more (its directory moved, a mount gone); then every
  /// rule in progress ends in Error. A watcher that owns the job waits as long as the job lasts.
  int64_t gone_after_millis = 60'000;
  /// One line for people about something that failed. Empty: stderr, with "tdbg: " in front.
  std::function<void(const std::string& line)> log;
};

struct Progress {
  int64_t global_step = -1;
  std::string step;  ///< StepNames, of that step; empty: there is none
  int64_t steps_seen = 0;
  std::optional<double> loss = {};  ///< last value of the first tensor of collection losses, NaN included
  uint64_t bytes = 0;
  RunState state = RunState::kWaiting;
  const std::vector<rules::RuleStatus>* statuses = nullptr;
};

/// One run, one watcher. Uses no CPU while nothing happens.
///
/// Actions of a rule's finding are performed in the order given, on a thread of their own; Follow waits for
/// them at its end. An action that fails is an event and a line in the log.
class Watcher {
 public:
  /// Rules are created and their parameters checked here, before training. \error kInvalidArgument
  static Result<std::unique_ptr<Watcher>> Create(WatchOptions options);
  ~Watcher();
  std::vector<plan::Need> Needs() const;
  /// rules::Engine::LeastSteps
  std::vector<std::pair<std::string, int64_t>> LeastSteps() const;
  /// Before Follow: another watcher of this job has died. What it has said is not said again.
  void TakeOver();
  /// Follows until the run has ended (or JobEnded was called and everything was read). Run on its own thread.
  Status Follow();
  /// From any thread: the job is gone. Judges what is on disk, then decides the rules by `end`.
  void JobEnded(rules::JobEnd end);
  /// From any thread: the training that started this watcher (WatchOptions::started_by_attempt) has ended.
  void StarterGone();
  /// From any thread: nobody watches any more, but the job may go on. Rules in progress are decided by what
  /// is on disk for statuses() alone: that is not told, recorded or acted on.
  void StopWatching();
  /// Final statuses after Follow returned; a snapshot before.
  std::vector<rules::RuleStatus> statuses() const;
  /// Parts of the run that could not be read; the verdicts are about the rest. \pre Follow returned
  std::vector<std::string> damage() const;
  /// Was the job stopped because a rule asked for it? Which one?
  std::string stopped_by() const;

 private:
  struct Impl;
  explicit Watcher(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tdbg::watch
