#include "jobs/interrupts.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

namespace tdbg::jobs {
namespace {

constexpr int kForwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

// Asks the listener for its last words. Nobody sends it to a group, and of several pending signals the kernel
// hands out the lowest number first: a SIGINT that was there before is told before.
int FinishSignal() { return SIGRTMAX; }

// A stopped listener (somebody's SIGSTOP to the group) is not waited for any longer.
constexpr int kLastWordsMillis = 1000;

// Before Linux 5.9 there is no call for that; headers may be as old. The number is that of all processors.
void CloseRange(unsigned first, unsigned last) {
  constexpr long kCloseRange = 436;
  constexpr unsigned kMostOneByOne = 65536;
  if (first > last || ::syscall(kCloseRange, first, last, 0) == 0) return;
  for (unsigned fd = first; fd <= std::min(last, kMostOneByOne); ++fd) ::close(static_cast<int>(fd));
}

void CloseAllBut(int fd) {
  const auto kept = static_cast<unsigned>(fd);
  if (kept > 0) CloseRange(0, kept - 1);
  CloseRange(kept + 1, UINT_MAX);
}

// Runs in the listener's process, forked from one with threads: async-signal-safe calls only.
[[noreturn]] void Listen(pid_t leader, int report_fd, pid_t launcher) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  sigset_t all;
  sigfillset(&all);
  ::sigprocmask(SIG_BLOCK, &all, nullptr);
  if (::getppid() != launcher || ::setpgid(0, leader) != 0) ::_exit(0);
  // Otherwise a reader of the job's output would get no end of file while this process lives; and a command
  // whose reader is gone (`| head`) would wait for it instead of getting an error.
  CloseAllBut(report_fd);
  while (true) {
    int number = 0;
    if (::sigwait(&all, &number) != 0) ::_exit(0);
    if (number == SIGINT && ::write(report_fd, "c", 1) != 1) ::_exit(0);
    if (number == FinishSignal()) ::_exit(0);
  }
}

}  // namespace

sigset_t ForwardedSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : kForwarded) sigaddset(&set, number);
  return set;
}

void BlockForwardedSignals() {
  const sigset_t set = ForwardedSignals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

Result<SignalInbox> SignalInbox::Open() {
  const sigset_t set = ForwardedSignals();
  SignalInbox inbox;
  inbox.fd_ = base::UniqueFd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!inbox.fd_.ok()) return ErrnoStatus(errno, "cannot listen for signals");
  return inbox;
}

int SignalInbox::Next() {
  signalfd_siginfo info;
  const ssize_t got = ::read(fd_.get(), &info, sizeof(info));
  return got == static_cast<ssize_t>(sizeof(info)) ? static_cast<int>(info.ssi_signo) : 0;
}

void DrainForwardedSignals() {
  auto inbox = SignalInbox::Open();
  while (inbox.ok() && inbox->Next() != 0) {
  }
}

InterruptListener::~InterruptListener() { Stop(); }

void InterruptListener::Start(pid_t leader) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return;
  base::UniqueFd read_end(ends[0]);
  base::UniqueFd write_end(ends[1]);
  const pid_t launcher = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) Listen(leader, write_end.get(), launcher);
  if (pid < 0) return;
  pid_ = pid;
  pipe_ = std::move(read_end);
}

void InterruptListener::Stop() {
  pipe_.reset();
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  int status;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

int InterruptListener::Take() {
  char bytes[64];
  const ssize_t got = ::read(pipe_.get(), bytes, sizeof(bytes));
  if (got > 0) return static_cast<int>(got);
  if (got == 0) Stop();  // the listener is gone; its end of file would wake the caller for ever
  return 0;
}

int InterruptListener::Finish() {
  int heard = 0;
  if (pid_ > 0) ::kill(pid_, FinishSignal());
  while (pid_ > 0) {
    pollfd source{pipe_.get(), POLLIN, 0};
    if (::poll(&source, 1, kLastWordsMillis) <= 0) break;
    heard += Take();  // stops it at its end of file
  }
  Stop();
  return heard;
}

}  // namespace tdbg::jobs
