// What is done about a finding. Actions know nothing of rules or tensors: they get a message.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tdbg/status.h"

namespace tdbg::actions {

/// What happened, ready to be sent.
struct Notice {
  std::string run;     ///< path
  std::string rule;    ///< configuration name
  std::string status;  ///< "IssuesFound"
  int64_t global_step = 0;
  std::string details;  ///< for people
  std::string json;     ///< for programs: the event, one JSON object
};

class Action {
 public:
  virtual ~Action() = default;
  virtual std::string name() const = 0;  ///< "stop", "exec", "webhook"
  /// Bounded in time; called from the watcher's action thread, never from its judging loop.
  virtual Status Perform(const Notice& notice) = 0;
  /// What is safe to show and store: a command line; of a webhook only scheme and host, since paths hold
  /// tokens.
  virtual std::string target() const { return {}; }
  /// What the last Perform's command said, cut to a few kilobytes.
  virtual std::string output() const { return {}; }
};

/// "stop" | "exec:COMMAND LINE" | "webhook:URL".
/// \param stop  what stopping means here; empty: a request in the run's control file (control_request.h)
/// \error kInvalidArgument  with what is accepted
/// exec: `sh -c COMMAND`, 60 seconds, with TDBG_RUN, TDBG_RULE, TDBG_STEP and TDBG_STATUS in its environment
/// and Notice::json on its standard input. webhook: posts Notice::json, three tries.
Result<std::unique_ptr<Action>> ParseAction(const std::string& text,
                                            std::function<Status(const Notice&)> stop);

}  // namespace tdbg::actions
