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

constexpr int kTerminalMillis = 250;  // how often the terminal's size is checked

class Keeper {
 public:
  explicit Keeper(LogTask task) : task_(std::move(task)), heartbeat_(task_.run_directory, task_.attempt) {
    auto writer = OutputWriter::Open(task_.run_directory, task_.attempt, task_.limit_bytes, task_.node);
    if (writer.ok()) writer_ = *std::move(writer);  // else it is passed on, and not kept
    for (const LogTask::Source& source : task_.sources)
      sources_.push_back({source, SecretMask(task_.secrets), {}});
    LetGo();
  }

  // Runs until all writers are gone.
  void Keep() {
    while (true) {
      // Read a source only when its earlier output has been forwarded: so its writer waits for that stream's
      // reader, as it would without us, and never for the other stream's.
      std::vector<pollfd> waited;
      for (const Source& source : sources_)
        waited.push_back(source.pending.empty() ? pollfd{source.task.read_fd, POLLIN, 0}
                                                : pollfd{source.task.forward_fd, POLLOUT, 0});
      waited.push_back({launcher_gone_ ? -1 : STDIN_FILENO, POLLIN, 0});
      // Bytes that may be the beginning of a secret are held until more comes, however late, or the stream
      // ends.
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

  // Reads once. \return false if there was nothing to read
  bool Take(Source& source) {
    std::array<char, 64 << 10> buffer;
    const ssize_t got = ::read(source.task.read_fd, buffer.data(), buffer.size());
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (got <= 0) {  // no writer is left; on a pty this is EIO
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

  // Closes a stream to which nothing will be forwarded any more: its reader gets the end of file only when
  // the last process closes it, and the other stream may be held open by a daemon for long.
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

  // Writes as much as there is room for, without waiting. The descriptor is shared with other processes, so
  // it has to stay blocking; but a writable pipe, terminal or socket takes PIPE_BUF bytes without blocking.
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
        // If the reader went away (`| head`), the command must notice, as it would without us. If the
        // terminal went away or the disk is full, it need not: the disk may have room for the next line. Nor
        // if the launcher was killed with whoever read its output: the training goes on without both.
        const bool reader_gone = errno == EPIPE;
        source.pending.clear();
        if (!reader_gone) return;
        if (LauncherGone()) {
          source.task.forward_fd = -1;
          LetGo();
          return;
        }
        (void)SendNote(STDIN_FILENO, LogWord::kReaderGone, &source - sources_.data());
        Close(source);
        return;
      }
    }
    source.pending.erase(0, source.pending.size() - rest.size());
  }

  void Listen() {
    while (const auto note = ReceiveNote(STDIN_FILENO, &launcher_gone_)) {
      if (note->word == LogWord::kCommand) group_ = static_cast<pid_t>(note->number);
      if (note->word == LogWord::kFinish) finish_ = true;
    }
  }

  bool LauncherGone() {
    if (!launcher_gone_) Listen();
    return launcher_gone_;
  }

  // The terminal signals a new size to the command, but the command reads the size from our pty.
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
  // Leave the terminal's session: ctrl-C, hang-up and job control are for the training and the launcher.
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
