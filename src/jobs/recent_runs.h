// Where this user started runs lately, so that `last` finds those that --dir put elsewhere. A list of hints
// in the user's state directory and no registry: what a run is, its directory says; a run that is gone is
// forgotten, and without the file (no home, a read-only one) only runs below ./tdbg-runs are found.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"

namespace tdbg::jobs {

struct RecentRun {
  std::string run_directory;      ///< absolute
  std::string working_directory;  ///< of whoever started it, absolute
  int64_t started_wall_nanos = 0;
};

/// recent-runs.jsonl in the user's state directory (state_directory.h). Empty: there is none.
std::string RecentRunsPath();

/// Appends one line; beyond some 500 of them, or 4 MiB, the older half is dropped. Of several that do so at
/// once none loses a line: they wait for each other, at most 2 s. What cannot be written is left quietly.
void RememberRun(const RecentRun& run, base::FileSystem& files = base::LocalFileSystem());

/// The recorded runs that still exist, the one started last at the end. Lines of another form are skipped.
std::vector<RecentRun> RecentRuns(base::FileSystem& files = base::LocalFileSystem());

}  // namespace tdbg::jobs
