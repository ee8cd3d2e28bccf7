// Which files of a run's directory go into a store, and in which order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tdbg/status.h"

namespace tdbg::storage {

struct RunFile {
  std::string name;  ///< below the run's directory
  uint64_t bytes = 0;
  int64_t modified_nanos = 0;
  uint64_t inode = 0;
  bool Same(const RunFile& other) const {
    return bytes == other.bytes && modified_nanos == other.modified_nanos && inode == other.inode;
  }
};

/// By rank, then by name. Left out: locks, what only processes of this machine can use, unfinished files,
/// symbolic links, the scratch of a rehearsed attempt.
/// \error kUnavailable  a directory could not be listed: what was found is not all
Result<std::vector<RunFile>> FilesOfRun(const std::string& run_directory);
/// "0/worker_0": those that have a worker.json.
std::vector<std::string> WorkersOfRun(const std::string& run_directory);

/// A reader that finds a file of a rank in the store finds all files of lower ranks that it refers to.
int RankOfFile(std::string_view name);
inline constexpr int kLastRank = 3;
bool IsSegmentFile(std::string_view name);
/// Whether what is added to it is added at its end, so that only that needs to be sent.
bool GrowsAtItsEnd(std::string_view name);
/// Whether it tells smdebug's readers that no more will come. Such a file is in the run itself where its
/// script is one of smdebug's.
bool IsEndOfExport(std::string_view name);

}  // namespace tdbg::storage
