// Signals on their way to a job: those sent to the launcher, and ctrl-C that the terminal sends past it.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include "base/posix.h"
#include "tdbg/status.h"

namespace tdbg::jobs {

/// Signals that are the job's and not the launcher's.
sigset_t ForwardedSignals();
/// Blocks them in the calling thread and in all threads it starts, so that SignalInbox gets them. Call before
/// the first thread. Ignored ones (nohup) stay ignored.
void BlockForwardedSignals();
/// Forgets those that came after the job was gone; the caller may unblock them then.
void DrainForwardedSignals();

/// The blocked signals as a descriptor to poll.
class SignalInbox {
 public:
  static Result<SignalInbox> Open();
  int fd() const { return fd_.get(); }
  /// The next signal, or 0 if none is pending.
  int Next();

 private:
  base::UniqueFd fd_;
};

/// Hears ctrl-C in a job that has the terminal.
///
/// The job leads the foreground group, as under a shell, so the terminal sends SIGINT to the job and never to
/// us; keeping the terminal for ourselves instead would stop every job that reads from it. Hence a process of
/// ours that sits in the job's group, ignores everything else, and tells through a pipe when SIGINT came by.
class InterruptListener {
 public:
  InterruptListener() = default;
  ~InterruptListener();
  InterruptListener(const InterruptListener&) = delete;

  /// Starts it in the group of `leader`. Without effect where the group is gone already.
  void Start(pid_t leader);
  void Stop();
  int fd() const { return pipe_.get(); }  ///< -1: not running
  /// How many came since the last call.
  int Take();

 private:
  base::UniqueFd pipe_;
  pid_t pid_ = -1;
};

}  // namespace tdbg::jobs
