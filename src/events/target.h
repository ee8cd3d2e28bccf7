// What a handler calls: one function makes the target of each kind.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "events/handlers.h"
#include "tdbg/status.h"

namespace tdbg::events {

struct Event {
  std::string id;
  std::string text;  ///< as it stands in events.jsonl
  nlohmann::json json;
};

struct Outcome {
  Status status;
  std::string output;  ///< what was printed, the last kilobytes
  /// The process that should have handled it crashed or was killed, not by us.
  bool process_gone = false;
};

/// Used by one thread. A failure of the target is reported as an Outcome and never harms this process.
class Target {
 public:
  virtual ~Target() = default;
  /// Starts what would make the first event slow (a Python process). Returns at once.
  virtual void Prepare() {}
  /// Returns within the handler's time limits.
  virtual Outcome Deliver(const Event& event) = 0;
};

/// \param run  the run's directory, $TDBG_RUN
std::unique_ptr<Target> MakeTarget(const Handler& handler, const std::string& run);
std::unique_ptr<Target> MakePythonTarget(const Handler& handler, const std::string& run);

/// Can its file be imported, as far as that can be told without running it? \error kInvalidArgument
Status CheckPython(const Handler& handler);

/// The body that Slack's incoming webhooks take.
std::string SlackMessage(const nlohmann::json& event);

}  // namespace tdbg::events
