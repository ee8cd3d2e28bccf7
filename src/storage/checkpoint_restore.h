// Brings the newest whole set of checkpoints of a run's prefix back into a directory (checkpoint_sets.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "storage/checkpoint_sets.h"
#include "storage/object_store.h"
#include "tdbg/status.h"

namespace tdbg::storage {

struct RestoreOptions {
  Location run;           ///< the run's prefix
  std::string directory;  ///< missing or empty; one that holds anything is left as it is
  int files_at_once = 4;
  std::function<void(const std::string&)> say;  ///< gets sentences for people; must not be empty
};

struct Restored {
  bool kept = false;    ///< the directory holds something, and was left as it is
  uint64_t number = 0;  ///< of the set that came back; 0: there is none in the prefix
  CheckpointSet set;
};

/// The newest set of which every file is there with its size and sum; a damaged one is named, and the next
/// older one taken. Until all of it is there and checked, the directory stays missing or empty: it is written
/// into a folder beside it (inside it where that is impossible, as with a mounted disk), which a killed
/// restore leaves and the next one removes.
/// \error kDataLoss  there are sets, and none is whole; kResourceExhausted  no room; kFailedPrecondition  it
/// cannot be written; ObjectStore's, where the store fails
Result<Restored> RestoreCheckpoints(ObjectStore* store, const RestoreOptions& options);

/// Whether a directory holds nothing: it is missing, or has no entry, or only what a killed restore has left.
Result<bool> HoldsNothing(const std::string& directory);

}  // namespace tdbg::storage
