#include "base/posix.h"

#include <errno.h>
#include <time.h>

namespace tdbg::base {

Status PathError(int error_number, std::string_view what, std::string_view path) {
  const Status plain = ErrnoStatus(error_number, what);
  std::string message = plain.message();
  message.append(": ").append(path);
  return Status(plain.code(), std::move(message));
}

ScopedSignalShield::ScopedSignalShield() {
  // Everything that may wait, not only the two: a profiler's timer at 1 kHz interrupts the posix_fallocate of
  // 256 MiB on tmpfs (73 ms, undone on EINTR) every time, and it would never end. Faults cannot wait.
  sigset_t blocked;
  sigfillset(&blocked);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS})
    sigdelset(&blocked, fault);
  pthread_sigmask(SIG_BLOCK, &blocked, &previous_mask_);
  sigset_t pending;
  sigpending(&pending);
  sigemptyset(&swallowed_);
  // One that was pending before is the host program's and stays.
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
