// What is done about a finding. Actions know nothing of rules or tensors: they get a message.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tdbg/status.h"

namespace tdbg::actions {

/// What happened, ready to be sent.
struct Notice {
  std::string run;     ///< path
  std::string rule;    ///< configuration name
  std::string status;  ///< "IssuesFound"
  int64_t global_step = 0;
  std::string step_name;  ///< as people are told it: "TRAIN step 5 (global 7)"; empty: "step 7"
  int64_t attempt = 0;    ///< of the job, whose step it is
  /// A step that no worker has reached yet: requests to the running job take effect there, on all alike.
  int64_t at_step = -1;
  std::string details;   ///< for people
  std::string incident;  ///< in one sentence, the first of several
  std::string advice;    ///< what to do about it; empty of another rule than the profile
  // Of the profile only:
  std::string headline;   ///< "parameters get no gradient"
  std::string incidents;  ///< all that are not muted, in the lines of `tdbg status`
  std::string json;       ///< for programs: the event, one JSON object
};

class Action {
 public:
  virtual ~Action() = default;
  virtual std::string name() const = 0;  ///< "stop", "exec", "webhook", "email", "sms", "capture", ...
  /// True: the action speaks to the running job, and is skipped once the job has ended.
  virtual bool needs_job() const { return false; }
  /// Bounded in time; called from the watcher's action thread, never from its judging loop.
  virtual Status Perform(const Notice& notice) = 0;
  /// What is safe to show and store: a command line; of a webhook only scheme and host, since paths hold
  /// tokens.
  virtual std::string target() const { return {}; }
  /// What the last Perform's command said, cut to a few kilobytes.
  virtual std::string output() const { return {}; }
};

/// What actions do to the job, given by whoever owns it.
struct JobControl {
  /// What stopping means here; empty: a request in the run's control file (control_request.h).
  std::function<Status(const Notice&)> stop = {};
  /// Asks for a checkpoint and waits for it, but not longer than so many seconds. Empty: there is nobody to
  /// ask.
  std::function<Status(const Notice&, int64_t seconds)> checkpoint = {};
};

/// "stop" | "exec:COMMAND LINE" | "webhook:URL" | "email:ADDRESS" | "sms:+DIGITS" |
/// "capture:COLLECTION[+COLLECTION ...][:STEPS]" | "checkpoint_stop[:SECONDS]" | "pause[:SECONDS]" |
/// "blackbox".
/// \error kInvalidArgument  with what is accepted
/// exec: `sh -c COMMAND`, 60 seconds, with TDBG_RUN, TDBG_RULE, TDBG_STEP, TDBG_STATUS, TDBG_INCIDENT and
/// TDBG_ADVICE in its environment and Notice::json on its standard input. webhook: posts Notice::json, three
/// tries.
Result<std::unique_ptr<Action>> ParseAction(const std::string& text, const JobControl& job);

/// smdebug's and SageMaker's: a JSON object or a list of objects with a `name` (StopTraining, Email, SMS, in
/// any case), their quotes perhaps escaped. What is unknown or lacks its endpoint is left out and said in
/// `*skipped`.
/// \error kInvalidArgument  not JSON
Result<std::vector<std::unique_ptr<Action>>> ParseActionJson(const std::string& text, const JobControl& job,
                                                             std::vector<std::string>* skipped);

/// The variable that the URL of a webhook is in ("webhook:$NAME"); empty for every other action.
std::string VariableOfAction(const std::string& action);

}  // namespace tdbg::actions
