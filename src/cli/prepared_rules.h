// From a configuration to a plan that is known to be good, before anything is started or written.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "plan/config.h"
#include "plan/plan.h"
#include "tdbg/status.h"

namespace tdbg::cli {

/// What rules and configuration together ask for, its regexes compiled once as a proof.
/// \error kInvalidArgument
Result<plan::Plan> PlanFor(const plan::Config& config, const std::vector<plan::Need>& needs);

}  // namespace tdbg::cli
