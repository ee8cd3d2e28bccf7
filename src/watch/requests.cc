#include "watch/requests.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "actions/control_request.h"
#include "base/clock.h"
#include "base/durations.h"
#include "format/json_fields.h"
#include "trial/access.h"
#include "watch/breakpoints.h"

namespace tdbg::watch {
namespace {

constexpr size_t kStepsOfRate = 20;
constexpr double kSecondsAhead = 1.0;
constexpr int64_t kLookMillis = 200;
constexpr const char* kTopic = "checkpoint";

double StepsPerSecond(const TrialAccess& access) {
  const auto steps = access.steps();
  const size_t n = std::min(kStepsOfRate, steps.size());
  if (n < 2) return 0;
  const auto& first = steps[steps.size() - n].info;
  const auto& last = steps.back().info;
  const double seconds = static_cast<double>(last.wall_nanos - first.wall_nanos) * 1e-9;
  return seconds > 0 ? static_cast<double>(last.global_step - first.global_step) / seconds : 0;
}

}  // namespace

int64_t CommonFutureStep(const Trial& trial) {
  const TrialAccess access(trial);
  int64_t attempt = 0, seen = -1;
  for (const auto& worker : access.workers()) attempt = std::max(attempt, worker.attempt);
  size_t alive = 0;
  for (const auto& worker : access.workers()) {
    if (worker.attempt != attempt) continue;
    seen = std::max({seen, worker.last_seen_step, worker.last_step});
    alive += worker.alive;
  }
  // All of them are held after the same step: nobody passes it before the request is there.
  const std::vector<Held> held = HeldWorkers(trial);
  if (alive > 0 && held.size() == alive &&
      std::ranges::all_of(held, [&](const Held& h) { return h.after_step == held.front().after_step; }))
    return held.front().after_step;
  if (access.world_size(attempt) <= 1) return seen + 1;
  return seen + 2 + static_cast<int64_t>(std::ceil(StepsPerSecond(access) * kSecondsAhead));
}

Status SaveCheckpoint(const std::string& run, const std::string& by, int64_t at_step, int64_t seconds) {
  TDBG_ASSIGN_OR_RETURN(const std::string id, actions::RequestCheckpoint(run, by, at_step));
  // Opens a trial of its own, because the watcher's belongs to the watcher's thread.
  TDBG_ASSIGN_OR_RETURN(const std::unique_ptr<Trial> trial, Trial::Open(run));
  const int64_t deadline =
      base::SystemClock().MonotonicNanos() + base::NanosOfMillis(base::MillisOfSeconds(seconds));
  while (base::SystemClock().MonotonicNanos() < deadline) {
    auto news = trial->Refresh();
    if (!news.ok()) return news.status();
    const auto text = trial->context(kTopic, trial->last_seen_step() + 1);
    const auto answer = text ? nlohmann::json::parse(*text, nullptr, false) : nlohmann::json();
    std::string whose, error;
    if (answer.is_object() && format::GetField(answer, "id", &whose) && whose == id) {
      format::GetField(answer, "error", &error);
      return error.empty() ? OkStatus() : FailedPrecondition(error);
    }
    if (trial->loaded_all_steps()) return FailedPrecondition("the job ended first");
    (void)trial->WaitForChange(kLookMillis);
  }
  return {Code::kDeadlineExceeded, "no answer within " + std::to_string(seconds) + " s"};
}

}  // namespace tdbg::watch
