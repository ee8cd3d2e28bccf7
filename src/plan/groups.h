// The groups of a TensorPlan's masks that are no save schedules.
#pragma once

#include <cstdint>

namespace tdbg::plan {

inline constexpr uint64_t kSummaryGroup = 1;  ///< statistics at summaries_every
/// Histograms at histograms_every; due only together with kSummaryGroup.
inline constexpr uint64_t kHistogramGroup = uint64_t{1} << 62;
/// Due while a request for more detail holds (src/capture/capture_more.cc).
inline constexpr uint64_t kMoreGroup = uint64_t{1} << 63;

/// What is due where statistics are taken at one step in `every` only (Run::LookEvery). A step at which
/// something else is due keeps them.
inline uint64_t LessOften(uint64_t due, int64_t mode_step, int64_t every) {
  const bool statistics_alone = (due & ~(kSummaryGroup | kHistogramGroup)) == 0;
  return statistics_alone && mode_step % every != 0 ? 0 : due;
}

}  // namespace tdbg::plan
