#include "storage/cache_use.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"

namespace tdbg::storage {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kUnusedDays = 7;
constexpr uint64_t kMostBytes = uint64_t{10} << 30;
constexpr int kMostLocks = 100;
// Shared by those who use the run, for as long as they do, and exclusive for who removes it.
constexpr const char* kInUse = "in-use";

base::UniqueFd OpenInUse(const std::string& home) {
  return base::OpenFd(base::JoinPath(home, kInUse).c_str(), O_RDWR | O_CREAT | O_NOFOLLOW, 0600);
}

struct CachedRun {
  std::string home;
  int64_t opened_seconds = 0;
  uint64_t bytes = 0;
};

// Its files are sparse: what counts is what was fetched.
uint64_t BytesOnDisk(const std::string& directory) {
  uint64_t bytes = 0;
  std::error_code error;
  fs::recursive_directory_iterator at(directory, error);
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    struct stat info;
    if (::lstat(at->path().c_str(), &info) == 0) bytes += static_cast<uint64_t>(info.st_blocks) * 512;
  }
  return bytes;
}

}  // namespace

bool IsAt(int fd, const std::string& path) {
  struct stat ours, there;
  return ::fstat(fd, &ours) == 0 && ::lstat(path.c_str(), &there) == 0 && ours.st_dev == there.st_dev &&
         ours.st_ino == there.st_ino;
}

Result<base::UniqueFd> KeepInUse(const std::string& home) {
  int error = ENOENT;
  for (int tries = 0; tries < kMostLocks; ++tries) {
    TDBG_RETURN_IF_ERROR(base::LocalFileSystem().CreateDirectories(home));
    base::UniqueFd fd = OpenInUse(home);
    if (!fd.ok()) error = errno;
    if (!fd.ok() && error == ENOENT) continue;
    if (!fd.ok()) break;
    while (::flock(fd.get(), LOCK_SH) != 0) {
      if (errno != EINTR) return base::PathError(errno, "cannot lock", home);
    }
    // Whoever removed it had the lock until now.
    if (IsAt(fd.get(), base::JoinPath(home, kInUse))) return fd;
  }
  return base::PathError(error, "cannot make", home);
}

uint64_t CacheBytes() {
  const char* const text = ::getenv("TDBG_CACHE_SIZE");
  return text == nullptr ? kMostBytes : base::ParseBytes(text).value_or(kMostBytes);
}

void RemoveUnused(const std::string& root, uint64_t most_bytes) {
  std::vector<CachedRun> runs;
  uint64_t bytes = 0;
  std::error_code error;
  for (const auto& of_prefix : fs::directory_iterator(root, error)) {
    std::error_code inner;
    for (const auto& of_run : fs::directory_iterator(of_prefix.path(), inner)) {
      struct stat info;
      if (::stat((of_run.path() / "sync.lock").c_str(), &info) != 0) continue;
      runs.push_back({of_run.path(), info.st_mtim.tv_sec, BytesOnDisk(of_run.path())});
      bytes += runs.back().bytes;
    }
  }
  std::ranges::sort(runs, {}, &CachedRun::opened_seconds);
  const int64_t now = base::SystemClock().WallNanos() / 1'000'000'000;
  for (const CachedRun& run : runs) {
    if (now - run.opened_seconds <= kUnusedDays * 86'400 && bytes <= most_bytes) return;
    // It may be open, for a week or since a clock jumped.
    const base::UniqueFd lock = OpenInUse(run.home);
    if (!lock.ok() || ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) continue;
    fs::remove_all(run.home, error);
    bytes -= run.bytes;
  }
}

}  // namespace tdbg::storage
