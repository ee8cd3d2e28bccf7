// A run that lives in a bucket becomes a run of this machine again, which goes on with its next attempt.
#pragma once

#include <functional>
#include <string>

#include "storage/mirror.h"
#include "storage/object_store.h"

namespace tdbg::storage {

struct BringBackOptions {
  Location from;
  std::string directory;  ///< the run's on this machine: it has the run, or is empty, or missing
  int requests_at_once = 12;
  std::function<void(const std::string&)> say;  ///< gets sentences for people; must not be empty
};

enum class BroughtBack {
  kNoRun,    ///< nothing was uploaded to the prefix; other objects may be there
  kIsHere,   ///< the directory has all of it, and perhaps more
  kBehind,   ///< the directory has the run, which went on elsewhere since
  kBrought,  ///< it was brought back
};

/// Brings it back, where the directory has no run: into a hidden neighbour of the directory, which is renamed
/// once everything is there. If that is interrupted, the next call goes on with it. What the prefix lacks
/// because its uploader was cut off is left out; what must be there and is not is an error. Waits until an
/// uploader that may live has given no sign of life for as long as Uploader::Check would ask for.
/// \param bytes  may be null: how much was fetched so far, for another thread to look at
/// \error kAlreadyExists      an uploader of the run lives; or the prefix, or the directory, has another run
/// \error kDataLoss           objects are missing or damaged
/// \error kFailedPrecondition another process is bringing it back
Result<BroughtBack> BringBack(ObjectStore* store, const BringBackOptions& options, FetchedBytes* bytes);

}  // namespace tdbg::storage
