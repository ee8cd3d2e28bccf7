// Requests to a running job: at which step one can take effect, and whether it did.
#pragma once

#include <cstdint>
#include <string>

#include "tdbg/status.h"
#include "tdbg/trial.h"

namespace tdbg::watch {

/// A step so far ahead that every worker of the latest attempt reads the request before it reaches the step,
/// so that the request takes effect on all workers at once (docs/semantics.md, "Requests to a running job").
/// As many steps as take a second, and two more; with a single worker the next step; while all are held, the
/// step after which they are.
int64_t CommonFutureStep(const Trial& trial);

/// Asks the job for a checkpoint and waits for the first worker's answer (all save at the same step),
/// `seconds` at most.
/// \error kFailedPrecondition  the script registered no function, or its function failed (with its message)
/// \error kDeadlineExceeded    no answer in time
Status SaveCheckpoint(const std::string& run, const std::string& by, int64_t at_step, int64_t seconds);

}  // namespace tdbg::watch
