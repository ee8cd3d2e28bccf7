// Which program runs a file of rules.
#pragma once

#include <string>

#include "plan/config.h"
#include "rulehost/host_process.h"
#include "tdbg/status.h"

namespace tdbg::rulehost {

/// What runs rules in Python: $TDBG_PYTHON, else the interpreter whose site-packages hold this executable,
/// else `python3`.
std::string PythonInterpreter();

/// Command, environment and limits for a rule of a file. A Python source runs in PythonInterpreter();
/// a shared library in
/// `tdbg-rule-host`, found in $TDBG_HOME, beside the running executable or in PATH.
/// \error kInvalidArgument  what cannot be found, and where it was looked for
Result<HostOptions> HostFor(const plan::RuleConfig& config);

}  // namespace tdbg::rulehost
