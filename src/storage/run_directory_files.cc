#include "storage/run_directory_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "format/run_files.h"
#include "format/version.h"
#include "storage/upload_state.h"

namespace tdbg::storage {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kLogs = "logs/";  // what the training printed, and tdbg beside it

bool EndsInFile(std::string_view name, std::string_view base_name) {
  return name == base_name || name.ends_with("/" + std::string(base_name));
}

bool IsLeftOut(const std::string& name) {
  const std::string_view base_name = std::string_view(name).substr(name.rfind('/') + 1);
  for (const std::string_view left_out :
       {std::string_view("open.lock"), format::kLauncherLockFile, format::kLockFile, format::kJournalFile,
        std::string_view("journal.new"), format::kDoorbellFile, format::kControlFile, kStateFile}) {
    if (base_name == left_out) return true;
  }
  return base_name.starts_with(".tmp-") || base_name.ends_with(".tmp") ||
         name.find("/.tmp") != std::string::npos;
}

// "3/tmp": what the script keeps for itself while a reclaim is rehearsed ($TMPDIR), and is wiped.
bool IsScratch(const std::string& name) {
  const size_t slash = name.find('/');
  return slash != std::string::npos && base::ParseInt(name.substr(0, slash)).value_or(-1) >= 0 &&
         name.substr(slash) == "/tmp";
}

void TakeFile(const std::string& path, const std::string& run_directory, std::vector<RunFile>* files) {
  RunFile file;
  file.name = path.substr(run_directory.size() + 1);
  struct stat info;
  // A symbolic link leads out of the run: what it leads to is not ours to send.
  if (IsLeftOut(file.name) || ::lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return;
  file.bytes = static_cast<uint64_t>(info.st_size);
  file.modified_nanos = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
  file.inode = info.st_ino;
  files->push_back(std::move(file));
}

}  // namespace

Result<std::vector<RunFile>> FilesOfRun(const std::string& run_directory) {
  std::vector<RunFile> files;
  std::error_code error;
  // A directory that is removed meanwhile ends the iteration: then once more, and not for ever.
  for (int tries = 0; tries < 5; ++tries) {
    files.clear();
    error.clear();
    fs::recursive_directory_iterator at(run_directory, fs::directory_options::skip_permission_denied, error);
    for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
      if (IsScratch(at->path().string().substr(run_directory.size() + 1)))
        at.disable_recursion_pending();
      else
        TakeFile(at->path().string(), run_directory, &files);
    }
    if (!error) break;
  }
  // Half of a run must never be called all of it.
  if (error) return Unavailable("cannot list " + run_directory + ": " + error.message());
  std::ranges::sort(files, {},
                    [](const RunFile& file) { return std::pair(RankOfFile(file.name), file.name); });
  return files;
}

std::vector<std::string> WorkersOfRun(const std::string& run_directory) {
  std::vector<std::string> workers;
  std::error_code error;
  for (const auto& attempt : fs::directory_iterator(run_directory, error)) {
    const std::string name = attempt.path().filename().string();
    if (base::ParseInt(name).value_or(-1) < 0) continue;
    std::error_code inner;
    for (const auto& worker : fs::directory_iterator(attempt.path(), inner)) {
      if (base::LocalFileSystem().Exists(base::JoinPath(worker.path().string(), format::kWorkerFile)))
        workers.push_back(name + "/" + worker.path().filename().string());
    }
  }
  std::ranges::sort(workers);
  return workers;
}

bool IsEndOfExport(std::string_view name) { return EndsInFile(name, "training_job_end.ts"); }

bool IsSegmentFile(std::string_view name) {
  return name.find("/" + std::string(format::kSegmentsDir) + "/") != std::string_view::npos;
}

bool GrowsAtItsEnd(std::string_view name) {
  const std::string_view base_name = name.substr(name.rfind('/') + 1);
  return name == format::kEventsFile || name.starts_with(kLogs) ||
         base_name.find("tfevents") != std::string_view::npos;
}

int RankOfFile(std::string_view name) {
  if (name == format::kRunFile || IsEndOfExport(name)) return kLastRank;
  if (name == format::kEventsFile) return 2;
  // smdebug's readers find a step's tensors through its index.
  if (("/" + std::string(name)).find("/index/") != std::string::npos && name.ends_with(".json")) return 2;
  return name.ends_with("/" + std::string(format::kWorkerFile)) ? 1 : 0;
}

}  // namespace tdbg::storage
