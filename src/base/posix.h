// What the POSIX half of base shares: descriptors that close themselves, errors that name their path, and
// system calls whose signals stay inside.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "tdbg/status.h"

namespace tdbg::base {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~UniqueFd() { reset(); }
  void reset(int fd = -1) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }
  int release() { return std::exchange(fd_, -1); }
  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// As open(2) and openat(2), with O_CLOEXEC, and never 0, 1 or 2. In a process that is somebody else's those
/// are free where it was started without them, and for an instant where a script closes them to open its own:
/// what we sync for a second would be its standard stream. Not ok() and errno where it fails.
UniqueFd OpenFd(const char* path, int flags, mode_t mode = 0666);
UniqueFd OpenFdAt(int directory, const char* path, int flags, mode_t mode = 0666);

/// As OpenFdAt, for a file that is written to where anybody may have put something else. Opens no pipe, no
/// device and nothing that a link leads to (EINVAL, ENXIO, ELOOP): a pipe's writer waits for its reader.
UniqueFd OpenPlainFileAt(int directory, const char* path, int flags, mode_t mode = 0666);
inline UniqueFd OpenPlainFile(const char* path, int flags, mode_t mode = 0666) {
  return OpenPlainFileAt(AT_FDCWD, path, flags, mode);
}

/// A descriptor that is held for long in a process that is somebody else's. A script may close descriptors
/// that are not its own (`os.closerange(3, 256)`, a daemoniser), and what it opens next may get our number:
/// then nothing of ours may be written to it, and closing it is not ours either.
///
/// It stays clear of the numbers that scripts deal in: never 0, 1 or 2, which are free where a job was
/// started without them, and high where the limit allows. \threadsafety None.
class LastingFd {
 public:
  LastingFd() = default;
  LastingFd(LastingFd&& other) noexcept { *this = std::move(other); }
  LastingFd& operator=(LastingFd&& other) noexcept;
  ~LastingFd() { Close(); }
  /// As open(2), with O_CLOEXEC. Not ok() and errno where that fails.
  static LastingFd Open(const char* path, int flags, mode_t mode = 0666);
  /// As openat(2), likewise.
  static LastingFd OpenAt(int directory, const char* path, int flags, mode_t mode = 0666);
  /// The descriptor, or -1 where it is not ours any more. A system call, 0.2 us.
  int Get() const { return Mine() ? fd_ : -1; }
  /// Without that look: for calls that do no harm to another's file.
  int Unchecked() const { return fd_; }
  bool ok() const { return fd_ >= 0; }
  bool Mine() const;
  /// If it is still ours. \return 0 or errno, EBADF where it was not ours any more
  int Close();
  dev_t device() const { return device_; }
  ino_t inode() const { return inode_; }

 private:
  int fd_ = -1;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

/// All signals but those of faults, which cannot wait: blocked where one happens, it kills.
sigset_t AllSignalsButFaults();

/// "what: strerror: path"; the path last, so that it is easy to cut off before sharing.
Status PathError(int error_number, std::string_view what, std::string_view path);

/// While it lives, this thread gets no signals; a SIGXFSZ (file-size limit) or SIGPIPE raised by a call
/// made meanwhile is swallowed, and the call's errno tells. Both default to killing the process, and a
/// debugger that hits a limit must not end the training.
class ScopedSignalShield {
 public:
  ScopedSignalShield();
  ~ScopedSignalShield();
  ScopedSignalShield(const ScopedSignalShield&) = delete;

 private:
  sigset_t previous_mask_;
  sigset_t swallowed_;
};

/// All of it, or errno. Shielded.
int WriteFully(int fd, std::span<const std::byte> bytes);

}  // namespace tdbg::base
