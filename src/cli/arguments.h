// Splits argv into what is tdbg's and the command; reads --rule and --rule-file.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "plan/config.h"
#include "tdbg/status.h"

namespace tdbg::cli {

struct Arguments {
  std::vector<std::string> ours;     ///< for Flags, without the program's name
  bool has_command = false;          ///< there was a "--"
  std::vector<std::string> command;  ///< what followed it
};

/// Splits at the first "--" and joins `--rule NAME key=value key=value` into one value each, so that a value
/// list can never swallow what follows it (`tdbg check --rule R threshold=1 RUN`).
Arguments SplitArguments(std::span<const std::string> words);

/// One --rule: what SplitArguments joined, or "NAME:key=value,key=value". A comma separates only in front of
/// another `key=`, so regular expressions may hold commas. `name`, `on_issue` and
/// `action_cooldown_seconds` are the rule's, the rest its parameters'.
/// \error kInvalidArgument
Result<plan::RuleConfig> ParseRuleFlag(const std::string& text);

/// One --rule-file: "FILE:CLASS" and what SplitArguments joined to it; also limit_seconds,
/// limit_start_seconds and limit_memory. \error kInvalidArgument
Result<plan::RuleConfig> ParseRuleFileFlag(const std::string& text);

}  // namespace tdbg::cli
