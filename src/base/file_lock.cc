#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include <mutex>
#include <vector>

#include "base/local_files.h"
#include "base/posix.h"

namespace tdbg::base {
namespace {

class LocalLock;

// flock belongs to the open file, which a forked child shares: a data-loading worker that outlives its killed
// parent would keep the run locked. So children of fork() close their copy; exec closes it by CLOEXEC.
struct LocksOfThisProcess {
  std::mutex mutex;
  // The child's handler must not free anything: another thread of the parent may have been inside its
  // allocator, which not every one unlocks in the child. Clearing a vector of pointers frees nothing.
  std::vector<LocalLock*> locks;
};

LocksOfThisProcess& Registry() {
  static LocksOfThisProcess* const registry = new LocksOfThisProcess;
  return *registry;
}

class LocalLock : public FileLock {
 public:
  LocalLock(UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {
    // While the file is open no other gets its number.
    (void)::fstat(fd_.get(), &locked_);
    static const int registered = pthread_atfork(
        [] { Registry().mutex.lock(); }, [] { Registry().mutex.unlock(); }, [] { CloseAllInChild(); });
    (void)registered;
    const std::lock_guard guard(Registry().mutex);
    Registry().locks.push_back(this);
  }
  ~LocalLock() override {
    const std::lock_guard guard(Registry().mutex);
    std::erase(Registry().locks, this);
    // Explicitly, and not by closing alone: a child between fork and its atfork handler still has a copy.
    if (fd_.ok()) ::flock(fd_.get(), LOCK_UN);
    fd_.reset();
  }

  Status CheckInPlace() const override {
    struct stat there;
    if (::stat(path_.c_str(), &there) != 0) return PathError(errno, "cannot find the lock file", path_);
    if (there.st_dev == locked_.st_dev && there.st_ino == locked_.st_ino) return OkStatus();
    return NotFound("the directory was removed, and another one lies in its place: " + path_);
  }

 private:
  static void CloseAllInChild() {
    for (LocalLock* lock : Registry().locks) lock->fd_.reset();  // close does not unlock the parent's
    Registry().locks.clear();
    Registry().mutex.unlock();
  }
  UniqueFd fd_;  // guarded by the registry's mutex once constructed
  const std::string path_;
  struct stat locked_{};  // constant
};

}  // namespace

Result<std::unique_ptr<FileLock>> LockLocal(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!fd.ok()) return PathError(errno, "cannot open the lock file", path);
  // IsLocked of another process holds the lock for an instant; that must not refuse a writer.
  for (int attempt = 0; ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0; ++attempt) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return PathError(errno, "cannot lock", path);
    if (attempt == 20) return FailedPrecondition("locked by another process (or held here already): " + path);
    const timespec two_millis{0, 2'000'000};
    ::nanosleep(&two_millis, nullptr);
  }
  return std::unique_ptr<FileLock>(new LocalLock(std::move(fd), path));
}

bool IsLockedLocal(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.ok()) return false;
  // Shared, so that two probes do not take each other for the holder.
  while (::flock(fd.get(), LOCK_SH | LOCK_NB) != 0) {
    if (errno != EINTR) return errno == EWOULDBLOCK;
  }
  ::flock(fd.get(), LOCK_UN);
  return false;
}

}  // namespace tdbg::base
