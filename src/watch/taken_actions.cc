#include "watch/taken_actions.h"

#include <errno.h>
#include <fcntl.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <thread>

#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/posix.h"
#include "format/version.h"

namespace tdbg::watch {
namespace {

constexpr int64_t kPatienceNanos = 600 * int64_t{1'000'000'000};  // longer than nearly all actions take
constexpr auto kLook = std::chrono::milliseconds(50);

// A lock on one byte of the run's events, which belongs to that action of that finding. The kernel takes it
// back when the process dies. Nothing else locks that file, and its lines are appended without a lock.
base::UniqueFd Lock(const std::string& run, const std::string& key) {
  const std::string path = base::JoinPath(run, format::kEventsFile);
  base::UniqueFd fd(::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd.ok()) return fd;
  struct flock byte = {};
  byte.l_type = F_WRLCK;
  byte.l_whence = SEEK_SET;
  byte.l_start = static_cast<off_t>(base::Hash64(std::as_bytes(std::span(key))) >> 2);
  byte.l_len = 1;
  const int64_t deadline = base::SystemClock().MonotonicNanos() + kPatienceNanos;
  while (::fcntl(fd.get(), F_OFD_SETLK, &byte) != 0) {
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EACCES) break;
    if (base::SystemClock().MonotonicNanos() >= deadline) break;
    std::this_thread::sleep_for(kLook);
  }
  return fd;
}

}  // namespace

void TakenActions::LeaveOut(const actions::Notice& notice, int64_t wall_nanos, int64_t cooldown_seconds,
                            const std::function<void(const std::string&)>& log,
                            std::vector<std::shared_ptr<actions::Action>>* list) {
  if (list->empty()) return;
  if (!std::exchange(is_read_, true)) {
    auto taken = ReadActions(run_);
    for (size_t i = 0; taken.ok() && i < taken->size(); ++i) {
      ActionOutcome& before = (*taken)[i];
      if (before.status.ok()) by_rule_[before.rule].push_back(std::move(before));
    }
  }
  const auto of_rule = by_rule_.find(notice.rule);
  if (of_rule == by_rule_.end()) return;
  std::erase_if(*list, [&](const std::shared_ptr<actions::Action>& action) {
    for (const ActionOutcome& before : of_rule->second) {
      if (before.action != action->name() || before.target != action->target()) continue;
      const bool same = before.global_step == notice.global_step && before.attempt == notice.attempt;
      // A time in the future: the clock was set back since, so it is not known how long ago it was.
      const bool soon = !action->needs_job() && wall_nanos >= before.wall_nanos &&
                        (wall_nanos - before.wall_nanos) / 1'000'000'000 < cooldown_seconds;
      if (!same && !soon) continue;
      if (!same) log(action->name() + " for rule " + notice.rule + " was done a moment ago; not again");
      return true;
    }
    return false;
  });
}

std::shared_ptr<void> TakeTurn(const std::string& run, const ActionOutcome& next) {
  const std::string key = next.rule + "\n" + next.action + "\n" + next.target + "\n" +
                          std::to_string(next.global_step) + "\n" + std::to_string(next.attempt);
  auto turn = std::make_shared<base::UniqueFd>(Lock(run, key));
  const auto taken = ReadActions(run);
  const bool done = taken.ok() && std::ranges::any_of(*taken, [&](const ActionOutcome& before) {
                      return before.status.ok() && before.rule == next.rule && before.action == next.action &&
                             before.target == next.target && before.global_step == next.global_step &&
                             before.attempt == next.attempt;
                    });
  return done ? nullptr : turn;
}

}  // namespace tdbg::watch
