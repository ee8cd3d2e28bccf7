// Makes a plan from a configuration and checks it, before anything is started or written.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "plan/config.h"
#include "plan/plan.h"
#include "tdbg/status.h"

namespace tdbg::cli {

/// The plan of what rules and configuration together ask for. Compiles its regexes once, to be sure that they
/// are valid.
/// \error kInvalidArgument
Result<plan::Plan> PlanFor(const plan::Config& config, const std::vector<plan::Need>& needs);

}  // namespace tdbg::cli
