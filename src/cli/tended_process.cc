#include "cli/tended_process.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <thread>
#include <utility>

#include "base/background.h"
#include "base/clock.h"
#include "base/posix.h"
#include "base/process.h"
#include "cli/output.h"

namespace tdbg::cli {
namespace {

constexpr int kTermMillis = 2000;
constexpr int kLookMillis = 100;
constexpr int kIdleLookMillis = 1000;
constexpr int kRestartPauseMillis = 100;
constexpr int64_t kMostStarts = 1000;  // limit for a process that is killed again and again

}  // namespace

struct TendedProcess::Impl {
  std::vector<std::string> words;
  std::string what;
  base::UniqueFd theirs;
  base::UniqueFd job_is_alive;  // closed: it is not
  std::thread tending;
  std::atomic<int64_t> until_nanos = -1;  // monotonic; -1: the job lives
  std::optional<base::ExitState> ended;   // by itself; written by `tending`

  void Tend() {
    for (int64_t starts = 1; starts <= kMostStarts; ++starts) {
      base::SpawnOptions spawn;
      spawn.argv = words;
      spawn.input_fd = theirs.get();
      auto child = base::Child::Spawn(spawn);
      if (!child.ok()) return Note(what + ": " + child.status().message());
      std::optional<base::ExitState> exit;
      while (!(exit = child->Wait(until_nanos < 0 ? kIdleLookMillis : kLookMillis))) {
        const int64_t until = until_nanos;
        if (until < 0 || base::SystemClock().MonotonicNanos() < until) continue;
        Note(what + ": it took too long after the end of the job and was cut short");
        child->SignalGroup(SIGTERM);
        if (!child->Wait(kTermMillis)) child->SignalGroup(SIGKILL);
        (void)child->Wait(kTermMillis);
        return;
      }
      if (!exit->signaled) {  // if anything was wrong, it has said so
        ended = exit;
        return;
      }
      if (starts == 1)
        Note(fmt::format("{}: its process was ended by signal {}; another goes on", what, exit->code));
      ::usleep(kRestartPauseMillis * 1000);
    }
    Note(what + ": its process was ended again and again; it is not started any more");
  }
};

TendedProcess::TendedProcess() = default;
TendedProcess::~TendedProcess() { (void)Finish(0); }

void TendedProcess::Start(std::vector<std::string> arguments, std::string what, std::string program) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Note(ErrnoStatus(errno, what).message());
  auto impl = std::make_unique<Impl>();
  impl->theirs.reset(ends[0]);
  impl->job_is_alive.reset(ends[1]);
  impl->words = std::move(arguments);
  impl->words.insert(impl->words.begin(), program.empty() ? base::SelfExecutable() : std::move(program));
  impl->what = std::move(what);
  auto tending = base::StartInBackground("tdbg-tend", [impl = impl.get()] { impl->Tend(); });
  if (!tending.ok()) return Note(impl->what + ": " + tending.status().message());
  impl->tending = *std::move(tending);
  impl_ = std::move(impl);
}

std::optional<base::ExitState> TendedProcess::Finish(int64_t grace_millis) {
  if (!impl_) return std::nullopt;
  impl_->until_nanos = base::SystemClock().MonotonicNanos() + grace_millis * 1'000'000;
  impl_->job_is_alive.reset();
  impl_->tending.join();
  const std::optional<base::ExitState> ended = impl_->ended;
  impl_.reset();
  return ended;
}

}  // namespace tdbg::cli
