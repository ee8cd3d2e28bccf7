// Which runs of the cache are in use, by whatever processes, and which may be removed.
#pragma once

#include <cstdint>
#include <string>

#include "base/posix.h"
#include "tdbg/status.h"

namespace tdbg::storage {

/// Makes a cached run's directory. It is not removed for as long as the descriptor is open.
Result<base::UniqueFd> KeepInUse(const std::string& home);
/// How much of a disk the runs of a cache may take: $TDBG_CACHE_SIZE ("20GiB"), else 10 GiB.
uint64_t CacheBytes();
/// Removes the runs below a cache's root that nobody has opened for a week; and where all together take more
/// than `most_bytes`, those that were opened longest ago. What is open stays.
void RemoveUnused(const std::string& root, uint64_t most_bytes = CacheBytes());
/// Whether the open file is the one at that path.
bool IsAt(int fd, const std::string& path);

}  // namespace tdbg::storage
