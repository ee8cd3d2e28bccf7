// Prepares argv for CLI11, and words CLI11's errors.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "plan/config.h"
#include "tdbg/status.h"

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace tdbg::cli {

struct Arguments {
  std::vector<std::string> ours;     ///< for CLI11, without the program's name
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

/// For CLI::Option::check: a whole number that is at least this, and that 64 bits hold (CLI11 itself takes
/// the nearest that they do).
std::function<std::string(const std::string&)> IntegerFrom(int64_t at_least);
/// A finite number, at least 0.
std::function<std::string(const std::string&)> FiniteFrom0();

/// --attempt N of a command that reads a run; `attempt` stays as it is (-1: all of them) where it is not
/// given.
void AddAttempt(CLI::App& app, int64_t& attempt);

/// "tdbg run: unknown flag '--rul'; did you mean '--rule'?": one line, for people.
std::string DescribeParseError(const CLI::ParseError& error, const CLI::App& app, bool takes_command);

}  // namespace tdbg::cli
