// smdebug's run directory, made from a run.
#pragma once

#include <memory>
#include <string>

#include "ship/destination.h"
#include "tdbg/status.h"

namespace tdbg::ship {

struct SmdebugOptions {
  std::string directory;
  Choice::Options choice;
  /// From the first step taken on the directory's earlier steps no longer hold: a later attempt of a job, or
  /// this attempt's steps once more.
  bool restart = false;
  /// Finish writes the end marker if the run has ended. False where a launcher knows whether another attempt
  /// comes, and calls MarkSmdebugEnd.
  bool marks_end = true;
};

/// Steps: those at which something was saved, as smdebug's calls on the run see them (StepKind::kSaved: what
/// a SaveConfig made due; every step where the plan has none). At such a step: saved values, saved
/// reductions, and every number that the run keeps (losses, metrics, learning rates). A tensor that was
/// saved, but of which there are only statistics, has the reductions that follow from those: all but prod.
/// \error kInvalidArgument  the choice; Take: kResourceExhausted, kUnavailable (cannot write)
Result<std::unique_ptr<Destination>> MakeSmdebug(const SmdebugOptions& options);

/// Tells the directory's readers that the training is over. Does nothing where there is no such directory.
Status MarkSmdebugEnd(const std::string& directory);
/// The training goes on: takes that back. \error  they are still told that it is over
Status UnmarkSmdebugEnd(const std::string& directory);

/// Did MakeSmdebug's destination write this file? `inside` is its path below `directory`. smdebug's own
/// directories look the same: ours, if they were not somebody else's before, have a marker.
bool IsOurSmdebugFile(const std::string& directory, const std::string& inside);

}  // namespace tdbg::ship
