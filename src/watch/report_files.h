// Documents that rules make of a run, beside it: <run>/rule-output/<rule's name>/<file>, where SageMaker's
// clients look for them.
#pragma once

#include <string>

#include "rules/rule.h"
#include "tdbg/status.h"

namespace tdbg::watch {

/// Replaces what is there; a reader sees the old document or the new one. \return the path
Result<std::string> WriteReport(const std::string& run, const std::string& rule_name,
                                const rules::Report& report);

}  // namespace tdbg::watch
