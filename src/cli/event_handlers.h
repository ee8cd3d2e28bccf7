// The handlers of a job's events: where they are registered, and how the process that calls them is started.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cli/document.h"
#include "events/change.h"
#include "events/handlers.h"
#include "rules/engine.h"
#include "tdbg/status.h"

namespace tdbg::cli {

/// handlers.json in the user's state directory, which `tdbg handlers add` writes; empty: the user has no
/// home.
std::string RegisteredHandlersPath();

/// The handlers of a file. Relative paths in it are below its folder. \error kInvalidArgument
Result<std::vector<events::Handler>> ReadHandlers(const std::string& path);

/// The handlers of --on-event, and the registered ones.
struct HandlerFiles {
  std::vector<std::string> paths;  ///< absolute; empty: there are none
  std::vector<events::Handler> handlers;
};
/// \error kInvalidArgument  file, line, key, what was found and what is accepted
Result<HandlerFiles> FindHandlers(const std::vector<std::string>& on_event, bool registered);
/// Checks their Python files, as far as that is possible without running them. \error kInvalidArgument
Status CheckFiles(const HandlerFiles& files);

/// `tdbg handlers deliver` as a job's launcher starts it (TendedProcess): events that are written from now on
/// are delivered. \pre there are handlers
std::vector<std::string> DeliverArguments(const HandlerFiles& files, const std::string& run_directory);

/// A ChangeJournal that writes to a run's events.
std::unique_ptr<events::ChangeJournal> JournalChanges(const std::string& run_directory,
                                                      const std::string& name, int64_t attempt,
                                                      const std::vector<rules::RuleStatus>& statuses);
events::RuleState RuleStateOf(const rules::RuleStatus& status);

}  // namespace tdbg::cli
