// Which runs of the cache are in use, by whatever processes, and which may be removed.
#pragma once

#include <string>

#include "base/posix.h"
#include "tdbg/status.h"

namespace tdbg::storage {

/// Makes a cached run's directory. It is not removed for as long as the descriptor is open.
Result<base::UniqueFd> KeepInUse(const std::string& home);
/// Removes the runs below a cache's root that nobody has opened for a week and that are not open.
void RemoveUnused(const std::string& root);
/// Whether the open file is the one at that path.
bool IsAt(int fd, const std::string& path);

}  // namespace tdbg::storage
