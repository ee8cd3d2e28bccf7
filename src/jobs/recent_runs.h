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

/// $XDG_STATE_HOME/tdbg/recent-runs.jsonl, by default ~/.local/state/tdbg/recent-runs.jsonl. Empty: neither
/// variable is set to an absolute path.
std::string RecentRunsPath();

/// Appends one line; beyond some 500 of them the older half is dropped. What cannot be written is left
/// quietly.
void RememberRun(const RecentRun& run, base::FileSystem& files = base::LocalFileSystem());

/// The recorded runs that still exist, the one started last at the end. Lines of another form are skipped.
std::vector<RecentRun> RecentRuns(base::FileSystem& files = base::LocalFileSystem());

}  // namespace tdbg::jobs
