// EventBridge's rules and targets, as far as they are handlers of a job's events (docs/events.md).
#pragma once

#include <string>
#include <string_view>

#include "service/functions.h"
#include "service/reply.h"
#include "tdbg/status.h"

namespace tdbg::service {

/// In the service's directory: what every job's events are delivered to, in the form of a file of handlers.
inline constexpr const char* kHandlersFile = "handlers.json";

/// Rules and targets on the disk. Every change of them, or of a function, writes kHandlersFile anew. One
/// thread.
class EventRules {
 public:
  /// \param directory  the service's; `handlers.json`, `event-rules.json` and `functions/` are in it
  EventRules(const std::string& directory, const std::string& region, const std::string& account)
      : directory_(directory),
        region_(region),
        account_(account),
        functions_(directory, region, account, [this] { return WriteHandlers(ReadRules()); }) {}

  /// "PutRule" and so on. \pre the request has the operation's shape
  Answer<Json> AnswerEvents(const std::string& operation, const Json& request);
  Functions& functions() { return functions_; }

 private:
  Json ReadRules() const;
  Status WriteRules(const Json& rules) const;
  Status WriteHandlers(const Json& rules) const;
  Answer<Json> PutTargets(const Json& request, Json* targets) const;

  std::string directory_, region_, account_;
  Functions functions_;
};

}  // namespace tdbg::service
