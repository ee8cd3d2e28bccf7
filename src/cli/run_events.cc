#include "cli/run_events.h"

#include <fmt/format.h>

#include "base/below.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/job_ending.h"
#include "cli/run_path.h"
#include "format/events.h"
#include "format/version.h"
#include "watch/watcher.h"

namespace tdbg::cli {
namespace {

constexpr size_t kMaxOfALogShown = 300;

// The last note of a boot file or an adaptor about why it did not capture.
std::string LastLineOf(const std::string& path) {
  const auto text = base::LocalFileSystem().ReadFile(path);
  if (!text.ok()) return {};
  const std::vector<std::string> lines = base::SplitList(*text, '\n');
  if (lines.empty()) return {};
  return lines.back().substr(0, kMaxOfALogShown);
}

}  // namespace

Status AppendEvent(const std::string& run_directory, const std::string& kind, const Json& fields) {
  const std::string line = watch::EventLine(kind, base::SystemClock().WallNanos(),
                                            fields.dump(-1, ' ', false, Json::error_handler_t::replace));
  return base::FilesBelow(base::LocalFileSystem(), run_directory)
      .AppendLine(base::JoinPath(run_directory, format::kEventsFile), line);
}

Status AppendJobEnded(const std::string& run_directory, int64_t attempt, const jobs::JobResult& result,
                      bool restarts) {
  Json fields = {{"attempt", attempt},
                 {"exit_code", result.exit.shell_code()},
                 {"signal", result.exit.signaled ? result.exit.code : 0},
                 {"stop", StopName(result.stop)},
                 {"stopped_by", result.stopped_by},
                 {"killed", result.killed}};
  if (restarts) fields["restarts"] = true;
  return AppendEvent(run_directory, "job_ended", fields);
}

std::optional<JobEnding> LastJobEnding(const std::string& run_directory) {
  const auto text = base::LocalFileSystem().ReadFile(base::JoinPath(run_directory, format::kEventsFile));
  if (!text.ok()) return std::nullopt;
  std::optional<JobEnding> ending;
  format::ForEachEvent(*text, "job_ended", [&](const std::string& kind, const format::Json& event) {
    if (kind != "job_ended") return;
    ending.emplace();
    ending->stop = "none";
    int64_t exit_code = 0;
    format::GetField(event, "attempt", &ending->attempt);
    format::GetField(event, "exit_code", &exit_code);
    format::GetField(event, "stop", &ending->stop);
    format::GetField(event, "stopped_by", &ending->stopped_by);
    format::GetField(event, "wall_nanos", &ending->wall_nanos);
    ending->exit_code = static_cast<int>(exit_code);
  });
  return ending;
}

std::string WhyNothingWasCaptured(const std::string& run_directory, const std::vector<int64_t>& attempts,
                                  bool alive) {
  const int64_t attempt = attempts.empty() ? 0 : attempts.back();
  const std::string directory = base::JoinPath(run_directory, std::to_string(attempt));
  std::string notes;
  if (const auto entries = base::LocalFileSystem().List(directory); entries.ok()) {
    for (const base::DirEntry& entry : *entries) {
      if (entry.is_directory || !entry.name.ends_with(".log")) continue;
      const std::string line = LastLineOf(base::JoinPath(directory, entry.name));
      if (!line.empty()) notes = Printable(line);
    }
  }
  if (!notes.empty()) return fmt::format("the training process reported: {}", notes);
  if (alive) return "no process has reached its first training step yet";
  // A process that imported one and ended by itself has left a note.
  return "tdbg heard of no training: no framework that it knows was imported, or the process was killed "
         "before "
         "its first step, or Python was started with -E, -I or -S, or without the environment that tdbg gave "
         "the command (env -i, sudo, ssh, docker run); a line of the output above that starts with tdbg: "
         "says "
         "more, and `tdbg doctor` checks the installation";
}

}  // namespace tdbg::cli
