// The words of a rule's status.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rules/rule.h"

namespace tdbg::rules {

inline constexpr size_t kMaxDetails = 1024;  ///< Amazon's limit of StatusDetails

/// One finding as one line: "gradient/fc.weight: mean_abs 0 < 1e-07 (worker_1; all zero)".
std::string EvidenceLine(const Finding& finding);

/// Amazon's first line, exactly, then one line of evidence per finding, as many as fit, and how many did not.
/// \pre !findings.empty()
std::string HitDetails(std::string_view class_name, const std::vector<Finding>& findings);

/// "no value was seen", "1 value was seen", "12 values were seen": how far a rule got that judged nothing.
std::string SeenText(int64_t values);
/// "none was kept", "1 was kept", "12 were kept".
std::string KeptText(int64_t n);

/// At most kMaxDetails bytes, cut between characters.
std::string CutDetails(std::string text);

}  // namespace tdbg::rules
