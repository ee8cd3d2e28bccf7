#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include <mutex>
#include <vector>

#include "base/clock.h"
#include "base/durations.h"
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

/// \error kFailedPrecondition  somebody has it
Status TryFlock(int fd, const std::string& path) {
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return PathError(errno, "cannot lock", path);
    return FailedPrecondition("locked by another process (or held here already): " + path);
  }
  return OkStatus();
}

/// IsLocked of another process holds the lock for an instant; that must not refuse a writer.
template <typename Try>
Status TakeFlock(Try&& take) {
  for (int attempt = 0;; ++attempt) {
    Status taken = take();
    if (taken.code() != Code::kFailedPrecondition || attempt == 20) return taken;
    const timespec two_millis{0, 2'000'000};
    ::nanosleep(&two_millis, nullptr);
  }
}

class LocalLock : public FileLock {
 public:
  LocalLock(LastingFd fd, std::string path)
      : path_(std::move(path)), device_(fd.device()), inode_(fd.inode()), fd_(std::move(fd)) {
    static const int registered = pthread_atfork(
        [] { Registry().mutex.lock(); }, [] { Registry().mutex.unlock(); }, [] { CloseAllInChild(); });
    (void)registered;
    const std::lock_guard guard(Registry().mutex);
    Registry().locks.push_back(this);
  }
  ~LocalLock() override {
    const std::lock_guard guard(Registry().mutex);
    std::erase(Registry().locks, this);
    Unlock();
  }

  Status CheckInPlace() const override {
    struct stat there;
    if (::stat(path_.c_str(), &there) != 0) return PathError(errno, "cannot find the lock file", path_);
    if (there.st_dev != device_ || there.st_ino != inode_) {
      return NotFound("the directory was removed, and another one lies in its place: " + path_);
    }
    // Between two attempts the mutex is free: a fork in the training waits for it.
    const Status taken = TakeFlock([this] {
      const std::lock_guard guard(Registry().mutex);
      if (disowned_) return NotFound("the lock was lost to another process: " + path_);
      return fd_.Mine() ? OkStatus() : Retake();
    });
    if (taken.code() != Code::kFailedPrecondition) return taken;
    // A process that holds the lock this long is not probing it. What it does with our files meanwhile we do
    // not see, so the lock is left to it for good, and nobody waits here again.
    const std::lock_guard guard(Registry().mutex);
    disowned_ = true;
    return NotFound("the script closed the lock's descriptor, and another process has the lock: " + path_);
  }
  int times_retaken() const override {
    const std::lock_guard guard(Registry().mutex);
    return retaken_;
  }
  void Disown() override {
    const std::lock_guard guard(Registry().mutex);
    disowned_ = true;
    Unlock();
  }

 private:
  static void CloseAllInChild() {
    for (LocalLock* lock : Registry().locks) (void)lock->fd_.Close();  // close does not unlock the parent's
    Registry().locks.clear();
    Registry().mutex.unlock();
  }
  /// One attempt. Opened anew each time: a child that is forked between two has a copy of what is open, and
  /// would keep the lock that we take on it later. \error kFailedPrecondition  somebody has it
  Status Retake() const {
    LastingFd fd = LastingFd::Open(path_.c_str(), O_RDWR);
    if (!fd.ok() || fd.device() != device_ || fd.inode() != inode_) {
      return NotFound("the script closed the lock's descriptor, and the lock file is another one: " + path_);
    }
    const Status taken = TryFlock(fd.Get(), path_);
    if (taken.code() == Code::kFailedPrecondition) return taken;
    if (!taken.ok()) return NotFound("the script closed the lock's descriptor, and " + taken.message());
    fd_ = std::move(fd);
    ++retaken_;
    return OkStatus();
  }
  void Unlock() {
    // Explicitly, and not by closing alone: a child between fork and its atfork handler still has a copy.
    if (const int fd = fd_.Get(); fd >= 0) ::flock(fd, LOCK_UN);
    (void)fd_.Close();
  }

  const std::string path_;
  // While the file is open no other gets its number.
  const dev_t device_;
  const ino_t inode_;
  // The rest is guarded by the registry's mutex once constructed.
  mutable LastingFd fd_;
  mutable int retaken_ = 0;
  mutable bool disowned_ = false;
};

}  // namespace

Result<std::unique_ptr<FileLock>> LockLocal(const Ground& ground, const std::string& path) {
  TDBG_ASSIGN_OR_RETURN(const Spot spot, ground.Find(path));
  TDBG_ASSIGN_OR_RETURN(LastingFd fd,
                        OpenLastingAt(spot, O_RDWR | O_CREAT, "cannot open the lock file", path));
  TDBG_RETURN_IF_ERROR(TakeFlock([&] { return TryFlock(fd.Get(), path); }));
  return std::unique_ptr<FileLock>(new LocalLock(std::move(fd), path));
}

Result<std::unique_ptr<FileLock>> WaitForLock(FileSystem& files, const std::string& path,
                                              int64_t patience_millis) {
  const Clock& clock = SystemClock();
  const int64_t until = clock.MonotonicNanos() + NanosOfMillis(patience_millis);
  const timespec pause{0, 20'000'000};
  while (true) {
    auto lock = files.Lock(path);
    if (lock.ok() || lock.status().code() != Code::kFailedPrecondition || clock.MonotonicNanos() >= until)
      return lock;
    ::nanosleep(&pause, nullptr);
  }
}

bool IsLockedLocal(const std::string& path) {
  const UniqueFd fd = OpenFd(path.c_str(), O_RDONLY | O_NONBLOCK);
  if (!fd.ok()) return false;
  // Shared, so that two probes do not take each other for the holder.
  while (::flock(fd.get(), LOCK_SH | LOCK_NB) != 0) {
    if (errno != EINTR) return errno == EWOULDBLOCK;
  }
  ::flock(fd.get(), LOCK_UN);
  return false;
}

}  // namespace tdbg::base
