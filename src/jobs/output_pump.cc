#include "jobs/output_pump.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <mutex>
#include <thread>
#include <utility>

#include "base/background.h"
#include "base/posix.h"

namespace tdbg::jobs {

struct OutputPump::State {
  Options options;
  base::UniqueFd read_end, asked, changed;
  std::atomic<bool> stop = false, idle = false, ended = false;
  std::atomic<int> error = 0;
  std::mutex closing;  ///< of read_end

  void Run();
  bool Take();
  int Forward(std::string_view rest);
  void Tell() {
    const uint64_t one = 1;
    (void)!::write(changed.get(), &one, sizeof(one));
  }
};

void OutputPump::State::Run() {
  while (!stop) {
    pollfd sources[] = {{read_end.get(), POLLIN, 0}, {asked.get(), POLLIN, 0}};
    if (::poll(sources, 2, -1) < 0) continue;
    if (stop) break;
    if (sources[0].revents != 0) {
      if (!Take()) break;
    } else if (sources[1].revents != 0) {
      uint64_t count;
      (void)!::read(asked.get(), &count, sizeof(count));
      idle = true;
      Tell();
    }
  }
  {
    const std::lock_guard guard(closing);
    read_end.reset();
  }
  ended = true;
  Tell();
}

// Reads once. \return false if it has ended
bool OutputPump::State::Take() {
  std::array<char, 64 << 10> buffer;
  const ssize_t got = ::read(read_end.get(), buffer.data(), buffer.size());
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (got <= 0) return false;  // no writer is left; on a pty this is EIO
  const std::string_view bytes(buffer.data(), static_cast<size_t>(got));
  const int failed = options.source.forward_fd >= 0 ? Forward(bytes) : 0;
  if (options.copy) options.copy(bytes);
  // If the terminal went away, the command need not notice. Nor if the launcher was killed with whoever read
  // its output: the training goes on without both.
  if (failed == 0 || options.source.terminal) return true;
  if (failed == EPIPE && options.reader_counts && !options.reader_counts()) {
    options.source.forward_fd = -1;
    return true;
  }
  error = failed;
  return false;
}

// \return 0 or errno. The descriptor is shared with other processes, whoever of them made it non-blocking.
int OutputPump::State::Forward(std::string_view rest) {
  while (!rest.empty()) {
    const ssize_t put = ::write(options.source.forward_fd, rest.data(), rest.size());
    if (put > 0) {
      rest.remove_prefix(static_cast<size_t>(put));
    } else if (put < 0 && errno == EAGAIN) {
      pollfd writable{options.source.forward_fd, POLLOUT, 0};
      (void)::poll(&writable, 1, -1);
    } else if (put == 0 || errno != EINTR) {
      return put == 0 ? EIO : errno;
    }
  }
  return 0;
}

Result<OutputPump> OutputPump::Start(Options options) {
  auto state = std::make_shared<State>();
  state->read_end.reset(options.source.read_fd);
  state->options = std::move(options);
  state->changed.reset(::fcntl(state->options.changed_fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  state->asked.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!state->changed.ok() || !state->asked.ok()) return ErrnoStatus(errno, "cannot hand the output on");
  TDBG_ASSIGN_OR_RETURN(std::thread thread,
                        base::StartInBackground("tdbg-output", [state] { state->Run(); }));
  thread.detach();
  return OutputPump(std::move(state));
}

OutputPump::~OutputPump() {
  if (!state_) return;
  state_->stop = true;
  AskForIdle();
}

void OutputPump::AskForIdle() {
  state_->idle = false;
  const uint64_t one = 1;
  (void)!::write(state_->asked.get(), &one, sizeof(one));
}

bool OutputPump::idle() const { return state_->idle; }
bool OutputPump::ended() const { return state_->ended; }
int OutputPump::error() const { return state_->error; }

bool OutputPump::FollowWindow() {
  const std::lock_guard guard(state_->closing);
  const LogTask::Source& source = state_->options.source;
  winsize now, known;
  if (!source.terminal || !state_->read_end.ok() || source.forward_fd < 0) return false;
  if (::ioctl(source.forward_fd, TIOCGWINSZ, &now) != 0 ||
      ::ioctl(state_->read_end.get(), TIOCGWINSZ, &known) != 0)
    return false;
  if (now.ws_row == known.ws_row && now.ws_col == known.ws_col) return false;
  return ::ioctl(state_->read_end.get(), TIOCSWINSZ, &now) == 0;
}

}  // namespace tdbg::jobs
