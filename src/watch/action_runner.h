// Performs rules' actions away from the judging loop.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "actions/action.h"
#include "watch/events.h"

namespace tdbg::watch {

/// A thread per notice, its actions in the order given: a webhook that retries for half a minute does not
/// hold up the stop that another rule asks for. A rule hits once, so there are never more threads than rules.
class ActionRunner {
 public:
  using Report = std::function<void(const ActionOutcome&)>;
  /// `report` is called from those threads, several at a time.
  explicit ActionRunner(Report report) : report_(std::move(report)) {}
  ~ActionRunner() { Join(); }

  void Start(actions::Notice notice, std::vector<std::shared_ptr<actions::Action>> actions);
  /// Waits for everything that was started. Actions bound their own time.
  void Join();

 private:
  const Report report_;
  std::vector<std::thread> threads_;
};

}  // namespace tdbg::watch
