// Makes a plan from a configuration and checks it, before anything is started or written.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plan/config.h"
#include "plan/plan.h"
#include "tdbg/status.h"

namespace tdbg::cli {

/// The plan of what rules and configuration together ask for. Compiles its regexes once, to be sure that they
/// are valid.
/// \error kInvalidArgument
Result<plan::Plan> PlanFor(const plan::Config& config, const std::vector<plan::Need>& needs);

/// Told before the training: if it turns out too short for a rule, only another run would help.
/// \param least  rules and the steps that each needs, as Watcher::LeastSteps
void NoteFirstVerdicts(const std::vector<std::pair<std::string, int64_t>>& least);

}  // namespace tdbg::cli
