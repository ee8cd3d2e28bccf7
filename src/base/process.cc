#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <utility>

#include "base/clock.h"
#include "base/posix.h"
#include "base/process_group.h"
#include "base/terminal.h"
#include "base/text.h"

extern char** environ;

namespace tdbg::base {
namespace {

// Everything the child needs is laid out before fork: between fork and exec of a threaded process nothing may
// allocate, since another thread may have held malloc's lock at that instant.
struct Prepared {
  std::vector<std::string> strings;  // environment entries and candidates own their bytes here
  std::vector<char*> argv, envp, candidates;
  const char* working_directory = nullptr;
  int stdin_fd = -1;
  int output_fd = -1, error_fd = -1;
  bool own_group = true;
  bool give_terminal = false;
  bool die_with_thread = false;
  uint64_t memory_bytes = 0;
  pid_t parent = -1;
};

std::vector<std::string> Environment(const std::map<std::string, std::string>& set_env) {
  std::vector<std::string> entries;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string_view text = *entry;
    if (!set_env.contains(std::string(text.substr(0, text.find('='))))) entries.emplace_back(text);
  }
  for (const auto& [name, value] : set_env) entries.push_back(name + "=" + value);
  return entries;
}

// The PATH of the child's environment, as `env PATH=... command` has it.
std::vector<std::string> Candidates(const std::string& command, const std::vector<std::string>& environment) {
  if (command.find('/') != std::string::npos) return {command};
  std::string_view path = "/usr/local/bin:/usr/bin:/bin";
  for (const std::string& entry : environment) {
    if (entry.starts_with("PATH=")) path = std::string_view(entry).substr(5);
  }
  std::vector<std::string> candidates;
  while (true) {
    const size_t colon = path.find(':');
    const std::string_view directory = path.substr(0, colon);
    candidates.push_back(std::string(directory.empty() ? "." : directory) + "/" + command);
    if (colon == std::string_view::npos) return candidates;
    path.remove_prefix(colon + 1);
  }
}

// What the child reads is put into memory and not into a pipe: a child that never reads would block a pipe's
// writer at 64 KiB, and one that exits early would send us SIGPIPE.
Result<UniqueFd> StdinOf(const std::string& text) {
  UniqueFd fd(static_cast<int>(::syscall(SYS_memfd_create, "tdbg-stdin", MFD_CLOEXEC)));
  if (!fd.ok()) return ErrnoStatus(errno, "cannot prepare the command's standard input");
  if (const int error = WriteFully(fd.get(), std::as_bytes(std::span(text)))) {
    return ErrnoStatus(error, "cannot prepare the command's standard input");
  }
  ::lseek(fd.get(), 0, SEEK_SET);
  return fd;
}

[[noreturn]] void Fail(int report_fd, int error) {
  (void)!::write(report_fd, &error, sizeof(error));
  ::_exit(127);
}

// In the child, with every signal blocked. Async-signal-safe calls only.
[[noreturn]] void Exec(const Prepared& prepared, int report_fd) {
  if (prepared.own_group) ::setpgid(0, 0);
  if (prepared.give_terminal) GiveTerminalTo(::getpid());
  if (prepared.die_with_thread) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != prepared.parent) ::_exit(127);  // it died before we asked
  }
  if (prepared.memory_bytes > 0) {
    const rlimit data{prepared.memory_bytes, prepared.memory_bytes}, core{0, 0};
    if (::setrlimit(RLIMIT_DATA, &data) != 0) Fail(report_fd, errno);
    ::setrlimit(RLIMIT_CORE, &core);
  }
  // Our handlers would run in the child between unblocking and exec. What is ignored stays so: `nohup tdbg
  // run` must protect the training, too. SIGPIPE alone is reset, since servers and Python ignore it for
  // themselves.
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction action;
    if (::sigaction(number, nullptr, &action) != 0) continue;
    if (action.sa_handler == SIG_DFL || (action.sa_handler == SIG_IGN && number != SIGPIPE)) continue;
    action = {};
    action.sa_handler = SIG_DFL;
    ::sigaction(number, &action, nullptr);
  }
  if (prepared.stdin_fd >= 0 && ::dup2(prepared.stdin_fd, STDIN_FILENO) < 0) Fail(report_fd, errno);
  if (prepared.output_fd >= 0 && ::dup2(prepared.output_fd, STDOUT_FILENO) < 0) Fail(report_fd, errno);
  if (prepared.error_fd >= 0 && ::dup2(prepared.error_fd, STDERR_FILENO) < 0) Fail(report_fd, errno);
  if (prepared.working_directory && ::chdir(prepared.working_directory) != 0) Fail(report_fd, errno);
  sigset_t none;
  sigemptyset(&none);
  pthread_sigmask(SIG_SETMASK, &none, nullptr);
  // As execvp: the search goes on behind what is not there, and "may not be executed" is remembered since it
  // says more than "not found" in the last directory of PATH.
  int error = ENOENT;
  for (size_t i = 0; i + 1 < prepared.candidates.size(); ++i) {
    ::execve(prepared.candidates[i], prepared.argv.data(), prepared.envp.data());
    if (errno == EACCES || (errno != ENOENT && errno != ENOTDIR)) error = errno;
    if (errno != EACCES && errno != ENOENT && errno != ENOTDIR) break;
  }
  Fail(report_fd, error);
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& text : strings) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

std::optional<ExitState> Decode(int status) {
  if (WIFEXITED(status)) return ExitState{false, WEXITSTATUS(status)};
  if (WIFSIGNALED(status)) return ExitState{true, WTERMSIG(status)};
  return std::nullopt;
}

pid_t WaitPid(pid_t pid, int* status, int options) {
  pid_t got;
  do {
    got = ::waitpid(pid, status, options);
  } while (got < 0 && errno == EINTR);
  return got;
}

}  // namespace

Result<Child> Child::Spawn(const SpawnOptions& options) {
  if (options.argv.empty() || options.argv[0].empty()) return InvalidArgument("no command given");
  const std::vector<std::string> environment = Environment(options.set_env);
  const std::vector<std::string> candidates = Candidates(options.argv[0], environment);
  Prepared prepared;
  prepared.argv = Pointers(options.argv);
  prepared.envp = Pointers(environment);
  prepared.candidates = Pointers(candidates);
  if (!options.working_directory.empty()) prepared.working_directory = options.working_directory.c_str();
  prepared.output_fd = options.output_fd;
  prepared.error_fd = options.error_fd >= 0 ? options.error_fd : options.output_fd;
  prepared.own_group = options.own_group;
  prepared.give_terminal = options.own_group && !options.pipe_stdin && options.input_fd < 0 && OwnsTerminal();
  prepared.die_with_thread = options.die_with_thread;
  prepared.memory_bytes = options.memory_bytes;
  prepared.parent = ::getpid();
  prepared.stdin_fd = options.input_fd;
  UniqueFd stdin_fd;
  if (options.pipe_stdin) {
    TDBG_ASSIGN_OR_RETURN(stdin_fd, StdinOf(options.stdin_text));
    prepared.stdin_fd = stdin_fd.get();
  }
  // The child's exec closes its end; until then a byte in it is the reason why there was no exec.
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "cannot start a command");
  UniqueFd report(ends[0]);
  UniqueFd child_end(ends[1]);

  sigset_t all, previous;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &previous);
  const pid_t pid = ::fork();
  if (pid == 0) Exec(prepared, child_end.get());
  const int fork_error = errno;
  // Called by parent and child: whichever is first, the group exists before the child runs and before we
  // signal it.
  if (pid > 0 && options.own_group) ::setpgid(pid, pid);
  if (pid > 0 && prepared.give_terminal) GiveTerminalTo(pid);
  pthread_sigmask(SIG_SETMASK, &previous, nullptr);
  if (pid < 0) return ErrnoStatus(fork_error, "cannot start a command");

  child_end.reset();
  int error = 0;
  ssize_t got;
  do {
    got = ::read(report.get(), &error, sizeof(error));
  } while (got < 0 && errno == EINTR);
  if (got == sizeof(error)) {
    int status;
    WaitPid(pid, &status, 0);
    if (prepared.give_terminal) GiveTerminalTo(::getpgrp());
    const bool missing = error == ENOENT || error == ENOTDIR || error == EACCES || error == ENOEXEC;
    const Status why = ErrnoStatus(error, "cannot run '" + options.argv[0] + "'");
    return missing ? NotFound(why.message()) : why;
  }
  Child child;
  child.pid_ = pid;
  child.own_group_ = options.own_group;
  child.gave_terminal_ = prepared.give_terminal;
  child.pidfd_ = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));  // -1 before Linux 5.3: Wait polls then
  return child;
}

Child::Child(Child&& other) noexcept { *this = std::move(other); }

Child& Child::operator=(Child&& other) noexcept {
  if (this == &other) return *this;
  if (pidfd_ >= 0) ::close(pidfd_);
  pid_ = std::exchange(other.pid_, -1);
  pidfd_ = std::exchange(other.pidfd_, -1);
  own_group_ = other.own_group_;
  gave_terminal_ = std::exchange(other.gave_terminal_, false);
  group_gone_ = other.group_gone_;
  exit_ = other.exit_;
  return *this;
}

Child::~Child() {
  if (pidfd_ >= 0) ::close(pidfd_);
}

std::optional<ExitState> Child::Wait(int timeout_millis) {
  const int64_t deadline = SystemClock().MonotonicNanos() + int64_t{timeout_millis} * 1'000'000;
  while (!exit_ && pid_ > 0) {
    int status = 0;
    const pid_t got = WaitPid(pid_, &status, WNOHANG | (gave_terminal_ ? WUNTRACED : 0));
    if (got == pid_ && WIFSTOPPED(status)) {
      FollowStop(WSTOPSIG(status));
    } else if (got == pid_) {
      exit_ = Decode(status);
    } else if (got < 0) {
      // Somebody else has reaped it (a host program that ignores SIGCHLD): gone, and its code with it.
      exit_ = ExitState{false, 255};
    }
    if (exit_) {
      if (gave_terminal_) GiveTerminalTo(::getpgrp());
      gave_terminal_ = false;
      break;
    }
    int64_t left_millis = -1;
    if (timeout_millis >= 0) {
      const int64_t left_nanos = deadline - SystemClock().MonotonicNanos();
      if (left_nanos <= 0) return std::nullopt;
      left_millis = (left_nanos + 999'999) / 1'000'000;
    }
    // A pidfd tells of the end only, not of ctrl-Z; without one, nothing tells.
    const int64_t slice_millis = pidfd_ < 0 ? 10 : gave_terminal_ ? 100 : -1;
    if (slice_millis >= 0 && (left_millis < 0 || left_millis > slice_millis)) left_millis = slice_millis;
    pollfd source{pidfd_, POLLIN, 0};
    (void)::poll(&source, 1, static_cast<int>(left_millis));
  }
  return exit_;
}

void Child::FollowStop(int signal_number) {
  const bool wants_terminal = signal_number == SIGTTIN || signal_number == SIGTTOU;
  if (!(wants_terminal && OwnsTerminal())) {
    // The shell knows our group only: if we did not stop, too, it would wait for a job that is stopped.
    if (::tcgetpgrp(STDIN_FILENO) == pid_) GiveTerminalTo(::getpgrp());
    ::kill(0, SIGTSTP);
    // Here again after fg or bg.
  }
  if (OwnsTerminal()) GiveTerminalTo(pid_);
  ::kill(-pid_, SIGCONT);
}

void Child::SignalGroup(int signal_number) {
  if (pid_ <= 0) return;
  if (own_group_) {
    // A group's number is not given away while it has a member, but may be afterwards.
    if (!exit_ || GroupAlive()) (void)::kill(-pid_, signal_number);
  } else if (!exit_) {
    (void)::kill(pid_, signal_number);
  }
}

bool Child::GroupAlive() const {
  if (pid_ <= 0 || group_gone_) return false;
  if (!own_group_) return !exit_ && ::kill(pid_, 0) == 0;
  const bool alive = GroupHasLivingMember(pid_);
  // The kernel gives the leader's number to another process only after it was reaped.
  if (!alive && exit_) group_gone_ = true;
  return alive;
}

}  // namespace tdbg::base
