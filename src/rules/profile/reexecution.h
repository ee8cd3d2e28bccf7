// What was executed again and gave something else (tdbg run --verify-every).
#pragma once

#include "rules/profile/detector.h"

namespace tdbg::rules::profile {

void AddReexecution(Detectors* to);

}  // namespace tdbg::rules::profile
