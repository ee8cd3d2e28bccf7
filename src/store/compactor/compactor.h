// Writes a worker's coarse rows. docs/format.md, "Levels".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"
#include "tdbg/status.h"

namespace tdbg::store {

/// What stays at full resolution when a worker's files have outgrown their budget.
struct Retention {
  uint64_t budget_bytes = 0;  ///< of a worker's segments and coarse rows together; 0: nothing is dropped
  uint64_t slack_bytes = 0;   ///< what has outgrown its budget is brought so far below it
  int64_t newest = 500;       ///< so many steps at the end stay
  int64_t first = 500;        ///< and so many at the beginning
  struct Steps {
    int64_t first = 0, last = 0;
  };
  std::vector<Steps> kept;  ///< and these: around what was found, and what somebody marked
};

struct CompactOptions {
  Retention retention;
  /// A file is closed when it has so many bytes: who zooms in maps a few files, not one of a gigabyte.
  uint64_t file_bytes = uint64_t{8} << 20;
  /// While the worker lives a file is written once it would have so many bytes, or so many groups; what is
  /// left waits for the next call. Afterwards, and where levels 1 and 2 are needed so that something may be
  /// dropped, all whole groups are written.
  uint64_t least_bytes = uint64_t{1} << 20;
  uint64_t least_groups = 256;
  base::FileSystem* files = nullptr;  ///< null: the machine's
};

struct CompactResult {
  uint64_t groups = 0, files = 0, bytes = 0;    ///< written by this call
  int64_t covered_until = -1;                   ///< the last step that level 1 tells of; -1: none
  uint64_t level_bytes = 0, segment_bytes = 0;  ///< what there is now
  uint64_t thinned_steps = 0, dropped_rows = 0, dropped_raws = 0;  ///< by this call
  uint64_t over_bytes = 0;     ///< beyond the budget, and nothing more may be dropped
  uint64_t damaged_files = 0;  ///< of coarse rows, and what they held is nowhere else
  uint64_t damaged_rows =
      0;  ///< rows of sealed steps that could not be read; their groups count them missing
};

/// Takes in what segments hold and no coarse row tells of yet. Never in the training's process: it reads what
/// the training sealed, and writes only into `levels/`. Whatever ends it, at any instant, leaves what was
/// there and whole files of it; the next call goes on.
/// \param worker_directory  <run>/<attempt>/<worker>
/// \error kFailedPrecondition  another one does that now; kResourceExhausted  no room; WorkerReader::Open's
Result<CompactResult> CompactWorker(const std::string& worker_directory, const CompactOptions& options = {});

/// <run>/<attempt>/<worker> of every worker of a run, in order.
/// \error kNotFound  no run is there
Result<std::vector<std::string>> WorkerDirectoriesOf(const std::string& run);

}  // namespace tdbg::store
