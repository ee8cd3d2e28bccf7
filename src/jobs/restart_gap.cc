#include "jobs/restart_gap.h"

#include <poll.h>
#include <signal.h>

#include <algorithm>

#include "base/clock.h"
#include "jobs/interrupts.h"

namespace tdbg::jobs {
namespace {

constexpr int64_t kLeastMillis = 100, kMostMillis = 60'000;
constexpr int64_t kLongEnoughNanos = 60'000'000'000;
constexpr int64_t kLookMillis = 100;

}  // namespace

int64_t RestartGap::Millis(int64_t ran_nanos) {
  if (next_millis_ == 0 || ran_nanos >= kLongEnoughNanos) next_millis_ = kLeastMillis;
  const int64_t millis = next_millis_;
  next_millis_ = std::min(2 * next_millis_, kMostMillis);
  return millis;
}

bool WaitForRestart(int64_t millis, ControlFollower& control, const std::function<std::string()>& asked,
                    int64_t ends_nanos, JobResult* result) {
  auto inbox = SignalInbox::Open();
  const int64_t until = base::SystemClock().MonotonicNanos() + millis * 1'000'000;
  const auto stop = [&](JobStop why, const std::string& by) {
    result->stop = why;
    result->stopped_by = by;
    return false;
  };
  while (true) {
    while (const int signal_number = inbox.ok() ? inbox->Next() : 0) {
      // Meant for a command, and none is running.
      if (signal_number == SIGUSR1 || signal_number == SIGUSR2) continue;
      result->signal_number = signal_number;
      return stop(JobStop::kSignal, "");
    }
    if (const std::string by = asked(); !by.empty()) return stop(JobStop::kRequested, by);
    // There is nothing to interrupt between two attempts.
    if (const auto request = control.NewRequest(); request && !request->interrupt)
      return stop(JobStop::kRequested, request->by);
    const int64_t now = base::SystemClock().MonotonicNanos();
    if (ends_nanos >= 0 && now >= ends_nanos) return stop(JobStop::kMaxRuntime, "--max-runtime");
    if (now >= until) return true;
    pollfd source{inbox.ok() ? inbox->fd() : -1, POLLIN, 0};
    (void)::poll(&source, 1,
                 static_cast<int>(std::clamp<int64_t>((until - now) / 1'000'000, 1, kLookMillis)));
  }
}

}  // namespace tdbg::jobs
