// When a script said that its scalars were, where it said so (smdebug's save_scalar(timestamp=)).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "trial/access.h"

namespace tdbg {

/// Of the scalars of one worker's step: seconds since the Unix epoch, by the scalar's name. Those of which
/// nothing was said are not in it: they were when the step was.
std::map<std::string, double, std::less<>> ScalarTimestampsAt(const TrialAccess& access, int64_t global_step,
                                                              WorkerIndex worker);

}  // namespace tdbg
