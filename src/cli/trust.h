// Which of the rules and actions that a run names may be used by the user who opens it (SECURITY.md).
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
/// Rules in files and actions are programs. They are used only if the caller made the run, which the caller's
/// own seal proves (SealOf), and nobody else may write to it; a file, only if it has not changed since the
/// run was made. An action that was recorded without its secret cannot be used.
TrustedRules RulesToTrust(const std::string& run_directory, const RecordedRules& recorded,
                          const TrustOptions& options);

/// The SHA-256 of a rule's file, hexadecimal; empty if it cannot be read.
std::string HashOfRuleFile(const std::string& path);

/// A seal that only the owner of the user's key can make: HMAC-SHA256 of `text` with the key `tdbg/key` in
/// the user's state directory ($XDG_STATE_HOME, ~/.local/state). Empty: there is no key.
/// \param make_key  make a key if there is none yet; fails quietly in a home that cannot be written to
std::string SealOf(const std::string& text, bool make_key);

}  // namespace tdbg::cli
