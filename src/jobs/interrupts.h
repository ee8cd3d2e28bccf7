// Signals for a job: those sent to the launcher, and ctrl-C, which the terminal sends to the job only.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include "base/posix.h"
#include "tdbg/status.h"

namespace tdbg::jobs {

/// Signals that are meant for the job, not for the launcher.
sigset_t ForwardedSignals();
/// Blocks them in the calling thread and in all threads it starts, so that SignalInbox gets them. Call before
/// the first thread. Ignored ones (nohup) stay ignored.
void BlockForwardedSignals();
/// Discards signals that came after the job was gone, so that the caller may unblock them.
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

/// Notices ctrl-C in a job that has the terminal.
///
/// The job leads the foreground group, as under a shell, so the terminal sends SIGINT to the job and never to
/// us; keeping the terminal for ourselves instead would stop every job that reads from it. So a process of
/// ours joins the job's group, ignores everything else, and writes to a pipe when it gets SIGINT.
class InterruptListener {
 public:
  InterruptListener() = default;
  ~InterruptListener();
  InterruptListener(const InterruptListener&) = delete;

  /// Starts it in the group of `leader`. No effect if the group is gone already.
  void Start(pid_t leader);
  void Stop();
  int fd() const { return pipe_.get(); }  ///< -1: not running
  /// How many SIGINTs came since the last call.
  int Take();
  /// Stops it when all that had been sent to the group by now has been counted. \return how many came since
  /// Take.
  int Finish();

 private:
  base::UniqueFd pipe_;
  pid_t pid_ = -1;
};

}  // namespace tdbg::jobs
