// The groups of a TensorPlan's masks that are no save schedules.
#pragma once

#include <cstdint>

namespace tdbg::plan {

inline constexpr uint64_t kSummaryGroup = 1;  ///< statistics at summaries_every
/// Histograms at histograms_every; due only together with kSummaryGroup.
inline constexpr uint64_t kHistogramGroup = uint64_t{1} << 62;
/// Due while a request for more detail holds (src/capture/capture_more.cc).
inline constexpr uint64_t kMoreGroup = uint64_t{1} << 63;

}  // namespace tdbg::plan
