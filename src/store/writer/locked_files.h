// The file system as the holder of a worker's lock may use it.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/forwarding_file_system.h"

namespace tdbg::store {

/// Creates and publishes files only while the lock lies where it was taken.
///
/// Everything beside the lock goes by path. After `rm -rf run` under a living training and a second one
/// started in the same place, the path leads to files of the second: without a look at the lock the first
/// would hang its segments among the other's. What is left is the instant between the look and the rename.
/// \error kNotFound  the lock is not there any more.
class LockedFiles final : public base::ForwardingFileSystem {
 public:
  /// Borrows both for life.
  LockedFiles(base::FileSystem* files, const base::FileLock* lock)
      : ForwardingFileSystem(files), lock_(lock) {}

  Result<std::unique_ptr<base::PendingFile>> CreatePending(const std::string& temporary_path) override;
  Status WriteFileAtomic(const std::string& path, std::string_view contents) override;

 private:
  const base::FileLock* const lock_;
};

}  // namespace tdbg::store
