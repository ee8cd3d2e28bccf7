// The runs below a prefix, from what their uploaders say of them: two requests a run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "storage/object_store.h"

namespace tdbg::storage {

struct ListedRun {
  std::string name;  ///< below the prefix; empty: the prefix itself
  /// "complete"; while it trains "running", "late" (its uploader is silent), "gone" (silent for so long that
  /// it is taken for gone) or "left" (it was sent once, and went on); "incomplete" (its uploader gave up);
  /// "copied" (a run's files without an uploader's word); "smdebug" (smdebug's directory)
  std::string state;
  std::string host;  ///< of its uploader
  uint64_t bytes = 0;
  int64_t age_nanos = 0;  ///< since its uploader's last word, or since its run.json was put there
};

struct RunList {
  std::vector<ListedRun> runs;  ///< by name
  bool more = false;            ///< there are more than were looked at
};

/// \param most  how many runs, and how many folders that hold them, are looked at
/// \error  as of the store
Result<RunList> RunsBelow(ObjectStore* store, const Location& from, size_t most);

}  // namespace tdbg::storage
