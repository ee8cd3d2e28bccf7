#include "jobs/job_process.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>
#include <utility>

namespace tdbg::jobs {
namespace {

// The exit code that shells use for a process whose own is unknown.
constexpr int kUnknownCode = 255;

class Own : public JobProcess {
 public:
  explicit Own(base::Child child) : child_(std::move(child)) {}
  pid_t pid() const override { return child_.pid(); }
  std::optional<base::ExitState> Wait(int timeout_millis) override { return child_.Wait(timeout_millis); }
  bool exit_is_known() const override { return true; }
  void SignalGroup(int signal_number) override { child_.SignalGroup(signal_number); }
  bool GroupAlive() const override { return child_.GroupAlive(); }

 private:
  base::Child child_;
};

class Adopted : public JobProcess {
 public:
  Adopted(pid_t pid, base::UniqueFd pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}
  pid_t pid() const override { return pid_; }

  std::optional<base::ExitState> Wait(int timeout_millis) override {
    if (!ended_) {
      pollfd source{pidfd_.get(), POLLIN, 0};
      ended_ = ::poll(&source, 1, timeout_millis) > 0;
    }
    if (!ended_) return std::nullopt;
    return base::ExitState{false, kUnknownCode};
  }

  bool exit_is_known() const override { return false; }

  void SignalGroup(int signal_number) override {
    if (!ended_ || GroupAlive()) (void)::kill(-pid_, signal_number);
  }

  bool GroupAlive() const override {
    if (group_gone_) return false;
    const bool alive = ::kill(-pid_, 0) == 0 || errno == EPERM;
    // Once the group's leader is gone, its number may be reused.
    if (!alive && ended_) group_gone_ = true;
    return alive;
  }

 private:
  pid_t pid_;
  base::UniqueFd pidfd_;
  bool ended_ = false;
  mutable bool group_gone_ = false;
};

}  // namespace

std::unique_ptr<JobProcess> OwnProcess(base::Child child) { return std::make_unique<Own>(std::move(child)); }

Result<std::unique_ptr<JobProcess>> AdoptProcess(const ProcessIdentity& process) {
  const auto pid = static_cast<pid_t>(process.pid);
  base::UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  // Check the identity after opening: from here on the descriptor refers to that process, even if its number
  // is reused.
  if (!pidfd.ok() || !IsAlive(process)) return NotFound("process " + std::to_string(pid) + " is gone");
  if (::getpgid(pid) != pid)
    return FailedPrecondition("process " + std::to_string(pid) + " leads no process group");
  return std::unique_ptr<JobProcess>(std::make_unique<Adopted>(pid, std::move(pidfd)));
}

}  // namespace tdbg::jobs
