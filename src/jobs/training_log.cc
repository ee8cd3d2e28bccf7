#include "jobs/training_log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "base/companion.h"
#include "jobs/training_output.h"

namespace tdbg::jobs {
namespace {

// If tdbg-log is killed this often, somebody wants it to be gone.
constexpr int kMaxRestarts = 20;

// A closed standard stream is occupied by a descriptor that closes on exec (OccupyStandardStreams of the
// command line).
bool IsOpen(int fd) {
  const int flags = ::fcntl(fd, F_GETFD);
  return flags >= 0 && (flags & FD_CLOEXEC) == 0;
}

bool SamePlace(int a, int b) {
  struct stat first, second;
  return ::fstat(a, &first) == 0 && ::fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

// Moves a descriptor to a number above 2, so that a child does not take it for a standard stream.
base::UniqueFd Above(int fd) {
  base::UniqueFd given(fd);
  if (fd > STDERR_FILENO || fd < 0) return given;
  return base::UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
}

// Sets the pty to pass output unchanged: the real terminal converts line ends.
Status OpenPty(int like, base::UniqueFd* master, base::UniqueFd* slave) {
  *master = Above(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  char name[128];
  if (!master->ok() || ::grantpt(master->get()) != 0 || ::unlockpt(master->get()) != 0 ||
      ::ptsname_r(master->get(), name, sizeof(name)) != 0)
    return ErrnoStatus(errno, "no terminal is to be had for the command's output");
  *slave = base::OpenFd(name, O_RDWR | O_NOCTTY);
  if (!slave->ok()) return ErrnoStatus(errno, "no terminal is to be had for the command's output");
  termios settings;
  if (::tcgetattr(like, &settings) == 0) {
    settings.c_oflag &= ~static_cast<tcflag_t>(OPOST);
    settings.c_lflag &= ~static_cast<tcflag_t>(ECHO);
    (void)::tcsetattr(slave->get(), TCSANOW, &settings);
  }
  winsize size;
  if (::ioctl(like, TIOCGWINSZ, &size) == 0) (void)::ioctl(slave->get(), TIOCSWINSZ, &size);
  return OkStatus();
}

}  // namespace

Status TrainingLog::Add(int target, uint32_t stream, base::UniqueFd* command_end) {
  LogTask::Source source;
  source.stream = stream;
  source.forward_fd = target;
  base::UniqueFd read_end;
  if (target >= 0 && ::isatty(target)) {
    source.terminal = true;
    TDBG_RETURN_IF_ERROR(OpenPty(target, &read_end, command_end));
  } else {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "no pipe is to be had for the output");
    read_end = Above(ends[0]);
    *command_end = Above(ends[1]);
  }
  source.read_fd = read_end.get();
  read_ends_.push_back(std::move(read_end));
  task_.sources.push_back(source);
  return OkStatus();
}

Result<std::unique_ptr<TrainingLog>> TrainingLog::Start(const TrainingLogOptions& options) {
  std::unique_ptr<TrainingLog> log(new TrainingLog);
  log->forward_ = options.forward;
  log->task_.run_directory = options.run_directory;
  log->task_.attempt = options.attempt;
  log->task_.node = options.node;
  log->task_.limit_bytes = options.limit_bytes;
  log->task_.secrets = options.secrets;
  // tdbg-log has nobody to tell it; the same is tried here, before it is there.
  log->kept_ =
      OutputWriter::Open(options.run_directory, options.attempt, options.limit_bytes, options.node).status();
  const auto number = [](OutputStream stream) { return static_cast<uint32_t>(stream); };
  if (!options.forward) {
    log->same_ = true;
    TDBG_RETURN_IF_ERROR(log->Add(-1, number(OutputStream::kBoth), &log->output_));
  } else {
    const bool out = IsOpen(STDOUT_FILENO), err = IsOpen(STDERR_FILENO);
    log->same_ = out && err && SamePlace(STDOUT_FILENO, STDERR_FILENO);
    const OutputStream first = log->same_ ? OutputStream::kBoth : OutputStream::kOut;
    if (out) TDBG_RETURN_IF_ERROR(log->Add(STDOUT_FILENO, number(first), &log->output_));
    if (err && !log->same_)
      TDBG_RETURN_IF_ERROR(log->Add(STDERR_FILENO, number(OutputStream::kErr), &log->error_));
  }
  if (!log->task_.sources.empty()) TDBG_RETURN_IF_ERROR(log->StartKeeper());
  return log;
}

TrainingLog::~TrainingLog() = default;

Status TrainingLog::StartKeeper() {
  std::erase_if(task_.sources, [](const LogTask::Source& source) { return source.read_fd < 0; });
  std::erase_if(read_ends_, [](const base::UniqueFd& fd) { return !fd.ok(); });
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return ErrnoStatus(errno, "cannot start tdbg-log");
  socket_ = Above(ends[0]);
  const base::UniqueFd theirs = Above(ends[1]);
  base::SpawnOptions spawn;
  spawn.argv = {base::FindCompanion("tdbg-log")};
  spawn.input_fd = theirs.get();
  spawn.own_group = false;  // it calls setsid, which the leader of a group may not
  base::UniqueFd nowhere;
  if (!forward_) {  // otherwise a reader of a background job's first output would get no end of file
    nowhere = Above(::open("/dev/null", O_WRONLY | O_CLOEXEC));
    spawn.output_fd = nowhere.get();
  }
  spawn.working_directory = std::string("/");
  TDBG_ASSIGN_OR_RETURN(keeper_, base::Child::Spawn(spawn));
  if (const int error = SendTask(socket_.get(), task_)) return ErrnoStatus(error, "cannot start tdbg-log");
  if (command_ > 0) (void)SendNote(socket_.get(), LogWord::kCommand, command_);
  return OkStatus();
}

void TrainingLog::Started(pid_t command) {
  command_ = command;
  output_.reset();
  error_.reset();
  if (keeper_) (void)SendNote(socket_.get(), LogWord::kCommand, command);
}

void TrainingLog::Listen() {
  bool gone = false;
  while (const auto note = ReceiveNote(socket_.get(), &gone)) {
    const auto index = static_cast<size_t>(note->number);
    if (note->word != LogWord::kReaderGone || index >= read_ends_.size()) continue;
    read_ends_[index].reset();
    task_.sources[index].read_fd = -1;
  }
}

void TrainingLog::Tend() {
  if (!keeper_) return;
  Listen();
  const auto exit = keeper_->Wait(0);
  if (!exit) {
    // If tdbg-log is stopped (SIGSTOP), the training would stop as soon as the pipe is full.
    (void)::kill(keeper_->pid(), SIGCONT);
    return;
  }
  keeper_.reset();
  if (!exit->signaled || restarts_++ >= kMaxRestarts || !StartKeeper().ok()) read_ends_.clear();
}

void TrainingLog::Finish(int64_t longest_millis) {
  Tend();
  if (!keeper_) return;
  const int64_t deadline = base::SystemClock().MonotonicNanos() + longest_millis * 1'000'000;
  // Our copy would keep tdbg-log from getting the end of file.
  read_ends_.clear();
  if (!SendNote(socket_.get(), LogWord::kFinish)) return;
  while (true) {
    const int64_t left = (deadline - base::SystemClock().MonotonicNanos()) / 1'000'000;
    pollfd source{socket_.get(), POLLIN, 0};
    if (left <= 0 || ::poll(&source, 1, static_cast<int>(left)) <= 0) return;
    bool gone = false;
    const auto note = ReceiveNote(socket_.get(), &gone);
    if (gone || (note && note->word == LogWord::kDone)) return;
  }
}

}  // namespace tdbg::jobs
