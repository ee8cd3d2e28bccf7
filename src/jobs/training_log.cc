#include "jobs/training_log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/background.h"
#include "base/clock.h"
#include "base/companion.h"
#include "jobs/training_output.h"

namespace tdbg::jobs {
namespace {

// If tdbg-log is killed this often, somebody wants it to be gone.
constexpr int kMaxRestarts = 20;
// If tdbg-log is stopped (SIGSTOP), the training would stop as soon as the pipe is full.
constexpr int kContinueMillis = 250;

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
  if (log->task_.sources.empty()) return log;
  log->wake_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!log->wake_.ok()) return ErrnoStatus(errno, "cannot start tdbg-log");
  TDBG_RETURN_IF_ERROR(log->StartKeeper());
  TDBG_ASSIGN_OR_RETURN(log->tender_,
                        base::StartInBackground("tdbg-log-tender", [&tended = *log] { tended.Tend(); }));
  return log;
}

TrainingLog::~TrainingLog() { StopTending(); }

void TrainingLog::StopTending() {
  if (!tender_.joinable()) return;
  {
    const std::lock_guard guard(mutex_);
    end_ = true;
  }
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof(one));
  tender_.join();
}

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
  const std::lock_guard guard(mutex_);
  command_ = command;
  output_.reset();
  error_.reset();
  if (keeper_) (void)SendNote(socket_.get(), LogWord::kCommand, command);
}

void TrainingLog::Tend() {
  std::unique_lock lock(mutex_);
  while (!end_) {
    Look();
    lock.unlock();
    WaitForNews(kContinueMillis);
    lock.lock();
  }
}

void TrainingLog::WaitForNews(int64_t millis) {
  // Replaced by the thread that is here, and by no other.
  pollfd sources[] = {{wake_.get(), POLLIN, 0},
                      {keeper_ ? socket_.get() : -1, POLLIN, 0},
                      {keeper_ ? keeper_->poll_fd() : -1, POLLIN, 0}};
  (void)::poll(sources, std::size(sources), static_cast<int>(millis));
  uint64_t count;
  (void)!::read(wake_.get(), &count, sizeof(count));
}

void TrainingLog::Look() {
  for (size_t i = 0; i < pumps_.size(); ++i) {
    if (const int error = pumps_[i].ended() ? pumps_[i].error() : 0) OutputGone(pumped_[i], error);
  }
  if (!keeper_) return;
  Listen();
  const auto exit = keeper_->Wait(0);
  if (!exit) {
    (void)::kill(keeper_->pid(), SIGCONT);
    return;
  }
  Listen();  // its last words
  keeper_.reset();
  if (!exit->signaled && exit->code == 0) {
    read_ends_.clear();
  } else if (!exit->signaled || restarts_++ >= kMaxRestarts || !StartKeeper().ok()) {
    HandOnOurselves();
  }
}

void TrainingLog::Listen() {
  bool gone = false;
  while (const auto note = ReceiveNote(socket_.get(), &gone)) {
    if (note->word == LogWord::kOutputGone) OutputGone(IndexOfGone(note->number), ErrorOfGone(note->number));
    if (note->word != LogWord::kDone) continue;
    done_ = true;
    lost_bytes_ += static_cast<uint64_t>(note->number);
  }
}

void TrainingLog::OutputGone(size_t index, int error) {
  if (index >= read_ends_.size() || !read_ends_[index].ok()) return;
  read_ends_[index].reset();
  task_.sources[index].read_fd = -1;
  if (error == EPIPE || !output_error_.empty()) return;
  const auto stream = static_cast<OutputStream>(task_.sources[index].stream);
  output_error_ = ErrnoStatus(error, stream == OutputStream::kBoth  ? "standard output and error"
                                     : stream == OutputStream::kOut ? "standard output"
                                                                    : "standard error")
                      .message();
}

// A training goes before its log: what nobody reads would stop it, what nobody can read would end it.
void TrainingLog::HandOnOurselves() {
  keeper_.reset();
  kept_ = Unavailable("tdbg-log was ended, and no other one can be started");
  for (size_t i = 0; i < task_.sources.size(); ++i) {
    OutputPump::Options options;
    options.source = task_.sources[i];
    if (options.source.read_fd < 0) continue;
    options.source.read_fd = ::fcntl(options.source.read_fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    options.changed_fd = wake_.get();
    auto pump = OutputPump::Start(std::move(options));
    if (!pump.ok()) {
      read_ends_[i].reset();  // better an error in the command than a wait without end
      continue;
    }
    pumps_.push_back(*std::move(pump));
    pumped_.push_back(i);
  }
}

void TrainingLog::Finish(int64_t longest_millis) {
  StopTending();
  const int64_t deadline = base::SystemClock().MonotonicNanos() + longest_millis * 1'000'000;
  bool pumps_asked = false;
  for (int asked_at = -1;;) {
    const std::lock_guard guard(mutex_);
    Look();
    if (!keeper_ && pumps_.empty()) break;
    // Our copies of the reading ends stay until the answer: if tdbg-log is killed now, the next one reads on.
    if (keeper_ && asked_at != std::exchange(asked_at, restarts_))
      (void)SendNote(socket_.get(), LogWord::kFinish);
    if (!pumps_.empty() && !std::exchange(pumps_asked, true)) {
      for (OutputPump& pump : pumps_) pump.AskForIdle();
    }
    const bool idle = std::ranges::all_of(pumps_, [](auto& pump) { return pump.idle() || pump.ended(); });
    if (keeper_ ? done_ : idle) break;
    const int64_t left = (deadline - base::SystemClock().MonotonicNanos()) / 1'000'000;
    if (left <= 0) break;
    WaitForNews(std::min<int64_t>(left, kContinueMillis));
  }
  read_ends_.clear();  // our copies would keep tdbg-log from getting the end of file
}

}  // namespace tdbg::jobs
