// The pieces of LocalFileSystem, one file each. For local_file_system.cc only.
#pragma once

#include <memory>
#include <string>

#include "base/file.h"
#include "base/spot.h"

namespace tdbg::base {

Result<std::unique_ptr<ReadableFile>> OpenLocalReadable(const std::string& path);
Result<std::unique_ptr<PendingFile>> CreateLocalPending(const Ground& ground,
                                                        const std::string& temporary_path);
Result<std::unique_ptr<MappedFile>> CreateLocalMapped(const Ground& ground, const std::string& path,
                                                      uint64_t bytes);
Result<std::unique_ptr<FileLock>> LockLocal(const Ground& ground, const std::string& path);
bool IsLockedLocal(const std::string& path);

}  // namespace tdbg::base
