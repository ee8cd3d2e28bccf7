#include "jobs/job.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "base/durations.h"
#include "base/file.h"
#include "base/terminal.h"
#include "jobs/job_life.h"
#include "jobs/run_directory.h"

namespace tdbg::jobs {
namespace {

// ctrl-Z and requests in the control file cannot be waited for with poll: they are checked at this interval.
constexpr int64_t kTerminalPollMillis = 100;
constexpr int64_t kControlPollMillis = 250;
constexpr int64_t kRehearsalPollMillis = 50;
constexpr int64_t kNanosPerMilli = 1'000'000;

int64_t Now() { return base::SystemClock().MonotonicNanos(); }

}  // namespace

Status CheckCommand(const std::string& command) {
  std::vector<std::string> candidates;
  if (command.find('/') != std::string::npos) {
    candidates.push_back(command);
  } else {
    const char* path = ::getenv("PATH");
    std::string_view rest = path ? path : "/usr/local/bin:/usr/bin:/bin";
    while (true) {
      const size_t colon = rest.find(':');
      const std::string_view directory = rest.substr(0, colon);
      candidates.push_back(base::JoinPath(directory.empty() ? "." : directory, command));
      if (colon == std::string_view::npos) break;
      rest.remove_prefix(colon + 1);
    }
  }
  bool there = false;
  for (const std::string& candidate : candidates) {
    struct stat info;
    if (::stat(candidate.c_str(), &info) != 0) continue;
    if (S_ISREG(info.st_mode) && ::access(candidate.c_str(), X_OK) == 0) return OkStatus();
    there = true;
  }
  if (there) {
    return FailedPrecondition("'" + command + "' may not be executed; start it by its interpreter (python " +
                              command + ") or chmod +x it");
  }
  return NotFound("no such command '" + command +
                  "'; check its spelling and PATH, or activate its environment");
}

Job::Job(JobOptions options, std::unique_ptr<JobProcess> child)
    : options_(std::move(options)), child_(std::move(child)) {}

Status Job::Prepare() {
  TDBG_ASSIGN_OR_RETURN(inbox_, SignalInbox::Open());
  wake_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  return wake_.ok() ? OkStatus() : ErrnoStatus(errno, "cannot start a job");
}

Result<std::unique_ptr<Job>> Job::Start(JobOptions options) {
  std::unique_ptr<Job> job(new Job(std::move(options), nullptr));
  TDBG_RETURN_IF_ERROR(job->Prepare());
  job->on_terminal_ = base::OwnsTerminal();
  base::SpawnOptions spawn;
  spawn.argv = job->options_.command;
  spawn.set_env = job->options_.environment;
  if (job->options_.log != nullptr) {
    spawn.output_fd = job->options_.log->output_fd();
    spawn.error_fd = job->options_.log->error_fd();
  }
  TDBG_ASSIGN_OR_RETURN(base::Child child, base::Child::Spawn(spawn));
  job->child_ = OwnProcess(std::move(child));
  if (job->options_.log != nullptr) job->options_.log->Started(job->pid());
  job->pidfd_ = base::UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, job->pid(), 0)));
  if (job->on_terminal_) job->listener_.Start(job->pid());
  return job;
}

Result<std::unique_ptr<Job>> Job::Adopt(JobOptions options, const ProcessIdentity& process) {
  TDBG_ASSIGN_OR_RETURN(std::unique_ptr<JobProcess> child, AdoptProcess(process));
  std::unique_ptr<Job> job(new Job(std::move(options), std::move(child)));
  TDBG_RETURN_IF_ERROR(job->Prepare());
  job->pidfd_ = base::UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, job->pid(), 0)));
  return job;
}

void Job::RequestStop(const std::string& by) {
  {
    const std::lock_guard guard(mutex_);
    if (requested_by_.empty()) requested_by_ = by.empty() ? "somebody" : by;
  }
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof(one));
}

// The first reason to stop is kept, except an interruption: a stop requested during one must not restart the
// job.
bool Job::MayBecome(JobStop stop) const {
  return result_.stop == JobStop::kNone ||
         (result_.stop == JobStop::kInterrupted && stop != JobStop::kInterrupted);
}

void Job::EndedBySignal(int signal_number) {
  if (!MayBecome(JobStop::kSignal)) return;
  result_.stop = JobStop::kSignal;
  result_.signal_number = signal_number;
  result_.stopped_by.clear();
}

void Job::Obey(JobStop stop, const std::string& by, int64_t grace_millis) {
  const bool again = obeyed_;  // it already got SIGTERM, and may be saving a checkpoint
  if (again && !MayBecome(stop)) return;
  obeyed_ = true;
  result_.stopped_by = by;
  if (MayBecome(stop)) result_.stop = stop;
  Terminate(again ? 0 : SIGTERM, grace_millis);
  if (options_.on_stopping) options_.on_stopping(stop, by);
}

void Job::ObeyRequests() {
  std::string by;
  {
    const std::lock_guard guard(mutex_);
    by = requested_by_;
  }
  if (!by.empty()) Obey(JobStop::kRequested, by, options_.stop_grace_millis);
}

void Job::Terminate(int signal_number, int64_t grace_millis) {
  if (signal_number != 0) child_->SignalGroup(signal_number);
  const int64_t due = Now() + base::NanosOfMillis(grace_millis);
  kill_at_nanos_ = kill_at_nanos_ == 0 ? due : std::min(kill_at_nanos_, due);
}

void Job::KillWhenDue() {
  if (kill_at_nanos_ == 0 || Now() < kill_at_nanos_) return;
  result_.killed = true;
  child_->SignalGroup(SIGKILL);
  kill_at_nanos_ = Now() + 200 * kNanosPerMilli;  // a second SIGKILL for processes that were forked meanwhile
}

void Job::CountInterrupt(bool child_has_it) {
  EndedBySignal(SIGINT);
  ++interrupts_;
  if (interrupts_ == 1) {
    if (child_has_it) return;
    if (listener_.fd() >= 0) ++echoes_expected_;
    child_->SignalGroup(SIGINT);
  } else if (interrupts_ == 2) {
    Terminate(SIGTERM, options_.stop_grace_millis);
    if (options_.say) {
      options_.say("asked the command to end (SIGTERM); it is killed in " +
                   std::to_string(options_.stop_grace_millis / 1000) + " s, or by another ctrl-C");
    }
  } else {
    kill_at_nanos_ = Now();
  }
}

void Job::HandleSignal(int signal_number) {
  if (signal_number == SIGUSR1 || signal_number == SIGUSR2) {
    child_->SignalGroup(signal_number);
    return;
  }
  if (signal_number == SIGINT) {
    CountInterrupt(/*child_has_it=*/false);
    return;
  }
  EndedBySignal(signal_number);
  if (++terminations_ == 1) {
    Terminate(signal_number, options_.stop_grace_millis);
  } else {
    kill_at_nanos_ = Now();
  }
}

void Job::PollOnce(int64_t longest_millis) {
  if (kill_at_nanos_ != 0) {
    const int64_t left = std::max<int64_t>(0, (kill_at_nanos_ - Now()) / kNanosPerMilli + 1);
    longest_millis = longest_millis < 0 ? left : std::min(longest_millis, left);
  }
  pollfd sources[] = {{wake_.get(), POLLIN, 0},
                      {inbox_->fd(), POLLIN, 0},
                      {listener_.fd(), POLLIN, 0},
                      {pidfd_.get(), POLLIN, 0}};
  // poll's timeout is an int of milliseconds, so a grace period of years is waited for a day at a time.
  (void)::poll(sources, std::size(sources), static_cast<int>(std::min<int64_t>(longest_millis, 86'400'000)));
  uint64_t rings;
  (void)!::read(wake_.get(), &rings, sizeof(rings));
  ObeyRequests();
  while (const int signal_number = inbox_->Next()) HandleSignal(signal_number);
  if (listener_.fd() >= 0) CountHeard(listener_.Take());
  KillWhenDue();
}

void Job::CountHeard(int interrupts) {
  // The listener is in the group, so it also gets the SIGINT that we passed on.
  const int echoes = std::min(interrupts, echoes_expected_);
  echoes_expected_ -= echoes;
  for (interrupts -= echoes; interrupts > 0; --interrupts) CountInterrupt(/*child_has_it=*/true);
}

JobResult Job::Wait() {
  std::optional<ControlFollower> own;
  ControlFollower* control = options_.control;
  if (control == nullptr && !options_.run_directory.empty()) control = &own.emplace(options_.run_directory);
  int64_t slice_millis = -1;
  const auto at_most = [&](int64_t millis) {
    slice_millis = slice_millis < 0 ? millis : std::min(slice_millis, millis);
  };
  if (control) at_most(kControlPollMillis);
  if (options_.interrupts_now) at_most(kRehearsalPollMillis);
  if (on_terminal_ || !pidfd_.ok()) at_most(kTerminalPollMillis);
  if (options_.on_tick && options_.tick_millis > 0) at_most(options_.tick_millis);

  const int64_t ends_nanos =
      options_.max_runtime_millis >= 0 ? Now() + base::NanosOfMillis(options_.max_runtime_millis) : 0;
  if (ends_nanos > 0) at_most(kControlPollMillis);
  int64_t next_tick_nanos = 0;
  while (true) {
    if (const auto exit = child_->Wait(0)) {
      result_.exit = *exit;
      result_.exit_is_known = child_->exit_is_known();
      // It is not our child, so we get no exit code: the workers' records say how it ended.
      if (!result_.exit_is_known &&
          WorkersEnd(options_.run_directory, options_.attempt, options_.host) == "completed")
        result_.exit = {false, 0};
      break;
    }
    if (control) {
      if (const auto request = control->NewRequest()) {
        result_.wipe |= request->wipe;
        if (request->interrupt)
          Obey(JobStop::kInterrupted, request->by,
               request->notice_millis >= 0 ? request->notice_millis : options_.stop_grace_millis);
        else
          RequestStop(request->by);
      }
    }
    if (!obeyed_ && options_.interrupts_now && options_.interrupts_now()) {
      result_.wipe |= options_.interrupts_wipe;
      Obey(JobStop::kInterrupted, options_.interrupts_by, options_.stop_grace_millis);
    }
    if (ends_nanos > 0 && Now() >= ends_nanos)
      Obey(JobStop::kMaxRuntime, "--max-runtime", options_.stop_grace_millis);
    if (options_.on_tick && options_.tick_millis > 0 && Now() >= next_tick_nanos) {
      options_.on_tick();
      next_tick_nanos = Now() + options_.tick_millis * kNanosPerMilli;
    }
    PollOnce(slice_millis);
  }
  // The ctrl-C that ended the command may not have been told to us yet.
  CountHeard(listener_.Finish());
  pidfd_.reset();
  // The training reads the control file itself, between steps, and may have obeyed before we look.
  if (control) {
    if (const auto request = control->NewRequest()) {
      const JobStop stop = request->interrupt ? JobStop::kInterrupted : JobStop::kRequested;
      result_.wipe |= request->wipe;
      if (MayBecome(stop)) {
        result_.stopped_by = request->by;
        result_.stop = stop;
      }
    }
  }
  ClearGroup();
  return result_;
}

void Job::ClearGroup() {
  const bool ended_well = result_.stop == JobStop::kNone && !result_.exit.signaled && result_.exit.code == 0;
  if (!ended_well && child_->GroupAlive()) {
    // A shell would leave them running; but workers of a crashed torchrun, say, would hold the run's locks
    // and the accelerator's memory for ever.
    Terminate(SIGTERM, std::min(options_.leftover_grace_millis, options_.stop_grace_millis));
  }
  while (child_->GroupAlive()) {
    const bool waited_for =
        kill_at_nanos_ != 0 || interrupts_ > 0 ||
        (!options_.run_directory.empty() && AnyWorkerAlive(options_.run_directory, options_.attempt));
    if (!waited_for) break;
    PollOnce(kill_at_nanos_ != 0 ? 20 : 100);
  }
}

}  // namespace tdbg::jobs
