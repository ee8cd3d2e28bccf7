// What the POSIX half of base shares: descriptors that close themselves, errors that name their path, and
// system calls whose signals stay inside.
#pragma once

#include <signal.h>
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
