// One training command from its start to the last of its processes: signals forwarded, asked to stop, killed
// after a grace, its exit code kept.
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
#include "jobs/training_log.h"
#include "tdbg/status.h"

namespace tdbg::jobs {

/// Why a job ended, apart from its exit code.
enum class JobStop : uint8_t {
  kNone = 0,         ///< by itself
  kRequested = 1,    ///< RequestStop, or the run's control file
  kSignal = 2,       ///< ctrl-C, or a signal sent to the launcher
  kInterrupted = 3,  ///< `tdbg interrupt`: the command is to be started again
  kMaxRuntime = 4,   ///< JobOptions::max_runtime_millis were over
};

struct JobOptions {
  std::vector<std::string> command;
  std::map<std::string, std::string> environment;  ///< on top of ours
  std::string run_directory;                       ///< its control file is obeyed; empty: none
  /// Goes on from what it has seen, so that a request between two attempts is not lost; null: the job looks
  /// from its own start on. Outlives the job.
  ControlFollower* control = nullptr;
  int64_t attempt = 0;
  /// Between a stop's SIGTERM and SIGKILL. Long, because it is when scripts save a checkpoint.
  int64_t stop_grace_millis = 30'000;
  /// The same for processes that a failed or interrupted command left in its group: they had their signal.
  int64_t leftover_grace_millis = 5'000;
  /// So long may the command run until it is stopped; -1: for ever.
  int64_t max_runtime_millis = -1;
  /// Called about `tick_millis` apart while the command runs; for a live line. 0: never.
  std::function<void()> on_tick;
  int64_t tick_millis = 0;
  /// Called in Wait() when the command is first asked to end by whoever is not a signal.
  std::function<void(JobStop stop, const std::string& by)> on_stopping;
  /// Takes the command's output and is tended while it runs; null: the output is our own. Outlives the job.
  TrainingLog* log = nullptr;
  /// One line for whoever pressed ctrl-C and waits. Called in Wait(); empty: nobody is told.
  std::function<void(const std::string& line)> say;
};

struct JobResult {
  base::ExitState exit;
  JobStop stop = JobStop::kNone;
  std::string stopped_by;  ///< who asked: a rule, "user"
  int signal_number = 0;   ///< with kSignal: the first
  bool killed = false;     ///< the grace ran out and SIGKILL was needed
};

/// Would this command start? Looked up as Job::Start will, so that nothing is laid out for one that cannot.
/// \error kNotFound            no such command
/// \error kFailedPrecondition  it is there and may not be executed
Status CheckCommand(const std::string& command);

/// \pre BlockForwardedSignals() was called before any thread was started.
class Job {
 public:
  /// \error kNotFound  no such command, or it may not be executed
  static Result<std::unique_ptr<Job>> Start(JobOptions options);
  /// Until the command and, unless it ended well, every process of its group are gone.
  ///
  /// The first ctrl-C (or SIGINT to us) is the command's; the second asks its group with SIGTERM and starts
  /// the grace; the third kills. SIGTERM, SIGHUP and SIGQUIT are passed on, a second one kills. What a
  /// successful command leaves behind may stay, as under a shell, except that a living worker of the run is
  /// waited for.
  JobResult Wait();
  /// From any thread: SIGTERM to the group, grace, SIGKILL. The first to ask is remembered.
  void RequestStop(const std::string& by);
  pid_t pid() const { return child_.pid(); }

 private:
  explicit Job(JobOptions options, base::Child child);

  bool MayBecome(JobStop stop) const;
  void EndedBySignal(int signal_number);
  void Obey(JobStop stop, const std::string& by, int64_t grace_millis);
  void ObeyRequests();
  void HandleSignal(int signal_number);
  void CountInterrupt(bool child_has_it);
  void Terminate(int signal_number, int64_t grace_millis);
  void KillWhenDue();
  void PollOnce(int64_t longest_millis);
  void ClearGroup();

  JobOptions options_;
  base::Child child_;
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
