#include "jobs/run_removal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <string_view>

#include "base/below.h"
#include "base/file.h"
#include "base/posix.h"
#include "base/text.h"
#include "format/version.h"
#include "jobs/run_directory.h"

namespace tdbg::jobs {
namespace {

constexpr std::string_view kRemoved = ".tdbg-removed-";
constexpr int kMostFoldersDeep = 32;  // each level holds a descriptor

// docs/format.md, "The directory"; and what smdebug's hook and uploads write beside it.
constexpr std::array<std::string_view, 23> kOurs{"run.json",
                                                 "plan.json",
                                                 "rules.json",
                                                 "open.lock",
                                                 "launcher.lock",
                                                 "control",
                                                 "events.jsonl",
                                                 "nodes",
                                                 "logs",
                                                 "black_box",
                                                 "marks.jsonl",
                                                 "rule-output",
                                                 "levels",
                                                 "smdebug",
                                                 "claim.smd",
                                                 "index",
                                                 "events",
                                                 "collections",
                                                 "tensorboard",
                                                 "training_job_end.ts",
                                                 "tdbg-upload.json",
                                                 "watch.lock",
                                                 "muted.json"};

bool IsOurs(const std::string& name) {
  const auto number = base::ParseInt(name);  // an attempt
  return (number && *number >= 0) || name.starts_with(".tmp-") ||
         std::ranges::find(kOurs, name) != kOurs.end();
}

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};
using Listing = std::unique_ptr<DIR, CloseDirectory>;

Result<std::vector<std::string>> NamesIn(int directory, const std::string& path) {
  base::UniqueFd copy = base::OpenFdAt(directory, ".", O_RDONLY | O_DIRECTORY);
  const Listing listing(copy.ok() ? ::fdopendir(copy.get()) : nullptr);
  if (!listing) return base::PathError(errno, "cannot list the directory", path);
  copy.release();
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* const entry = ::readdir(listing.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (errno != 0) return base::PathError(errno, "cannot list the directory", path);
  std::ranges::sort(names);
  return names;
}

base::UniqueFd OpenDirectoryAt(int directory, const std::string& name) {
  return base::OpenFdAt(directory, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
}

// Everything in an open directory: by descriptors, so that no link leads anywhere else, whoever puts it there
// meanwhile. `last` goes last: until then it says what this is.
Status RemoveAllIn(int directory, dev_t device, std::string_view last, int depth, const std::string& path) {
  if (depth == kMostFoldersDeep) return FailedPrecondition("too many folders in each other: " + path);
  TDBG_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(directory, path));
  for (const std::string& name : names) {
    if (name == last) continue;
    const std::string below = base::JoinPath(path, name);
    struct stat info;
    if (::fstatat(directory, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno == ENOENT) continue;
      return base::PathError(errno, "cannot look at", below);
    }
    if (S_ISDIR(info.st_mode)) {
      if (info.st_dev != device)
        return FailedPrecondition("another disk is mounted here, which is not removed: " + below);
      const base::UniqueFd inner = OpenDirectoryAt(directory, name);
      if (!inner.ok()) return base::PathError(errno, "cannot enter", below);
      TDBG_RETURN_IF_ERROR(RemoveAllIn(inner.get(), device, "", depth + 1, below));
    }
    if (::unlinkat(directory, name.c_str(), S_ISDIR(info.st_mode) ? AT_REMOVEDIR : 0) != 0 && errno != ENOENT)
      return base::PathError(errno, "cannot remove", below);
  }
  if (!last.empty() && ::unlinkat(directory, std::string(last).c_str(), 0) != 0 && errno != ENOENT)
    return base::PathError(errno, "cannot remove", base::JoinPath(path, last));
  return OkStatus();
}

Status RemoveDirectory(int parent, const std::string& name, const std::string& path) {
  const base::UniqueFd directory = OpenDirectoryAt(parent, name);
  struct stat info;
  if (!directory.ok() || ::fstat(directory.get(), &info) != 0)
    return base::PathError(errno, "cannot enter", path);
  TDBG_RETURN_IF_ERROR(RemoveAllIn(directory.get(), info.st_dev, format::kRunFile, 0, path));
  // Gone already: somebody else prunes, too.
  if (::unlinkat(parent, name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT)
    return base::PathError(errno, "cannot remove", path);
  return OkStatus();
}

/// The directory that holds `path`, entered from `root` without following a link.
Result<base::UniqueFd> OpenParent(const std::string& root, const std::string& path) {
  base::UniqueFd at = base::OpenFd(root.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (!at.ok()) return base::PathError(errno, "cannot enter", root);
  const std::filesystem::path parts = std::filesystem::path(path).lexically_relative(root);
  for (const std::filesystem::path& part : parts.parent_path()) {
    if (part == "..") return InvalidArgument(path + " is not below " + root);
    at = OpenDirectoryAt(at.get(), part.string());
    if (!at.ok()) return base::PathError(errno, "cannot enter", path);
  }
  return at;
}

Status RefuseLiving(const std::string& run_directory) {
  for (const int64_t attempt : ListAttempts(run_directory)) {
    if (AnyWorkerAlive(run_directory, attempt))
      return FailedPrecondition("a worker still trains into it: " + run_directory);
  }
  return OkStatus();
}

}  // namespace

bool IsBeingRemoved(std::string_view name) { return name.starts_with(kRemoved); }

DiskUse DiskUseOf(const std::string& directory) {
  namespace fs = std::filesystem;
  DiskUse use;
  std::error_code error;
  for (fs::recursive_directory_iterator at(directory, fs::directory_options::skip_permission_denied, error),
       end;
       !error && at != end; at.increment(error)) {
    struct stat info;
    if (::lstat(at->path().c_str(), &info) != 0) continue;
    use.bytes += static_cast<uint64_t>(info.st_blocks) * 512;
    const std::string name = at->path().filename().string();
    if (!S_ISREG(info.st_mode) || name == format::kLockFile || name.ends_with(".lock")) continue;
    use.newest_wall_nanos =
        std::max(use.newest_wall_nanos, int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec);
  }
  return use;
}

std::vector<std::string> ForeignEntries(const std::string& run_directory) {
  std::vector<std::string> foreign;
  const auto entries = base::LocalFileSystem().List(run_directory);
  for (const base::DirEntry& entry : entries.ok() ? *entries : std::vector<base::DirEntry>()) {
    if (!IsOurs(entry.name)) foreign.push_back(entry.name);
  }
  return foreign;
}

Status RemoveRun(const std::string& root, const std::string& run_directory) {
  TDBG_RETURN_IF_ERROR(base::CheckBelow(root, run_directory));
  TDBG_ASSIGN_OR_RETURN(const base::UniqueFd parent, OpenParent(root, run_directory));
  const std::string name = base::BaseName(run_directory);
  struct stat info;
  const std::string run_file = base::JoinPath(run_directory, format::kRunFile);
  if (::lstat(run_file.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || RunId(run_directory).empty())
    return NotFound("no run is there: " + run_directory);
  if (const std::vector<std::string> foreign = ForeignEntries(run_directory); !foreign.empty())
    return FailedPrecondition(fmt::format("it also holds {}, which tdbg did not write: {}",
                                          fmt::join(foreign, ", "), run_directory));
  // Whoever starts a job in it now waits for the lock, or is told that it is held.
  base::FileSystem& files = base::FilesBelow(base::LocalFileSystem(), root);
  const auto lock = files.Lock(base::JoinPath(run_directory, format::kLauncherLockFile));
  if (!lock.ok()) {
    return lock.status().code() == Code::kFailedPrecondition
               ? FailedPrecondition("a tdbg looks after it: " + run_directory)
               : lock.status();
  }
  TDBG_RETURN_IF_ERROR(RefuseLiving(run_directory));
  std::string away = std::string(kRemoved) + name;
  for (int n = 2; ::faccessat(parent.get(), away.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0; ++n)
    away = fmt::format("{}{}-{}", kRemoved, name, n);
  if (::renameat(parent.get(), name.c_str(), parent.get(), away.c_str()) != 0)
    return base::PathError(errno, "cannot remove", run_directory);
  const std::string moved = base::JoinPath(std::filesystem::path(run_directory).parent_path().string(), away);
  // A training that was attached to without a launcher asks nobody: one that came until now has it back.
  if (const Status nobody = RefuseLiving(moved); !nobody.ok()) {
    if (::renameat(parent.get(), away.c_str(), parent.get(), name.c_str()) == 0) return nobody;
  }
  return RemoveDirectory(parent.get(), away, moved);
}

Result<int> FinishRemovals(const std::string& root) {
  int finished = 0;
  std::vector<std::string> folders{root};
  const auto entries = base::LocalFileSystem().List(root);
  for (const base::DirEntry& entry : entries.ok() ? *entries : std::vector<base::DirEntry>()) {
    if (entry.is_directory && !entry.name.starts_with('.'))
      folders.push_back(base::JoinPath(root, entry.name));
  }
  for (const std::string& folder : folders) {
    const auto inside = base::LocalFileSystem().List(folder);
    for (const base::DirEntry& entry : inside.ok() ? *inside : std::vector<base::DirEntry>()) {
      const std::string path = base::JoinPath(folder, entry.name);
      if (!entry.is_directory || !IsBeingRemoved(entry.name) || !IsRunDirectory(path)) continue;
      if (!base::CheckBelow(root, path).ok() || !RefuseLiving(path).ok()) continue;
      TDBG_ASSIGN_OR_RETURN(const base::UniqueFd parent, OpenParent(root, path));
      TDBG_RETURN_IF_ERROR(RemoveDirectory(parent.get(), entry.name, path));
      ++finished;
    }
  }
  return finished;
}

}  // namespace tdbg::jobs
