// What is done about a finding. Actions know nothing of rules or tensors: they get a message.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tdbg/status.h"

namespace tdbg::actions {

/// What happened, ready to be sent.
struct Notice {
  std::string run;            ///< path
  std::string rule;           ///< configuration name
  std::string status;         ///< "IssuesFound"
  int64_t global_step = 0;
  std::string details;        ///< for people
  std::string json;           ///< for programs: the event, one JSON object
};

class Action {
 public:
  virtual ~Action() = default;
  virtual std::string name() const = 0;         ///< "stop", "exec", "webhook"
  /// Bounded in time; called from the watcher's action thread, never from its judging loop.
  virtual Status Perform(const Notice& notice) = 0;
};

/// "stop" | "exec:COMMAND LINE" | "webhook:URL".
/// \param stop  what stopping means here (jobs knows; a watcher without a local job writes to the control file)
/// \error kInvalidArgument  with what is accepted
Result<std::unique_ptr<Action>> ParseAction(const std::string& text, std::function<Status(const Notice&)> stop);

}  // namespace tdbg::actions
