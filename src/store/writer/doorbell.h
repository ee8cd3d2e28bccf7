// The small file that tells readers' inotify that something was committed.
#pragma once

#include <cstdint>
#include <string>

#include "base/file.h"
#include "base/posix.h"

namespace tdbg::store {

/// Writes the 8 bytes in place: a rename per commit would cost two directory updates and a watch on the file
/// would lose it, and of stores into a mapping nobody hears. Failures are ignored; readers poll slowly
/// anyway. \threadsafety One thread.
class Doorbell {
 public:
  /// Makes the file: readers can watch it before the first ring, instead of polling for it.
  /// Borrows the worker's lock for life: in a directory that is not ours any more no file is made.
  Doorbell(std::string path, const base::FileLock* lock) : path_(std::move(path)), lock_(lock) { Open(); }
  void Ring(uint64_t committed_seq);

 private:
  void Open();

  std::string path_;
  const base::FileLock* const lock_;
  base::LastingFd fd_;
  uint64_t rung_ = 0;
  uint32_t skip_ = 0;  // attempts to leave out after a failed open
};

}  // namespace tdbg::store
