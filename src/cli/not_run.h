// Built-in rules that `check` tried without being asked and that have no verdict.
#pragma once

#include <string>
#include <vector>

#include "cli/terminal.h"

namespace tdbg::cli {

struct NotRun {
  enum class Cause {
    kParameters,  ///< one has no default
    kNothing,     ///< no step held what it judges
    kPart,        ///< some steps did, and others not all of it, though nothing was lost
  };
  std::string rule;  ///< class name
  Cause cause = Cause::kNothing;
  std::string why;  ///< of this rule alone, however long
};

/// The rules by cause, and what to do about each cause. The reasons one by one are left to --json: there are
/// some twenty, of a line or two each, of which a person wants one. `run`: as a shell takes it.
std::string FormatNotRun(const std::vector<NotRun>& rules, const std::string& run, const Terminal& terminal);

}  // namespace tdbg::cli
