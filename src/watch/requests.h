// What is asked of a running job: when it can take effect, and whether it did.
#pragma once

#include <cstdint>
#include <string>

#include "tdbg/status.h"
#include "tdbg/trial.h"

namespace tdbg::watch {

/// A step that no worker of the latest attempt has reached, as of the trial's last Refresh, and that none
/// will have reached when it reads of it, so that a request takes effect on all alike (docs/semantics.md,
/// "Requests to a running job"). A second's worth of steps ahead, and two; with a single worker the next.
int64_t CommonFutureStep(const Trial& trial);

/// Asks the job for a checkpoint and waits for the first worker's answer (all save at the same step),
/// `seconds` at most.
/// \error kFailedPrecondition  the script registered nothing, or what it registered failed (in its words)
/// \error kDeadlineExceeded    no answer in time
Status SaveCheckpoint(const std::string& run, const std::string& by, int64_t at_step, int64_t seconds);

}  // namespace tdbg::watch
