// What rules are told of the run that they judge, besides its steps. `run` is its directory.
#pragma once

#include <optional>
#include <string>

#include "plan/plan.h"
#include "rules/engine.h"
#include "rules/rule.h"

namespace tdbg::rules {

/// How rules open other runs: by path, or by the name of a run beside `run`.
RuleEnvironment EnvironmentOf(const std::string& run);

/// The plan the run was captured with; nothing if the run has none that can be read.
std::optional<plan::Plan> PlanOf(const std::string& run);

/// How the run ended, for rules in progress, if no launcher recorded it.
JobEnd EndOf(RunState state);

}  // namespace tdbg::rules
