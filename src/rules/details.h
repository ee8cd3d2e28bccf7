// The text of a rule's status.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plan/config.h"
#include "rules/engine.h"
#include "rules/rule.h"
#include "tdbg/trial.h"

namespace tdbg::rules {

inline constexpr size_t kMaxDetails = 1024;  ///< Amazon's limit of StatusDetails

/// RuleStatus::code of what is configured.
std::string CodeOf(const plan::RuleConfig& config, const RuleInfo& info);

/// Of a finding in a step that was replaced since: " (in attempt 0, whose step 40 was trained again since)".
std::string ReplacedNote(const Finding& finding);
/// One finding as one line: "gradient/fc.weight: mean_abs 0 < 1e-07 (worker_1; all zero)".
std::string EvidenceLine(const Finding& finding);

/// Amazon's first line, exactly; then one line of evidence per finding, as many as fit, and how many did not
/// fit.
/// \pre !findings.empty()
std::string HitDetails(std::string_view class_name, const std::vector<Finding>& findings);

/// The beginning of the details of a rule that never judged: one that the user named (Error), and a default
/// rule (NoIssuesFound).
inline constexpr std::string_view kNotJudged = "Not judged: ";
inline constexpr std::string_view kNothingToJudge = "Nothing to judge: ";
inline constexpr std::string_view kIncomplete = "incomplete: ";  ///< followed by what was lost
/// The rule never judged, and nothing was lost: the run was too short, or had nothing that the rule looks at.
bool HadTooLittle(const RuleStatus& status);
/// A default rule for which the run had nothing to judge.
bool HadNothing(const RuleStatus& status);
/// How many of a run's rules judged something. The words for a run without a finding come from here, for
/// every command and the page.
struct Judging {
  size_t rules = 0, judged = 0;
  bool NothingJudged() const { return rules > 0 && judged == 0; }
  /// "" if all of them did: " by 3 of 6 rules".
  std::string ByHowMany() const;
};
Judging JudgingOf(const std::vector<RuleStatus>& statuses);
/// Are all findings only that something is not finite?
bool FoundNonfinite(const RuleStatus& status);
/// As above, or all findings are of tensors that were not finite at that step: DeadRelu's units that put out
/// NaN.
bool FollowsNonfinite(const RuleStatus& status);
/// For each rule the index of the rule from whose finding its own follows, or -1. One NaN trips every rule
/// that looks at a tensor it reaches: of the findings of one episode (RuleStatus::nonfinite_since; if that is
/// not known, of one step) the first is the cause, and ExplodingTensor if several rules found it at that
/// step. A finding that measured something else of such a tensor is never a cause.
std::vector<int> CausesOf(const std::vector<RuleStatus>& statuses);

/// What a run lost of the steps [start, end) that a rule would have looked at, each with "; " behind it;
/// empty: nothing. \param raw  the rule looks at raw values, too
std::string LostText(const std::vector<DroppedInfo>& dropped, const std::vector<std::string>& damage,
                     bool raw, int64_t start, int64_t end);

/// Details of a rule that found nothing: its remarks, and what it did not see since watching would have taken
/// too long.
std::string Remarked(const Rule& rule, const StepContext& last);

/// "no value was seen", "1 value was seen", "12 values were seen": for a rule that never judged.
std::string SeenText(int64_t values);
/// "none was kept", "1 was kept", "12 were kept".
std::string KeptText(int64_t n);

/// At most kMaxDetails bytes, cut between characters.
std::string CutDetails(std::string text);

}  // namespace tdbg::rules
