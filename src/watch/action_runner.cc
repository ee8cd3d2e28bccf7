#include "watch/action_runner.h"

#include <exception>

#include "base/clock.h"

namespace tdbg::watch {

void ActionRunner::Start(actions::Notice notice, std::vector<std::shared_ptr<actions::Action>> actions) {
  if (actions.empty()) return;
  threads_.emplace_back(
      [turn = turn_, report = report_, notice = std::move(notice), actions = std::move(actions)] {
        for (const std::shared_ptr<actions::Action>& action : actions) {
          ActionOutcome outcome;
          outcome.rule = notice.rule;
          outcome.action = action->name();
          outcome.target = action->target();
          outcome.global_step = notice.global_step;
          outcome.attempt = notice.attempt;
          const std::shared_ptr<void> ours = turn(outcome);
          if (!ours) continue;
          const int64_t begin = base::SystemClock().MonotonicNanos();
          try {
            outcome.status = action->Perform(notice);
          } catch (const std::exception& error) {
            outcome.status = Internal(error.what());
          }
          outcome.millis = (base::SystemClock().MonotonicNanos() - begin) / 1'000'000;
          outcome.output = action->output();
          report(outcome);
        }
      });
}

void ActionRunner::Join() {
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

}  // namespace tdbg::watch
