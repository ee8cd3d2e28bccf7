// What runs occupy on disk, and removing one for good.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tdbg/status.h"

namespace tdbg::jobs {

struct DiskUse {
  uint64_t bytes = 0;             ///< blocks that its files occupy, logs and black boxes included
  int64_t newest_wall_nanos = 0;  ///< when a file of it was last written; locks do not count
};
/// Of a directory and all that is below it. Symbolic links are not followed; what cannot be read counts
/// nothing.
DiskUse DiskUseOf(const std::string& directory);

/// What lies in a run directory and was not written by tdbg or smdebug: a user's checkpoints, say.
std::vector<std::string> ForeignEntries(const std::string& run_directory);

/// Removes a run, below `root`, with everything in it. It first gets another name, which no list of runs
/// shows: whoever looks sees all of it or nothing. If this process ends meanwhile, FinishRemovals goes on.
/// \param run_directory  as ListRuns(root) names it
/// \error kNotFound            there is no run
/// \error kFailedPrecondition  a launcher or a worker of it is alive, or it has entries that are foreign
/// \error kAlreadyExists       it lies behind a symbolic link
Status RemoveRun(const std::string& root, const std::string& run_directory);

/// Removes what RemoveRun has begun to remove below `root` and its folders. \return how many there were
Result<int> FinishRemovals(const std::string& root);

/// A name of a directory that is being removed: no run any more.
bool IsBeingRemoved(std::string_view name);

}  // namespace tdbg::jobs
