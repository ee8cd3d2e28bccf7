// Where this user started runs lately, so that `last` finds runs in directories that --dir named. Only a list
// of hints in the user's state directory: everything about a run is in its own directory, and runs that are
// gone are skipped. Without the file (no home, or a read-only one) only runs below ./tdbg-runs are found.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"

namespace tdbg::jobs {

struct RecentRun {
  std::string run_directory;      ///< absolute
  std::string working_directory;  ///< of the process that started it, absolute
  int64_t started_wall_nanos = 0;
  std::string url = {};  ///< of the bucket into which it is uploaded; empty: none
  bool here = true;  ///< filled in by RecentRuns: false: the directory is gone, and the bucket has the run
};

/// recent-runs.jsonl in the user's state directory (state_directory.h). Empty: there is none.
std::string RecentRunsPath();

/// Appends one line; beyond some 500 lines, or 4 MiB, the older half is removed. Processes that do so at the
/// same time wait for each other, at most 2 s, so that no line is lost. A failure to write is ignored.
void RememberRun(const RecentRun& run, base::FileSystem& files = base::LocalFileSystem());

/// The recorded runs that still exist, in their directory or as far as is known in a bucket; the one started
/// last at the end. Lines of another form are skipped.
std::vector<RecentRun> RecentRuns(base::FileSystem& files = base::LocalFileSystem());

}  // namespace tdbg::jobs
