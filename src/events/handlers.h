// Handlers as a file lists them: which events each gets, and what it does with them (docs/events.md).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "events/pattern.h"
#include "plan/config.h"
#include "tdbg/status.h"

namespace tdbg::events {

enum class HandlerKind : uint8_t { kPython, kExec, kWebhook, kLog };

struct Handler {
  std::string name;
  HandlerKind kind = HandlerKind::kPython;
  /// Python: FILE:FUNCTION, the file absolute. Exec: a command line. Webhook: a URL. Log: a file, absolute.
  std::string target;
  Pattern pattern;
  bool slack = false;  ///< webhook: send a message for Slack's incoming webhooks, not the event itself
  int64_t limit_seconds = 60;
  int64_t limit_start_seconds = 60;    ///< Python: until the file is imported
  uint64_t limit_memory = 1ull << 30;  ///< Python: private memory, bytes; 0: no limit
  int64_t retries = 0;
  std::map<std::string, std::string> environment;  ///< Python, exec: in addition to ours
  std::string where;                               ///< "handlers.yaml:4"
};

/// What follows "python: " and so on, split at its last colon.
struct PythonTarget {
  std::string file, function;
};
PythonTarget SplitTarget(const std::string& target);

/// `handlers:`, a list, or a list alone. \param folder  relative files are below it
/// \error kInvalidArgument  a mistake (the message has file, line, key, what was found and what is accepted),
/// a name that is used twice, a Python file that cannot be read
Result<std::vector<Handler>> ParseHandlers(const nlohmann::json& document, const plan::Source& source,
                                           const std::string& folder);
/// \error kInvalidArgument  two handlers, of one file or of two, have the same name
Status CheckNames(const std::vector<Handler>& handlers);

/// "python handler.py:lambda_handler", "webhook https://hooks.slack.com": safe to show and to store.
std::string Describe(const Handler& handler);

}  // namespace tdbg::events
