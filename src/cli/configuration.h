// Flags, file and environment -> one configuration -> rules with their actions, and the plan. Shared by
// `run`, `plan` and `watch`.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plan/config.h"
#include "tdbg/status.h"

namespace tdbg::cli {

class Flags;

/// The flags that describe what is captured and judged.
struct ConfigFlags {
  std::string dir, config_file;
  std::vector<std::string> rules, rule_files, on_issue, collect;
  std::optional<std::string> summaries, histograms, journal, when_full, budget, black_box, tensorboard,
      format;
  int64_t verify_every = 0, flight = 0;  ///< 0: not said
  bool shared = false;
  bool warned = false;  ///< what ResolveConfig warns of has been said by another process

  void Define(Flags& flags);
  /// Only --rule, --rule-file, --on-issue.
  void DefineRuleFlags(Flags& flags);
  void DefineConfigFlag(Flags& flags);
};

/// Flags over file over $TDBG_CONFIG (a path, or YAML text that starts with "{") over defaults.
/// \error kInvalidArgument
Result<plan::Config> ResolveConfig(const ConfigFlags& flags);

/// Replaces `all` and `recommended` by the rules that they stand for (rule_groups.cc), each marked as not
/// named by the user; a rule that is also named by itself is used once, as named. \error kInvalidArgument
/// parameters
Status ExpandGroups(std::vector<plan::RuleConfig>* rules);

/// The rules of --rule and --rule-file flags. \error kInvalidArgument
Result<std::vector<plan::RuleConfig>> RulesOfFlags(const std::vector<std::string>& rules,
                                                   const std::vector<std::string>& rule_files);

/// The rules to watch with: the configured ones, or the profile that only reports (docs/semantics.md,
/// "Without a rule"); each with the actions that apply to it.
std::vector<plan::RuleConfig> RulesToWatch(const plan::Config& config);

/// Does the configuration itself name rules, or what to do at a finding?
bool AsksToJudge(const plan::Config& config);

/// rules.json: what a run was judged with, for `check` and `watch` to repeat.
/// Secrets are removed, the hashes of rules' files are added, and if it names programs it is sealed.
std::string RulesToJson(const std::vector<plan::RuleConfig>& rules);

/// Reads rules.json. RulesToTrust (trust.h) says which of its rules may be used.
struct RecordedRules {
  std::vector<plan::RuleConfig> rules;
  std::map<std::string, std::string> hashes;  ///< of rules' files, by path: SHA-256, hexadecimal
  std::string seal, sealed_text;
};
/// Nothing if the run has no rules.json. \error kDataLoss
Result<std::optional<RecordedRules>> ReadRules(const std::string& run_directory);

}  // namespace tdbg::cli
