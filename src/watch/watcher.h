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

namespace tdbg::watch {

struct WatchOptions {
  std::string run;                      ///< path; may not exist yet
  std::vector<plan::RuleConfig> rules;  ///< each with its actions (on_issue), run-wide ones resolved in
  /// What "stop" does; its argument is the name of the rule that asked. `tdbg run` signals its process group.
  /// Who gives it owns the job and calls JobEnded: the run is followed up to then, however often its workers
  /// say goodbye in between. Empty: a request in the control file, and the run is followed until its workers
  /// are gone.
  std::function<Status(const std::string& reason)> stop;
  /// Called from the watcher's thread after each look; for the live line. May be empty.
  std::function<void(const struct Progress&)> on_progress;
  bool write_events = true;  ///< append to <run>/events.jsonl
  /// A worker that was announced (world size) and still has not written a step so long after the others
  /// committed one is declared lost, and the steps are judged without it. An event, which replay obeys.
  int64_t lost_after_millis = 60'000;
  /// A run that cannot be read any more (its directory moved, a mount gone) is waited for so long; then every
  /// rule in progress ends in Error. Whoever owns the job waits for as long as it lasts.
  int64_t gone_after_millis = 60'000;
  /// One line for people about something that failed. Empty: stderr, with "tdbg: " in front.
  std::function<void(const std::string& line)> log;
};

struct Progress {
  int64_t global_step = -1;
  int64_t steps_seen = 0;
  std::optional<double> loss = {};  ///< last value of the first tensor of collection losses, NaN included
  uint64_t bytes = 0;
  RunState state = RunState::kWaiting;
  const std::vector<rules::RuleStatus>* statuses = nullptr;
};

/// One run, one watcher. Uses no CPU while nothing happens.
///
/// Each rule that hits performs its actions, in the order given, on a thread of their own; Follow waits for
/// them at its end. An action that fails is an event and a line in the log.
class Watcher {
 public:
  /// Rules are created and their parameters checked here, before training. \error kInvalidArgument
  static Result<std::unique_ptr<Watcher>> Create(WatchOptions options);
  ~Watcher();
  std::vector<plan::Need> Needs() const;
  /// rules::Engine::LeastSteps
  std::vector<std::pair<std::string, int64_t>> LeastSteps() const;
  /// Follows until the run has ended (or JobEnded was called and everything was read). Run on its own thread.
  Status Follow();
  /// From any thread: the job is gone. No more steps are waited for than are on disk; rules are decided by
  /// `end`.
  void JobEnded(rules::JobEnd end);
  /// Final statuses after Follow returned; a snapshot before.
  std::vector<rules::RuleStatus> statuses() const;
  /// What of the run could not be read: its verdicts are about the rest. \pre Follow returned
  std::vector<std::string> damage() const;
  /// Was the job stopped because a rule asked for it? Which one?
  std::string stopped_by() const;

 private:
  struct Impl;
  explicit Watcher(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tdbg::watch
