// The detectors of profile 1: what users are told of each, and which finding is a consequence of which.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace tdbg::rules::profile {

/// Raised by the first change of what is found after a release. A run records which version judged it.
inline constexpr int kVersion = 1;

/// Steps in a row after which wiring is said to be what it was seen as.
inline constexpr int kStateSteps = 10;

enum class Family : uint8_t {
  kWiring,
  kStart,
  kData,
  kNumerics,
  kUpdates,
  kLearning,
  kEvaluation,
  kJob,
  kBoosting,
};
std::string_view FamilyName(Family family);  ///< "wiring"

enum class Confidence : uint8_t {
  kCertain,  ///< a fact of the run: nothing was estimated
  kLikely,   ///< a measure that healthy trainings do not reach
  kPossible,
};
std::string_view ConfidenceName(Confidence confidence);

struct DetectorInfo {
  std::string_view id;  ///< "no_gradient": the section of docs/incidents.md, and part of an incident's name
  Family family;
  Confidence confidence;
  std::string_view title;   ///< a headline: "parameters get no gradient"
  std::string_view advice;  ///< what to do next
  int told_after = 0;       ///< steps that it was seen before it was told, where that decides what leads
};

/// In order of precedence: if two findings begin at one step, the detector that comes first is the cause.
std::span<const DetectorInfo> Catalogue();
/// Null: no such detector, as in a run that a later version judged.
const DetectorInfo* Find(std::string_view id);

/// Is a finding of `later` a consequence of one of `first`, so that they are one incident?
/// \param first_step, later_step  the steps of the findings
bool LeadsTo(const DetectorInfo& first, int64_t first_step, const DetectorInfo& later, int64_t later_step);

}  // namespace tdbg::rules::profile
