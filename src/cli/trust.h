// Whom a run may command: which of the rules that it names are used by who opens it (SECURITY.md).
#pragma once

#include <string>
#include <vector>

#include "cli/configuration.h"
#include "plan/config.h"
#include "tdbg/status.h"

namespace tdbg::cli {

struct TrustOptions {
  bool trust = false;    ///< --trust: whoever made the run, its rules and actions are used
  bool actions = false;  ///< the caller performs actions (watch), and is to be told which are left out
};

struct TrustedRules {
  std::vector<plan::RuleConfig> rules;
  std::vector<std::string> left_out;  ///< a line each: what, why, and what to do
  bool lost_rules = false;            ///< some rule will not be judged
  bool lost_actions = false;          ///< some rule lacks an action it was recorded with
};

/// What may be used of the rules that ReadRules found in a run.
///
/// Rules in files and actions are programs. They are used where the run was made by the caller, as the
/// caller's own tdbg (SealOf) says, and nobody else may write it; a file, where it is still what it was when
/// the run was made. A word that was recorded without its secret cannot be used by anybody.
TrustedRules RulesToTrust(const std::string& run_directory, const RecordedRules& recorded,
                          const TrustOptions& options);

/// The SHA-256 of a rule's file, hexadecimal; empty where it cannot be read.
std::string HashOfRuleFile(const std::string& path);

/// A mark that only who has the user's key can make: HMAC-SHA256 of `text` under `tdbg/key` in the user's
/// state directory ($XDG_STATE_HOME, ~/.local/state). Empty: there is no key.
/// \param make_key  where there is none yet. A home that cannot be written to has none.
std::string SealOf(const std::string& text, bool make_key);

}  // namespace tdbg::cli
