#include "cli/event_handlers.h"

#include <errno.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <utility>

#include "base/below.h"
#include "base/clock.h"
#include "base/file.h"
#include "cli/run_path.h"
#include "cli/terminal.h"
#include "events/target.h"
#include "format/version.h"
#include "jobs/run_directory.h"
#include "jobs/state_directory.h"
#include "watch/events.h"

namespace tdbg::cli {
namespace {

// The registered handlers are programs that run unasked, so the list is used only if nobody else can write to
// it.
Status CheckOwner(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return ErrnoStatus(errno, "cannot look at " + path);
  if (info.st_uid == ::geteuid() && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0) return OkStatus();
  return InvalidArgument(path +
                         ": others may write to it, so its handlers are not used; chmod go-w it, or leave "
                         "it out with --no-handlers");
}

// "handler.py:lambda_handler", and not a file that is called so.
bool IsFunction(const std::string& word) {
  const events::PythonTarget python = events::SplitTarget(word);
  return python.file.ends_with(".py") && !base::LocalFileSystem().Exists(word);
}

Result<std::vector<events::Handler>> OneFunction(const std::string& word) {
  const events::PythonTarget python = events::SplitTarget(word);
  if (python.function.empty())
    return InvalidArgument(
        fmt::format("--on-event {}: expected FILE:FUNCTION, as handler.py:lambda_handler", Printable(word)));
  if (const auto text = base::LocalFileSystem().ReadFile(python.file); !text.ok())
    return InvalidArgument("--on-event: " + text.status().message());
  // Two files may both have a lambda_handler.
  const std::string module = std::filesystem::path(python.file).stem();
  nlohmann::json document = nlohmann::json::array();
  document.push_back({{"python", jobs::AbsolutePath(word)}, {"name", module + "." + python.function}});
  return events::ParseHandlers(document, plan::Source{"--on-event"}, "");
}

}  // namespace

std::string RegisteredHandlersPath() {
  const std::string directory = jobs::StateDirectory();
  return directory.empty() ? "" : base::JoinPath(directory, "handlers.json");
}

Result<std::vector<events::Handler>> ReadHandlers(const std::string& path) {
  if (IsFunction(path)) return OneFunction(path);
  if (!base::LocalFileSystem().Exists(path))
    return InvalidArgument(fmt::format(
        "--on-event: there is no {}; a file of handlers is accepted, and FILE.py:FUNCTION", Printable(path)));
  TDBG_ASSIGN_OR_RETURN(const Document document, ReadDocument(path));
  const std::string folder = std::filesystem::path(jobs::AbsolutePath(path)).parent_path();
  return events::ParseHandlers(document.value, document.source(), folder);
}

Result<HandlerFiles> FindHandlers(const std::vector<std::string>& on_event, bool registered) {
  HandlerFiles files;
  for (const std::string& path : on_event) files.paths.push_back(jobs::AbsolutePath(path));
  if (const std::string own = RegisteredHandlersPath();
      registered && !own.empty() && base::LocalFileSystem().Exists(own)) {
    TDBG_RETURN_IF_ERROR(CheckOwner(own));
    files.paths.push_back(own);
  }
  for (const std::string& path : files.paths) {
    auto handlers = ReadHandlers(path);
    if (!handlers.ok() && path == RegisteredHandlersPath() && registered) {
      return Status(handlers.status().code(),
                    handlers.status().message() +
                        "; `tdbg handlers remove NAME` takes it out, --no-handlers runs without");
    }
    TDBG_RETURN_IF_ERROR(handlers.status());
    std::move(handlers->begin(), handlers->end(), std::back_inserter(files.handlers));
  }
  TDBG_RETURN_IF_ERROR(events::CheckNames(files.handlers));
  return files;
}

Status CheckFiles(const HandlerFiles& files) {
  for (const events::Handler& handler : files.handlers) {
    if (handler.kind == events::HandlerKind::kPython) TDBG_RETURN_IF_ERROR(events::CheckPython(handler));
  }
  return OkStatus();
}

std::vector<std::string> DeliverArguments(const HandlerFiles& files, const std::string& run_directory) {
  struct stat info;
  const std::string journal = base::JoinPath(run_directory, format::kEventsFile);
  const int64_t after = ::stat(journal.c_str(), &info) == 0 ? info.st_size : 0;
  std::vector<std::string> words = {"handlers",   "deliver", run_directory,
                                    "--launched", "--after", std::to_string(after)};
  for (const std::string& path : files.paths) {
    words.push_back("--on-event");
    words.push_back(path);
  }
  return words;
}

events::RuleState RuleStateOf(const rules::RuleStatus& status) {
  return {status.name, status.rule, std::string(rules::RuleStateName(status.state)), status.details,
          status.last_modified_wall_nanos};
}

std::unique_ptr<events::ChangeJournal> JournalChanges(const std::string& run_directory,
                                                      const std::string& name, int64_t attempt,
                                                      const std::vector<rules::RuleStatus>& statuses) {
  events::JobState job;
  job.name = name;
  job.run = LastingPlace(run_directory);
  job.attempt = attempt;
  for (const rules::RuleStatus& status : statuses) {
    job.rules.push_back(RuleStateOf(status));
    if (job.rules.back().changed_wall_nanos == 0)
      job.rules.back().changed_wall_nanos = base::SystemClock().WallNanos();
  }
  // If an event cannot be written, handlers are not called with it.
  const auto write = [run_directory](const std::string& kind, int64_t wall_nanos, const std::string& fields) {
    (void)base::FilesBelow(base::LocalFileSystem(), run_directory)
        .AppendLine(base::JoinPath(run_directory, format::kEventsFile),
                    watch::EventLine(kind, wall_nanos, fields));
  };
  return std::make_unique<events::ChangeJournal>(std::move(job), write);
}

}  // namespace tdbg::cli
