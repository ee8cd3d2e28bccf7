// Flags, file and environment -> one configuration -> rules with their actions, and the plan. Shared by
// `run`, `plan` and `watch`.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plan/config.h"
#include "tdbg/status.h"

namespace CLI {
class App;
}

namespace tdbg::cli {

/// The flags that describe what is captured and judged.
struct ConfigFlags {
  std::string dir, config_file;
  std::vector<std::string> rules, rule_files, on_issue, collect;
  std::optional<std::string> summaries, histograms, journal, when_full, budget, tensorboard, format;
  bool shared = false;

  void Define(CLI::App& app);
  /// Only --rule, --rule-file, --on-issue.
  void DefineRuleFlags(CLI::App& app);
};

/// Flags over file over $TDBG_CONFIG (a path, or YAML text that starts with "{") over defaults.
/// \error kInvalidArgument
Result<plan::Config> ResolveConfig(const ConfigFlags& flags);

/// `all` and `recommended` among the rules become the rules they mean (rule_groups.cc), each as if nobody had
/// named it; a rule that is also there by its own name is that one alone. \error kInvalidArgument  parameters
Status ExpandGroups(std::vector<plan::RuleConfig>* rules);

/// The rules of --rule and --rule-file flags. \error kInvalidArgument
Result<std::vector<plan::RuleConfig>> RulesOfFlags(const std::vector<std::string>& rules,
                                                   const std::vector<std::string>& rule_files);

/// The rules to watch with: the configured ones, or ExplodingTensor that only reports (docs/semantics.md,
/// "Without a rule"); each with the actions that apply to it.
std::vector<plan::RuleConfig> RulesToWatch(const plan::Config& config);

/// rules.json: what a run was judged with, for `check` and `watch` to repeat.
/// Without what looks like a secret, with the hashes of rules' files, and sealed where there is a program in
/// it.
std::string RulesToJson(const std::vector<plan::RuleConfig>& rules);

/// rules.json as it is. What of it may be used, RulesToTrust says (trust.h).
struct RecordedRules {
  std::vector<plan::RuleConfig> rules;
  std::map<std::string, std::string> hashes;  ///< of rules' files, by path: SHA-256, hexadecimal
  std::string seal, sealed_text;
};
/// Nothing where the run holds no rules.json. \error kDataLoss
Result<std::optional<RecordedRules>> ReadRules(const std::string& run_directory);

}  // namespace tdbg::cli
