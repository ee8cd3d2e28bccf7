#include "jobs/log_keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/clock.h"
#include "jobs/heartbeat.h"
#include "jobs/log_messages.h"
#include "jobs/secret_mask.h"
#include "jobs/training_output.h"

namespace tdbg::jobs {
namespace {

constexpr int kTerminalMillis = 250;  // how late a new size of the window is seen

class Keeper {
 public:
  explicit Keeper(LogTask task) : task_(std::move(task)), heartbeat_(task_.run_directory, task_.attempt) {
    auto writer = OutputWriter::Open(task_.run_directory, task_.attempt, task_.limit_bytes);
    if (writer.ok()) writer_ = *std::move(writer);  // else it is passed on, and not kept
    for (const LogTask::Source& source : task_.sources)
      sources_.push_back({source, SecretMask(task_.secrets)});
    LetGo();
  }

  // Until everybody who writes is gone.
  void Keep() {
    while (true) {
      std::vector<pollfd> waited;
      for (const Source& source : sources_) waited.push_back({source.task.read_fd, POLLIN, 0});
      waited.push_back({launcher_gone_ ? -1 : STDIN_FILENO, POLLIN, 0});
      // What may be a secret's begin waits for its other half, however late that comes; the end flushes it.
      (void)::poll(waited.data(), waited.size(), Timeout());
      bool any = false, open = false;
      for (size_t i = 0; i < sources_.size(); ++i) {
        if (waited[i].revents != 0) any = Take(sources_[i]) || any;
        open = open || sources_[i].task.read_fd >= 0;
      }
      FollowWindow();
      if (!launcher_gone_ && waited.back().revents != 0) Listen();
      if (finish_ && !any) {
        finish_ = false;
        for (Source& source : sources_) Write(source, source.mask.Flush());
        (void)SendNote(STDIN_FILENO, LogWord::kDone);
      }
      if (!open) break;
    }
    for (Source& source : sources_) Write(source, source.mask.Flush());
    if (finish_ || !launcher_gone_) (void)SendNote(STDIN_FILENO, LogWord::kDone);
  }

 private:
  struct Source {
    LogTask::Source task;
    SecretMask mask;
  };

  int Timeout() const {
    if (finish_) return 0;
    for (const Source& source : sources_) {
      if (source.task.terminal && source.task.read_fd >= 0) return kTerminalMillis;
    }
    return -1;
  }

  // Reads once. \return false where nothing was there
  bool Take(Source& source) {
    std::array<char, 64 << 10> buffer;
    const ssize_t got = ::read(source.task.read_fd, buffer.data(), buffer.size());
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (got <= 0) {  // nobody writes any more; of a pty, EIO
      Close(source);
      return false;
    }
    const std::string_view bytes(buffer.data(), static_cast<size_t>(got));
    Forward(source, bytes);
    Write(source, source.mask.Feed(bytes));
    return true;
  }

  void Close(Source& source) {
    ::close(source.task.read_fd);
    source.task.read_fd = -1;
    source.task.forward_fd = -1;
    LetGo();
  }

  // Of what nothing is forwarded to any more: whoever reads there waits for the last who has it open, and a
  // process that holds the other stream may be a daemon.
  void LetGo() {
    const base::UniqueFd nowhere(::open("/dev/null", O_RDWR | O_CLOEXEC));
    for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
      const bool needed = std::any_of(sources_.begin(), sources_.end(),
                                      [&](const Source& source) { return source.task.forward_fd == fd; });
      if (!needed && nowhere.ok()) (void)::dup2(nowhere.get(), fd);
    }
  }

  void Write(Source& source, const std::string& bytes) {
    if (!writer_ || bytes.empty()) return;
    writer_->Append(bytes, static_cast<OutputStream>(source.task.stream), base::SystemClock().WallNanos(),
                    heartbeat_.Step());
  }

  // Waits as the training itself would have to, where a terminal is stopped or a pipe is full.
  void Forward(Source& source, std::string_view bytes) {
    while (source.task.forward_fd >= 0 && !bytes.empty()) {
      const ssize_t put = ::write(source.task.forward_fd, bytes.data(), bytes.size());
      if (put > 0) {
        bytes.remove_prefix(static_cast<size_t>(put));
      } else if (put < 0 && errno == EAGAIN) {
        pollfd writable{source.task.forward_fd, POLLOUT, 0};
        (void)::poll(&writable, 1, -1);
      } else if (put < 0 && errno != EINTR) {
        // A reader that went away (`| head`) is the command's business, as it would be without us; a terminal
        // that went away, or a full disk, is none, and the disk may have room for the next line.
        if (errno != EPIPE) return;
        (void)SendNote(STDIN_FILENO, LogWord::kReaderGone, &source - sources_.data());
        Close(source);
      }
    }
  }

  void Listen() {
    const auto note = ReceiveNote(STDIN_FILENO, &launcher_gone_);
    if (!note) return;
    if (note->word == LogWord::kCommand) group_ = static_cast<pid_t>(note->number);
    if (note->word == LogWord::kFinish) finish_ = true;
  }

  // The terminal tells the command itself of a new size, but the command asks the pty for it.
  void FollowWindow() {
    for (const Source& source : sources_) {
      winsize now, known;
      if (!source.task.terminal || source.task.read_fd < 0 || source.task.forward_fd < 0) continue;
      if (::ioctl(source.task.forward_fd, TIOCGWINSZ, &now) != 0 ||
          ::ioctl(source.task.read_fd, TIOCGWINSZ, &known) != 0)
        continue;
      if (now.ws_row == known.ws_row && now.ws_col == known.ws_col) continue;
      (void)::ioctl(source.task.read_fd, TIOCSWINSZ, &now);
      if (group_ > 1 && !launcher_gone_) (void)::kill(-group_, SIGWINCH);
    }
  }

  LogTask task_;
  Heartbeat heartbeat_;
  std::optional<OutputWriter> writer_;
  std::vector<Source> sources_;
  bool launcher_gone_ = false;
  bool finish_ = false;
  pid_t group_ = 0;
};

}  // namespace

int KeepLog() {
  // Out of the terminal's reach: ctrl-C, its end and job control are the training's and the launcher's.
  (void)::setsid();
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGTSTP, SIGTTOU, SIGTTIN, SIGXFSZ,
                           SIGUSR1, SIGUSR2, SIGALRM})
    ::signal(number, SIG_IGN);
  auto task = ReceiveTask(STDIN_FILENO);
  if (!task) return 1;
  for (const LogTask::Source& source : task->sources)
    (void)::fcntl(source.read_fd, F_SETFL, ::fcntl(source.read_fd, F_GETFL) | O_NONBLOCK);
  Keeper(*std::move(task)).Keep();
  return 0;
}

}  // namespace tdbg::jobs
