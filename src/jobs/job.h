// One training command from its start to the end of its last process: forwards signals, asks it to stop,
// kills it after a grace period, keeps its exit code.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/posix.h"
#include "base/process.h"
#include "jobs/control_file.h"
#include "jobs/interrupts.h"
#include "jobs/job_process.h"
#include "jobs/training_log.h"
#include "tdbg/status.h"

namespace tdbg::jobs {

/// Why a job ended, apart from its exit code.
enum class JobStop : uint8_t {
  kNone = 0,         ///< it ended by itself
  kRequested = 1,    ///< RequestStop, or the run's control file
  kSignal = 2,       ///< ctrl-C, or a signal sent to the launcher
  kInterrupted = 3,  ///< `tdbg interrupt`: the command is to be started again
  kMaxRuntime = 4,   ///< after JobOptions::max_runtime_millis
};

struct JobOptions {
  std::vector<std::string> command;
  std::map<std::string, std::string> environment;  ///< in addition to ours
  std::string run_directory;                       ///< its control file is obeyed; empty: none
  /// Continues with this reader's position, so that a request between two attempts is not lost; null: reads
  /// requests from the job's start on. Outlives the job.
  ControlFollower* control = nullptr;
  int64_t attempt = 0;
  /// Of a job on several machines this one, whose workers are the command's; empty: all workers are.
  std::string host;
  /// The grace period from SIGTERM to SIGKILL. Long, because scripts save a checkpoint in it.
  int64_t stop_grace_millis = 30'000;
  /// The same for processes that a failed or interrupted command left in its group; they have got the signal
  /// already.
  int64_t leftover_grace_millis = 5'000;
  /// How long the command may run before it is stopped; -1: no limit.
  int64_t max_runtime_millis = -1;
  /// Called 20 times a second: true interrupts the command, as `tdbg interrupt` does. For rehearsals.
  std::function<bool()> interrupts_now;
  std::string interrupts_by;     ///< who is named as having asked for it
  bool interrupts_wipe = false;  ///< JobResult::wipe of these
  /// Called about `tick_millis` apart while the command runs; for a live line. 0: never.
  std::function<void()> on_tick;
  int64_t tick_millis = 0;
  /// Called in Wait() when the command is first asked to end other than by a signal.
  std::function<void(JobStop stop, const std::string& by)> on_stopping;
  /// Gets the command's output; null: the command writes to our own streams. Outlives the job.
  TrainingLog* log = nullptr;
  /// Gets one line for the user who pressed ctrl-C and waits. Called in Wait(); may be empty.
  std::function<void(const std::string& line)> say;
};

struct JobResult {
  base::ExitState exit;
  bool exit_is_known = true;  ///< otherwise `exit` is a failure of unknown kind: see JobProcess
  JobStop stop = JobStop::kNone;
  std::string stopped_by;     ///< who asked: a rule, "user"
  bool wipe = false;          ///< with kInterrupted: the checkpoint directory is lost with the machine
  int signal_number = 0;      ///< with kSignal: the first one
  bool killed = false;        ///< the grace period ended and SIGKILL was needed
  std::string output_error;   ///< TrainingLog::output_error(); set by who finishes the log
  std::string not_restarted;  ///< it was to be started again, and could not be; set by who starts it
};

/// Can this command be started? Looks it up as Job::Start does, so that no run is made for one that cannot.
/// \error kNotFound            no such command
/// \error kFailedPrecondition  it may not be executed
Status CheckCommand(const std::string& command);

/// \pre BlockForwardedSignals() was called before any thread was started.
class Job {
 public:
  /// \error kNotFound  no such command, or it may not be executed
  static Result<std::unique_ptr<Job>> Start(JobOptions options);
  /// Takes over a command that another launcher started and left; starts nothing.
  /// \error kNotFound  it has ended
  static Result<std::unique_ptr<Job>> Adopt(JobOptions options, const ProcessIdentity& process);
  /// Returns when the command is gone and, unless it succeeded, every process of its group.
  ///
  /// The first ctrl-C (or SIGINT to us) goes to the command; the second sends SIGTERM to its group and starts
  /// the grace period; the third kills. SIGTERM, SIGHUP and SIGQUIT are passed on, a second one kills.
  /// Processes that a successful command leaves behind may stay, as under a shell, but living workers of the
  /// run are waited for.
  JobResult Wait();
  /// From any thread: SIGTERM to the group, grace period, SIGKILL. Keeps the name of the first who asked.
  void RequestStop(const std::string& by);
  pid_t pid() const { return child_->pid(); }

 private:
  Job(JobOptions options, std::unique_ptr<JobProcess> child);
  Status Prepare();

  bool MayBecome(JobStop stop) const;
  void EndedBySignal(int signal_number);
  void Obey(JobStop stop, const std::string& by, int64_t grace_millis);
  void ObeyRequests();
  void HandleSignal(int signal_number);
  void CountInterrupt(bool child_has_it);
  void CountHeard(int interrupts);
  void Terminate(int signal_number, int64_t grace_millis);
  void KillWhenDue();
  void PollOnce(int64_t longest_millis);
  void ClearGroup();

  JobOptions options_;
  std::unique_ptr<JobProcess> child_;
  base::UniqueFd wake_, pidfd_;
  std::optional<SignalInbox> inbox_;
  InterruptListener listener_;
  bool on_terminal_ = false;

  JobResult result_;
  int interrupts_ = 0;
  int echoes_expected_ = 0;
  int terminations_ = 0;
  int64_t kill_at_nanos_ = 0;  ///< monotonic; 0: no kill is due

  std::mutex mutex_;
  std::string requested_by_;  ///< guarded by mutex_
  bool obeyed_ = false;
};

}  // namespace tdbg::jobs
