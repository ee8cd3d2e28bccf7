#include "cli/run_events.h"

#include <fmt/format.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/run_path.h"
#include "format/version.h"
#include "watch/watcher.h"

namespace tdbg::cli {
namespace {

constexpr size_t kMostOfALogShown = 300;

// The last line a boot file or an adaptor wrote about what it could not do.
std::string LastLineOf(const std::string& path) {
  const auto text = base::LocalFileSystem().ReadFile(path);
  if (!text.ok()) return {};
  const std::vector<std::string> lines = base::SplitList(*text, '\n');
  if (lines.empty()) return {};
  return lines.back().substr(0, kMostOfALogShown);
}

}  // namespace

Status AppendEvent(const std::string& run_directory, const std::string& kind, const Json& fields) {
  const std::string line = watch::EventLine(kind, base::SystemClock().WallNanos(),
                                            fields.dump(-1, ' ', false, Json::error_handler_t::replace));
  return base::LocalFileSystem().AppendLine(base::JoinPath(run_directory, format::kEventsFile), line);
}

std::optional<JobEnding> LastJobEnding(const std::string& run_directory) {
  const auto text = base::LocalFileSystem().ReadFile(base::JoinPath(run_directory, format::kEventsFile));
  if (!text.ok()) return std::nullopt;
  std::optional<JobEnding> ending;
  for (const std::string& line : base::SplitList(*text, '\n')) {
    if (line.find("job_ended") == std::string::npos) continue;
    const auto event = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    // A torn last line is an event that was never written.
    if (!event.is_object() || event.value("kind", "") != "job_ended") continue;
    ending.emplace();
    ending->attempt = event.value("attempt", int64_t{0});
    ending->exit_code = event.value("exit_code", 0);
    ending->stop = event.value("stop", "none");
    ending->stopped_by = event.value("stopped_by", "");
    ending->wall_nanos = event.value("wall_nanos", int64_t{0});
  }
  return ending;
}

std::string WhyNothingWasCaptured(const std::string& run_directory, const std::vector<int64_t>& attempts) {
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
  return "no process reached a training step that tdbg could attach to: torch was never imported, no "
         "optimizer "
         "stepped, or Python was started with -E, -I or -S, or without the environment that tdbg gave the "
         "command "
         "(env -i, sudo, ssh, docker run); a line of the output above that starts with tdbg: says more, and "
         "`tdbg doctor` checks the installation";
}

}  // namespace tdbg::cli
