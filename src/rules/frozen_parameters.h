// Which parameters a script has frozen on purpose.
#pragma once

#include <set>
#include <string>

#include "rules/step_context.h"

namespace tdbg::rules {

/// Follows what adaptors say of the parameters (context topic "parameters"): those that take no gradient.
class FrozenParameters {
 public:
  /// Takes in what holds at this step.
  void Update(const StepContext& step);
  /// \param name  canonical
  bool Holds(const std::string& name) const { return names_.contains(name); }

 private:
  std::string text_;  // that was read last
  std::set<std::string> names_;
};

}  // namespace tdbg::rules
