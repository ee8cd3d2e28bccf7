// The user's own rules beside the built-in ones: looked at before training, judged in processes of their own.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "plan/config.h"
#include "rules/rule.h"
#include "tdbg/status.h"

namespace tdbg::rulehost {

struct RegistryOptions {
  std::string run;       ///< path of the run that will be judged; the rules' processes open it
  int64_t attempt = -1;  ///< as TrialOptions::attempt
};

/// What a rule of a file says of itself, and what it needs with the parameters it was given.
struct Description {
  rules::RuleInfo info;
  plan::Need needs;
  std::string page;  ///< what else its author says of it, for people; may be empty
};

/// Loads the file in a process of its own, under the configuration's limits, and asks. \error
/// kInvalidArgument no such file or class (names those that are there), an error in the file (with file and
/// line), a rule that refuses its parameters; kUnavailable  there is no Python to run it with
Result<Description> Describe(const plan::RuleConfig& config);

/// The built-in rules, and those of files that the configurations name.
class Registry : public rules::RuleRegistry {
 public:
  /// Describes every rule of a file. \error as Describe, annotated with where the rule was written
  static Result<std::unique_ptr<Registry>> Create(const std::vector<plan::RuleConfig>& configs,
                                                  RegistryOptions options);

  Result<const rules::RuleInfo*> FindFor(const plan::RuleConfig& config) const override;
  Result<std::unique_ptr<rules::Rule>> MakeFor(const plan::RuleConfig& config) const override;

 private:
  using Key = std::pair<std::string, std::map<std::string, std::string>>;  // FILE:CLASS, parameters
  static Key KeyOf(const plan::RuleConfig& config);
  Registry() = default;

  RegistryOptions options_;
  std::map<Key, Description> described_;
};

}  // namespace tdbg::rulehost
