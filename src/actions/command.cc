#include "actions/command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "base/posix.h"
#include "base/text.h"

namespace tdbg::actions {
namespace {

constexpr int kGraceMillis = 2000;
constexpr int kLookMillis = 20;
constexpr int kReadsAtOnce = 64;  // 256 KiB: more than a pipe holds, unless somebody goes on writing

// Reads what is there. Beyond the limit it is read and thrown away: a command that talks a lot must neither
// fill our memory nor wait on a full pipe. Not until nothing is left: whoever writes as fast as we read
// (`yes`) would keep us beyond any time limit.
void Drain(int fd, std::string* output) {
  char buffer[4096];
  for (int reads = 0; reads < kReadsAtOnce; ++reads) {
    const ssize_t got = ::read(fd, buffer, sizeof(buffer));
    if (got <= 0) return;
    const size_t room = kMaxOutput - std::min(kMaxOutput, output->size());
    output->append(buffer, std::min(room, static_cast<size_t>(got)));
  }
}

}  // namespace

Result<CommandResult> RunCommand(base::SpawnOptions options, int64_t limit_millis) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "cannot start a command");
  base::UniqueFd read_end(ends[0]), write_end(ends[1]);
  ::fcntl(read_end.get(), F_SETFL, O_NONBLOCK);
  options.output_fd = write_end.get();
  options.own_group = true;
  TDBG_ASSIGN_OR_RETURN(base::Child child, base::Child::Spawn(options));
  write_end.reset();

  CommandResult result;
  const int64_t deadline = base::SystemClock().MonotonicNanos() + limit_millis * 1'000'000;
  std::optional<base::ExitState> exit;
  // Do not read until the pipe ends: a background process that inherited it would keep us for as long as it
  // lives.
  while (!(exit = child.Wait(0))) {
    if (base::SystemClock().MonotonicNanos() >= deadline) {
      result.timed_out = true;
      child.SignalGroup(SIGTERM);
      exit = child.Wait(kGraceMillis);
      child.SignalGroup(SIGKILL);
      if (!exit) exit = child.Wait(-1);
      break;
    }
    pollfd source{read_end.get(), POLLIN, 0};
    if (::poll(&source, 1, kLookMillis) > 0) {
      Drain(read_end.get(), &result.output);
      // Closed by the command while it runs on: poll would return at once for ever.
      if ((source.revents & POLLHUP) != 0) (void)child.Wait(kLookMillis);
    }
  }
  Drain(read_end.get(), &result.output);
  result.exit = *exit;
  result.output = base::ToValidUtf8(result.output);
  return result;
}

}  // namespace tdbg::actions
