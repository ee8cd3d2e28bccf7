// The words of a rule's status.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rules/engine.h"
#include "rules/rule.h"

namespace tdbg::rules {

inline constexpr size_t kMaxDetails = 1024;  ///< Amazon's limit of StatusDetails

/// One finding as one line: "gradient/fc.weight: mean_abs 0 < 1e-07 (worker_1; all zero)".
std::string EvidenceLine(const Finding& finding);

/// Amazon's first line, exactly, then one line of evidence per finding, as many as fit, and how many did not.
/// \pre !findings.empty()
std::string HitDetails(std::string_view class_name, const std::vector<Finding>& findings);

/// How the details of a rule begin that never judged: one that somebody asked for (Error), one that nobody
/// named (NoIssuesFound).
inline constexpr std::string_view kNotJudged = "Not judged: ";
inline constexpr std::string_view kNothingToJudge = "Nothing to judge: ";
inline constexpr std::string_view kIncomplete = "incomplete: ";  ///< and what was lost
/// It never judged, and nothing was lost: the run was too short for it, or held nothing of what it looks at.
bool HadTooLittle(const RuleStatus& status);
/// Nobody named the rule, and the run held nothing for it.
bool HadNothing(const RuleStatus& status);
/// Whether all that it found is that something is not finite.
bool FoundNonfinite(const RuleStatus& status);
/// Of each rule the one whose finding its own follows from, or -1: one NaN trips every rule that looks at
/// what it reaches. Of those whose findings are of one episode (RuleStatus::nonfinite_since; where that is
/// not known, of one step) the first is the cause, ExplodingTensor where several found it at that step.
std::vector<int> CausesOf(const std::vector<RuleStatus>& statuses);

/// "no value was seen", "1 value was seen", "12 values were seen": how far a rule got that judged nothing.
std::string SeenText(int64_t values);
/// "none was kept", "1 was kept", "12 were kept".
std::string KeptText(int64_t n);

/// At most kMaxDetails bytes, cut between characters.
std::string CutDetails(std::string text);

}  // namespace tdbg::rules
