#include "jobs/recent_runs.h"

#include <stdlib.h>

#include <algorithm>
#include <filesystem>

#include "base/stable_sort.h"
#include "base/text.h"
#include "format/json_fields.h"
#include "jobs/run_directory.h"

namespace tdbg::jobs {
namespace {

constexpr size_t kMaxLines = 500;
constexpr uint64_t kMaxBytes = 4u << 20;

std::string AbsoluteVariable(const char* name) {
  const char* const value = ::getenv(name);
  return value != nullptr && value[0] == '/' ? value : "";
}

std::vector<std::string> Lines(base::FileSystem& files) {
  std::vector<std::string> lines;
  const auto text = files.ReadFile(RecentRunsPath(), kMaxBytes);
  if (!text.ok()) return lines;
  for (size_t begin = 0; begin < text->size();) {
    const size_t end = std::min(text->find('\n', begin), text->size());
    if (end > begin) lines.push_back(text->substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

}  // namespace

std::string RecentRunsPath() {
  std::string state = AbsoluteVariable("XDG_STATE_HOME");
  if (state.empty()) {
    const std::string home = AbsoluteVariable("HOME");
    if (home.empty()) return "";
    state = base::JoinPath(home, ".local/state");
  }
  return base::JoinPath(state, "tdbg/recent-runs.jsonl");
}

void RememberRun(const RecentRun& run, base::FileSystem& files) {
  const std::string path = RecentRunsPath();
  if (path.empty()) return;
  if (!files.CreateDirectories(std::filesystem::path(path).parent_path().string()).ok()) return;
  const format::Json json = {{"run", run.run_directory},
                             {"from", run.working_directory},
                             {"started_wall_nanos", run.started_wall_nanos}};
  (void)files.AppendLine(path, format::DumpJson(json));
  const std::vector<std::string> lines = Lines(files);
  if (lines.size() <= kMaxLines) return;
  // A line that another process appends at this moment may be lost; the file is only a hint.
  std::string kept;
  for (size_t i = lines.size() - kMaxLines / 2; i < lines.size(); ++i) kept += lines[i] + "\n";
  (void)files.WriteFileAtomic(path, kept);
}

std::vector<RecentRun> RecentRuns(base::FileSystem& files) {
  std::vector<RecentRun> runs;
  if (RecentRunsPath().empty()) return runs;
  for (const std::string& line : Lines(files)) {
    const auto json = format::ParseJsonObject(line, "recent-runs.jsonl");
    if (!json.ok()) continue;
    RecentRun run;
    format::GetField(*json, "run", &run.run_directory);
    format::GetField(*json, "from", &run.working_directory);
    format::GetField(*json, "started_wall_nanos", &run.started_wall_nanos);
    // A run that was started several times stands at its last start.
    std::erase_if(runs, [&](const RecentRun& r) { return r.run_directory == run.run_directory; });
    if (run.run_directory.starts_with('/') && IsRunDirectory(run.run_directory, files))
      runs.push_back(std::move(run));
  }
  base::StableSort(&runs, [](const RecentRun& a, const RecentRun& b) {
    return a.started_wall_nanos < b.started_wall_nanos;
  });
  return runs;
}

}  // namespace tdbg::jobs
