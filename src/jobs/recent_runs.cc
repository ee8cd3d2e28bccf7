#include "jobs/recent_runs.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>

#include "base/stable_sort.h"
#include "base/text.h"
#include "format/json_fields.h"
#include "jobs/run_directory.h"
#include "jobs/state_directory.h"

namespace tdbg::jobs {
namespace {

constexpr size_t kMaxLines = 500;
constexpr uint64_t kMaxBytes = 4u << 20;
// Trimming reads and writes at most 4 MiB. A process that holds the lock for longer hangs, or its disk does.
constexpr int64_t kPatienceMillis = 2000;

// Reads the last kMaxBytes of the file, however large it has become: only the latest runs are asked for.
std::string Tail(base::FileSystem& files, bool* cut) {
  *cut = false;
  const auto file = files.OpenReadable(RecentRunsPath());
  if (!file.ok()) return "";
  const auto size = (*file)->Size();
  if (!size.ok()) return "";
  *cut = *size > kMaxBytes;
  std::string text(std::min(*size, kMaxBytes), '\0');
  const auto got = (*file)->ReadAt(*size - text.size(), std::as_writable_bytes(std::span(text)));
  text.resize(got.ok() ? *got : 0);
  if (*cut) text.erase(0, std::min(text.find('\n'), text.size() - 1) + 1);
  return text;
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

// Keeps the newer half, by number and by size; half, so that not every start has to trim.
std::string NewerHalf(const std::vector<std::string>& lines) {
  size_t first = lines.size() - std::min(lines.size(), kMaxLines / 2);
  uint64_t bytes = 0;
  for (size_t i = lines.size(); i > first; --i) {
    bytes += lines[i - 1].size() + 1;
    if (bytes > kMaxBytes / 2) first = i;
  }
  std::string kept;
  for (size_t i = first; i < lines.size(); ++i) kept += lines[i] + "\n";
  return kept;
}

}  // namespace

std::string RecentRunsPath() {
  const std::string state = StateDirectory();
  return state.empty() ? "" : base::JoinPath(state, "recent-runs.jsonl");
}

void RememberRun(const RecentRun& run, base::FileSystem& files) {
  const std::string path = RecentRunsPath();
  if (path.empty()) return;
  if (!files.CreateDirectories(std::filesystem::path(path).parent_path().string()).ok()) return;
  format::Json json = {{"run", run.run_directory},
                       {"from", run.working_directory},
                       {"started_wall_nanos", run.started_wall_nanos}};
  if (!run.url.empty()) json["url"] = run.url;
  // Taken for appending, too: a line appended between a trimmer's read and its rename would be lost.
  const auto lock = base::WaitForLock(files, path + ".lock", kPatienceMillis);
  const std::string line = format::DumpJson(json);
  bool cut = false;
  const std::string text = Tail(files, &cut);
  if (lock.ok()) {  // if the file system has no locks, do not trim
    std::vector<std::string> lines = Lines(text);
    lines.push_back(line);
    const bool trim = cut || lines.size() > kMaxLines;
    if (trim && files.WriteFileAtomic(path, NewerHalf(lines)).ok()) return;
  }
  // An editor or a full disk may have left the last line without a line feed.
  (void)files.AppendLine(path, text.empty() || text.ends_with('\n') ? line : "\n" + line);
}

std::vector<RecentRun> RecentRuns(base::FileSystem& files) {
  std::vector<RecentRun> runs;
  if (RecentRunsPath().empty()) return runs;
  bool cut = false;
  for (const std::string& line : Lines(Tail(files, &cut))) {
    const auto json = format::ParseJsonObject(line, "recent-runs.jsonl");
    if (!json.ok()) continue;
    RecentRun run;
    format::GetField(*json, "run", &run.run_directory);
    format::GetField(*json, "from", &run.working_directory);
    format::GetField(*json, "started_wall_nanos", &run.started_wall_nanos);
    format::GetField(*json, "url", &run.url);
    // A run that was started several times is listed at its last start.
    std::erase_if(runs, [&](const RecentRun& r) { return r.run_directory == run.run_directory; });
    run.here = run.run_directory.starts_with('/') && IsRunDirectory(run.run_directory, files);
    if (run.here || !run.url.empty()) runs.push_back(std::move(run));
  }
  base::StableSort(&runs, [](const RecentRun& a, const RecentRun& b) {
    return a.started_wall_nanos < b.started_wall_nanos;
  });
  return runs;
}

}  // namespace tdbg::jobs
