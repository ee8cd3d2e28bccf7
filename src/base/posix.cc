#include "base/posix.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#include <algorithm>

namespace tdbg::base {

Status PathError(int error_number, std::string_view what, std::string_view path) {
  const Status plain = ErrnoStatus(error_number, what);
  std::string message = plain.message();
  message.append(": ").append(path);
  return Status(plain.code(), std::move(message));
}

namespace {

/// Scripts close 3 to 255, or 1023; and a table of descriptors is as long as its highest.
int LowestLasting() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 3;
  constexpr rlim_t kHighEnough = 1040, kRoom = 64;
  if (limit.rlim_cur > kHighEnough + kRoom) return static_cast<int>(kHighEnough);
  return limit.rlim_cur > 2 * kRoom ? static_cast<int>(limit.rlim_cur - kRoom) : 3;
}

}  // namespace

UniqueFd OpenFd(const char* path, int flags, mode_t mode) { return OpenFdAt(AT_FDCWD, path, flags, mode); }

UniqueFd OpenFdAt(int directory, const char* path, int flags, mode_t mode) {
  int fd;
  do {
    fd = ::openat(directory, path, flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0 || fd > STDERR_FILENO) return UniqueFd(fd);
  const int moved = ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int error = errno;
  ::close(fd);
  errno = error;
  return UniqueFd(moved);
}

UniqueFd OpenPlainFileAt(int directory, const char* path, int flags, mode_t mode) {
  UniqueFd fd = OpenFdAt(directory, path, flags | O_NOFOLLOW | O_NONBLOCK, mode);
  struct stat info;
  if (!fd.ok() || (::fstat(fd.get(), &info) == 0 && S_ISREG(info.st_mode))) return fd;
  fd.reset();
  errno = EINVAL;
  return fd;
}

LastingFd LastingFd::Open(const char* path, int flags, mode_t mode) {
  return OpenAt(AT_FDCWD, path, flags, mode);
}

LastingFd LastingFd::OpenAt(int directory, const char* path, int flags, mode_t mode) {
  LastingFd opened;
  int fd;
  do {
    fd = ::openat(directory, path, flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) return opened;
  int moved = ::fcntl(fd, F_DUPFD_CLOEXEC, LowestLasting());
  if (moved < 0 && fd <= STDERR_FILENO) moved = ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (moved >= 0 || fd <= STDERR_FILENO) {
    const int error = errno;
    ::close(fd);
    errno = error;
    fd = moved;
  }
  struct stat info;
  if (fd < 0) return opened;
  if (::fstat(fd, &info) != 0) {
    ::close(fd);
    return opened;
  }
  opened.fd_ = fd;
  opened.device_ = info.st_dev;
  opened.inode_ = info.st_ino;
  return opened;
}

LastingFd& LastingFd::operator=(LastingFd&& other) noexcept {
  if (this == &other) return *this;
  // The file may have been closed behind our back and opened again under the same number.
  if (fd_ != other.fd_) (void)Close();
  fd_ = std::exchange(other.fd_, -1);
  device_ = other.device_;
  inode_ = other.inode_;
  return *this;
}

bool LastingFd::Mine() const {
  struct stat info;
  return fd_ >= 0 && ::fstat(fd_, &info) == 0 && info.st_dev == device_ && info.st_ino == inode_;
}

int LastingFd::Close() {
  const bool mine = Mine();
  const int fd = std::exchange(fd_, -1);
  if (!mine) return EBADF;
  return ::close(fd) == 0 || errno == EINTR ? 0 : errno;
}

sigset_t AllSignalsButFaults() {
  sigset_t signals;
  sigfillset(&signals);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS})
    sigdelset(&signals, fault);
  return signals;
}

ScopedSignalShield::ScopedSignalShield() {
  // Everything that may wait, not only the two: a profiler's timer at 1 kHz interrupts the posix_fallocate of
  // 256 MiB on tmpfs (73 ms, undone on EINTR) every time, and it would never end. Faults cannot wait.
  const sigset_t blocked = AllSignalsButFaults();
  pthread_sigmask(SIG_BLOCK, &blocked, &previous_mask_);
  sigset_t pending;
  sigpending(&pending);
  sigemptyset(&swallowed_);
  // A signal that was pending before we came is the host program's: it stays pending.
  for (const int ours : {SIGXFSZ, SIGPIPE}) {
    if (!sigismember(&pending, ours)) sigaddset(&swallowed_, ours);
  }
}

ScopedSignalShield::~ScopedSignalShield() {
  const int saved_errno = errno;
  const timespec now{};
  while (sigtimedwait(&swallowed_, nullptr, &now) > 0 || errno == EINTR) {
  }
  pthread_sigmask(SIG_SETMASK, &previous_mask_, nullptr);
  errno = saved_errno;
}

int WriteFully(int fd, std::span<const std::byte> bytes) {
  const ScopedSignalShield shield;
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    // A regular file that takes nothing and gives no reason would spin here for ever.
    if (written == 0) return ENOSPC;
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return 0;
}

}  // namespace tdbg::base
