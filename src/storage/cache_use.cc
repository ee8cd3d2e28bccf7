#include "storage/cache_use.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <filesystem>

#include "base/clock.h"
#include "base/file.h"

namespace tdbg::storage {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kUnusedDays = 7;
constexpr int kMostLocks = 100;
// Shared by those who use the run, for as long as they do, and exclusive for who removes it.
constexpr const char* kInUse = "in-use";

base::UniqueFd OpenInUse(const std::string& home) {
  return base::OpenFd(base::JoinPath(home, kInUse).c_str(), O_RDWR | O_CREAT | O_NOFOLLOW, 0600);
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

void RemoveUnused(const std::string& root) {
  std::error_code error;
  for (const auto& of_prefix : fs::directory_iterator(root, error)) {
    std::error_code inner;
    for (const auto& of_run : fs::directory_iterator(of_prefix.path(), inner)) {
      struct stat info;
      if (::stat((of_run.path() / "sync.lock").c_str(), &info) != 0) continue;
      const int64_t age_seconds = base::SystemClock().WallNanos() / 1'000'000'000 - info.st_mtim.tv_sec;
      if (age_seconds <= kUnusedDays * 86'400) continue;
      // A week since it was opened, or a clock that jumped: somebody may still read it.
      const base::UniqueFd lock = OpenInUse(of_run.path());
      if (lock.ok() && ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) fs::remove_all(of_run.path(), inner);
    }
  }
}

}  // namespace tdbg::storage
