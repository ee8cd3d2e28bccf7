#include "watch/action_runner.h"

#include <algorithm>
#include <exception>

#include "base/clock.h"

namespace tdbg::watch {

Result<std::vector<std::shared_ptr<actions::Action>>> ActionsOf(
    const plan::RuleConfig& rule, bool stops_job, const actions::JobControl& job,
    const std::function<void(const std::string&)>& log) {
  std::vector<std::shared_ptr<actions::Action>> list;
  std::vector<std::string> texts = rule.on_issue;
  if (stops_job && std::find(texts.begin(), texts.end(), "stop") == texts.end()) texts.push_back("stop");
  for (const std::string& text : texts) {
    TDBG_ASSIGN_OR_RETURN(auto action, actions::ParseAction(text, job));
    list.push_back(std::move(action));
  }
  const auto json = rule.parameters.find("action_json");
  if (json == rule.parameters.end()) return list;
  std::vector<std::string> skipped;
  TDBG_ASSIGN_OR_RETURN(auto theirs, actions::ParseActionJson(json->second, job, &skipped));
  for (auto& action : theirs) list.push_back(std::move(action));
  for (const std::string& what : skipped) log("action_json: left out: " + what);
  return list;
}

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
