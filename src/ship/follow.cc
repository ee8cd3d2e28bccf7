#include "ship/follow.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "base/clock.h"
#include "trial/access.h"

namespace tdbg::ship {
namespace {

constexpr int64_t kOpenMillis = 100;
// How long to wait before looking without having been rung: a process that died rings no doorbell.
constexpr int64_t kLookMillis = 1000;

int64_t MillisNow() { return base::SystemClock().MonotonicNanos() / 1'000'000; }

/// The place of a follower in a run that grows and whose attempts are overlaid.
class Position {
 public:
  Status Ship(const TrialAccess& access, Destination& destination,
              const std::function<Status(size_t, size_t)>& progress) {
    if (access.overlay_generation() != overlay_generation_) {
      const bool first = next_ == 0;
      overlay_generation_ = access.overlay_generation();
      const int64_t base = access.overlay_base();
      if (!first && base <= last_step_) {
        TDBG_RETURN_IF_ERROR(destination.Rewind(base));
        last_step_ = base - 1;
      }
      // The overlay has changed the positions of steps, not the order of their numbers: search by number.
      const auto steps = access.steps();
      next_ = static_cast<size_t>(std::partition_point(steps.begin(), steps.end(),
                                                       [this](const TrialAccess::Step& step) {
                                                         return step.info.global_step <= last_step_;
                                                       }) -
                                  steps.begin());
    }
    const size_t end = access.complete_count();
    for (; next_ < end; ++next_) {
      if (progress) TDBG_RETURN_IF_ERROR(progress(next_, end));
      TDBG_RETURN_IF_ERROR(destination.Take(access, next_));
      last_step_ = access.steps()[next_].info.global_step;
    }
    return OkStatus();
  }

 private:
  uint64_t overlay_generation_ = 0;
  size_t next_ = 0;
  int64_t last_step_ = -1;
};

}  // namespace

Status ShipAll(Trial& trial, Destination& destination,
               const std::function<Status(size_t done, size_t total)>& progress) {
  const TrialAccess access(trial);
  Position position;
  TDBG_RETURN_IF_ERROR(position.Ship(access, destination, progress));
  TDBG_RETURN_IF_ERROR(destination.Flush());
  return destination.Finish(access);
}

Status Follower::Open(std::unique_ptr<Trial>* trial) {
  while (true) {
    const bool ended = job_ended();
    TrialOptions trial_options;
    trial_options.attempt = options_.attempt;
    trial_options.wait_millis = ended ? 0 : kOpenMillis;
    auto opened = Trial::Open(options_.run, trial_options);
    if (opened.ok()) {
      *trial = *std::move(opened);
      const std::lock_guard lock(mutex_);
      wakeable_ = trial->get();
      return OkStatus();
    }
    const Code code = opened.status().code();
    if (ended || (code != Code::kNotFound && code != Code::kDeadlineExceeded)) return opened.status();
  }
}

Status Follower::Follow(Destination& destination) {
  std::unique_ptr<Trial> trial;
  TDBG_RETURN_IF_ERROR(Open(&trial));
  const auto forget = [this](Trial*) {
    const std::lock_guard lock(mutex_);
    wakeable_ = nullptr;
  };
  const std::unique_ptr<Trial, decltype(forget)> guard(trial.get(), forget);

  Position position;
  while (true) {
    // Asked before the refresh, which then sees everything that was written before the job ended.
    const bool over = job_ended();
    const int64_t looked_millis = MillisNow();
    auto news = trial->Refresh();
    const TrialAccess access(*trial);
    // After a failed refresh (a directory that is being moved, an NFS server that is down) it is tried again.
    if (news.ok()) {
      TDBG_RETURN_IF_ERROR(position.Ship(access, destination, {}));
      TDBG_RETURN_IF_ERROR(destination.Flush());
    } else if (over) {
      return news.status();
    }
    if (over || (!options_.wait_for_job_end && trial->loaded_all_steps())) {
      damage_ = trial->damage();
      return destination.Finish(access);
    }
    (void)trial->WaitForChange(kLookMillis);
    Nap(looked_millis + options_.nap_millis);
  }
}

void Follower::JobEnded() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  ended_changed_.notify_all();
  if (wakeable_) wakeable_->Wake();
}

bool Follower::job_ended() {
  const std::lock_guard lock(mutex_);
  return ended_;
}

void Follower::Nap(int64_t until_millis) {
  std::unique_lock lock(mutex_);
  ended_changed_.wait_for(lock, std::chrono::milliseconds(std::max<int64_t>(0, until_millis - MillisNow())),
                          [this] { return ended_; });
}

}  // namespace tdbg::ship
