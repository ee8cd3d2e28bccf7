#include "jobs/log_keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "jobs/kept_log.h"
#include "jobs/log_copy.h"
#include "jobs/log_messages.h"
#include "jobs/output_pump.h"

namespace tdbg::jobs {
namespace {

constexpr int kTerminalMillis = 250;  // how often the terminal's size is checked

// The launcher's end of our socket is closed.
bool LauncherGone() {
  pollfd socket{STDIN_FILENO, 0, 0};
  return ::poll(&socket, 1, 0) > 0 && (socket.revents & (POLLHUP | POLLERR)) != 0;
}

// Speaks with the launcher. Handing output on and keeping it are threads of their own, so that neither waits
// for the other, nor this one for them.
class Keeper {
 public:
  explicit Keeper(const LogTask& task)
      : log_(task), copy_([this](const LogPiece& piece) { log_.Keep(piece); }) {
    changed_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    nowhere_ = base::OpenFd("/dev/null", O_RDWR);
    for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
      if (std::ranges::none_of(task.sources, [&](const auto& source) { return source.forward_fd == fd; }))
        LetGo(fd);
    }
  }

  // \return false if there is no thread to be had for it
  bool Begin(const LogTask& task) {
    for (const LogTask::Source& source : task.sources) {
      auto pump = OutputPump::Start({source, changed_.get(),
                                     [this, at = streams_.size()](auto bytes) { copy_.Put(at, bytes); },
                                     [] { return !LauncherGone(); }});
      if (!pump.ok()) return false;
      streams_.push_back({*std::move(pump), source.forward_fd, source.terminal});
    }
    return true;
  }

  // Runs until all writers are gone.
  void Keep() {
    while (std::ranges::any_of(streams_, [](const Stream& stream) { return !stream.seen_end; })) {
      pollfd waited[] = {{changed_.get(), POLLIN, 0}, {launcher_gone_ ? -1 : STDIN_FILENO, POLLIN, 0}};
      (void)::poll(waited, 2, Timeout());
      uint64_t count;
      (void)!::read(changed_.get(), &count, sizeof(count));
      if (waited[1].revents != 0) Listen();
      for (size_t i = 0; i < streams_.size(); ++i) Look(i);
      if (finish_ && std::ranges::all_of(streams_, [](const Stream& stream) {
            return stream.seen_end || stream.pump.idle();
          }))
        Done();
    }
    Done();
  }

 private:
  struct Stream {
    OutputPump pump;
    int forward_fd;
    bool terminal;
    bool seen_end = false;
  };

  int Timeout() const {
    const bool terminal = std::ranges::any_of(
        streams_, [](const Stream& stream) { return stream.terminal && !stream.seen_end; });
    return terminal ? kTerminalMillis : -1;
  }

  void Look(size_t index) {
    Stream& stream = streams_[index];
    if (!stream.seen_end && stream.pump.ended()) {
      stream.seen_end = true;
      if (const int error = stream.pump.error())
        (void)SendNote(STDIN_FILENO, LogWord::kOutputGone, GoneNumber(index, error));
      LetGo(stream.forward_fd);
    }
    // The terminal signals a new size to the command, but the command reads the size from our pty.
    if (stream.pump.FollowWindow() && group_ > 1 && !launcher_gone_) (void)::kill(-group_, SIGWINCH);
  }

  // Closes a stream to which nothing will be forwarded any more: its reader gets the end of file only when
  // the last process closes it, and the other stream may be held open by a daemon for long.
  void LetGo(int fd) {
    if (fd >= 0 && nowhere_.ok()) (void)::dup2(nowhere_.get(), fd);
  }

  void Done() {
    finish_ = false;
    copy_.Flush(streams_.size());
    if (!launcher_gone_) (void)SendNote(STDIN_FILENO, LogWord::kDone, static_cast<int64_t>(log_.lost()));
  }

  void Listen() {
    while (const auto note = ReceiveNote(STDIN_FILENO, &launcher_gone_)) {
      if (note->word == LogWord::kCommand) group_ = static_cast<pid_t>(note->number);
      if (note->word != LogWord::kFinish) continue;
      finish_ = true;
      for (Stream& stream : streams_) stream.pump.AskForIdle();
    }
  }

  KeptLog log_;  ///< copy_'s thread alone calls it, and lost() while that has nothing to do
  LogCopy copy_;
  base::UniqueFd changed_, nowhere_;
  std::vector<Stream> streams_;
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
  const auto task = ReceiveTask(STDIN_FILENO);
  if (!task) return 1;
  for (const LogTask::Source& source : task->sources)
    (void)::fcntl(source.read_fd, F_SETFL, ::fcntl(source.read_fd, F_GETFL) | O_NONBLOCK);
  Keeper keeper(*task);
  if (!keeper.Begin(*task)) ::_exit(1);  // the launcher hands on itself what is left
  keeper.Keep();
  return 0;
}

}  // namespace tdbg::jobs
