// Performs rules' actions away from the judging loop.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "actions/action.h"
#include "plan/config.h"
#include "tdbg/status.h"
#include "watch/events.h"

namespace tdbg::watch {

/// What is done about a rule's findings: its `on_issue`, and what its parameters ask for. \param stops_job
/// the rule asks for the job to be stopped \param log  gets a line for each part that is left out
/// \error kInvalidArgument
Result<std::vector<std::shared_ptr<actions::Action>>> ActionsOf(
    const plan::RuleConfig& rule, bool stops_job, const actions::JobControl& job,
    const std::function<void(const std::string&)>& log);

/// One thread per finding performs its actions in the order given, so that a webhook that retries for half a
/// minute does not delay another rule's stop. A rule has one finding, so there are never more threads than
/// rules.
class ActionRunner {
 public:
  /// Asked before each action, which is left out where it returns null; what it returns is kept until the
  /// outcome was reported. Its argument names the action and has no outcome yet.
  using Turn = std::function<std::shared_ptr<void>(const ActionOutcome&)>;
  using Report = std::function<void(const ActionOutcome&)>;
  /// Both are called from those threads, several at a time.
  ActionRunner(Turn turn, Report report) : turn_(std::move(turn)), report_(std::move(report)) {}
  ~ActionRunner() { Join(); }

  void Start(actions::Notice notice, std::vector<std::shared_ptr<actions::Action>> actions);
  /// Waits for everything that was started. Each action has a time limit of its own.
  void Join();

 private:
  const Turn turn_;
  const Report report_;
  std::vector<std::thread> threads_;
};

}  // namespace tdbg::watch
