// A job's rules and what it captures, as `tdbg run` is told of them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "service/job_files.h"
#include "tdbg/status.h"

namespace tdbg::service {

/// Where a rule of the user's own lies in a bucket; empty: it is a built-in one.
std::string RuleSource(const Json& configuration);
/// One rule as an entry of `rules:` (docs/configuration.md). \param file  of RuleSource, once it is here
/// \error kInvalidArgument  it is none that runs here
Result<nlohmann::json> RuleEntry(const Json& configuration, const std::string& file = {});

/// Whether it can be judged with: there is such a rule, and it takes these parameters. A rule of a file is
/// loaded, in a process of its own. \error kInvalidArgument
Status CheckRule(const nlohmann::json& entry);

/// What `action_json` asks for, as `on_issue:`. SDKs escape its quotes; both spellings are read.
/// \error kInvalidArgument
Result<std::vector<std::string>> ActionsOf(const std::string& action_json);

}  // namespace tdbg::service
