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
  /// A later attempt of a job: from the first step taken on the directory's earlier steps no longer hold.
  bool restart = false;
};

/// Steps: those at which something was saved, as smdebug's calls on the run see them (StepKind::kSaved: what
/// a SaveConfig made due; every step where the plan has none). At such a step: saved values, saved
/// reductions, and every number that the run keeps (losses, metrics, learning rates). A tensor that was
/// saved, but of which there are only statistics, has the reductions that follow from those: all but prod.
/// The end marker is written by Finish if the run has ended.
/// \error kInvalidArgument  the choice; Take: kResourceExhausted, kUnavailable (cannot write)
Result<std::unique_ptr<Destination>> MakeSmdebug(const SmdebugOptions& options);

/// Did MakeSmdebug's destination write this file? `inside` is its path below `directory`. smdebug's own
/// directories look the same: ours, if they were not somebody else's before, have a marker.
bool IsOurSmdebugFile(const std::string& directory, const std::string& inside);

}  // namespace tdbg::ship
