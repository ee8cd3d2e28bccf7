#include "jobs/log_keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
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
      sources_.push_back({source, SecretMask(task_.secrets), {}});
    LetGo();
  }

  // Until everybody who writes is gone.
  void Keep() {
    while (true) {
      // A source is read when what came from it has been forwarded: its writer waits for its own reader, as
      // it would without us, and never for the other stream's.
      std::vector<pollfd> waited;
      for (const Source& source : sources_)
        waited.push_back(source.pending.empty() ? pollfd{source.task.read_fd, POLLIN, 0}
                                                : pollfd{source.task.forward_fd, POLLOUT, 0});
      waited.push_back({launcher_gone_ ? -1 : STDIN_FILENO, POLLIN, 0});
      // What may be a secret's begin waits for its other half, however late that comes; the end flushes it.
      (void)::poll(waited.data(), waited.size(), Timeout());
      bool any = false, open = false;
      for (size_t i = 0; i < sources_.size(); ++i) {
        Source& source = sources_[i];
        if (waited[i].revents != 0) {
          if (!source.pending.empty()) {
            Forward(source);
          } else {
            any = Take(source) || any;
          }
        }
        any = any || !source.pending.empty();
        open = open || source.task.read_fd >= 0;
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
    std::string pending;  ///< read, and not forwarded yet
  };

  int Timeout() const {
    const bool pending = std::any_of(sources_.begin(), sources_.end(),
                                     [](const Source& source) { return !source.pending.empty(); });
    if (finish_ && !pending) return 0;
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
    if (source.task.forward_fd >= 0) {
      source.pending = bytes;
      Forward(source);
    }
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

  // As much as there is room for, without waiting. The descriptor is shared with others and stays blocking; a
  // pipe, a terminal or a socket that is writable takes PIPE_BUF bytes at once.
  void Forward(Source& source) {
    struct stat where = {};
    const bool file = ::fstat(source.task.forward_fd, &where) == 0 && S_ISREG(where.st_mode);
    std::string_view rest = source.pending;
    while (!rest.empty()) {
      pollfd writable{source.task.forward_fd, POLLOUT, 0};
      if (!file && ::poll(&writable, 1, 0) <= 0) break;
      const size_t most = file ? rest.size() : std::min<size_t>(rest.size(), PIPE_BUF);
      const ssize_t put = ::write(source.task.forward_fd, rest.data(), most);
      if (put > 0) {
        rest.remove_prefix(static_cast<size_t>(put));
      } else if (put < 0 && errno == EAGAIN) {
        break;
      } else if (put < 0 && errno != EINTR) {
        // A reader that went away (`| head`) is the command's business, as it would be without us; a terminal
        // that went away, or a full disk, is none, and the disk may have room for the next line.
        const bool reader_gone = errno == EPIPE;
        source.pending.clear();
        if (!reader_gone) return;
        (void)SendNote(STDIN_FILENO, LogWord::kReaderGone, &source - sources_.data());
        Close(source);
        return;
      }
    }
    source.pending.erase(0, source.pending.size() - rest.size());
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
