// Built-in rules that `check` tried although they were not named, and that have no verdict.
#pragma once

#include <string>
#include <vector>

#include "cli/terminal.h"

namespace tdbg::cli {

struct NotRun {
  enum class Cause {
    kParameters,  ///< a parameter has no default
    kNothing,     ///< no step had what it judges
    kPart,        ///< only some steps had all of it, although nothing was dropped
  };
  std::string rule;  ///< class name
  Cause cause = Cause::kNothing;
  std::string why;  ///< this rule's own reason, of any length
};

/// The rules by cause, and what to do about each cause. Only --json has each rule's own reason: there are
/// some twenty, of which a user wants one. \param run  quoted for a shell
std::string FormatNotRun(const std::vector<NotRun>& rules, const std::string& run, const Terminal& terminal);

}  // namespace tdbg::cli
