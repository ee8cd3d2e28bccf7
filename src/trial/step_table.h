// The steps of a run as they are kept: once, and little of each. A run of a million steps is held by whoever
// watches it for as long as it trains.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "tdbg/trial.h"

namespace tdbg {

/// What the workers of one attempt said of a step, together.
struct StepEntry {
  int64_t global_step = 0;
  int64_t mode_step = 0;
  int64_t wall_nanos = 0;
  uint32_t raw_values = 0, summaries = 0, shed = 0;
  ModeKey mode = ModeKey::kGlobal;
  bool skipped = false;
  bool thinned = false;  ///< rows of it were dropped, and coarser ones tell of it
};
static_assert(sizeof(StepEntry) == 40, "one for each step of a run");

/// Steps of one attempt, ascending, also those that a later attempt replaces. In small blocks: growing, it
/// neither copies what it holds nor keeps room for as much again.
class StepTable {
 public:
  size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  const StepEntry& operator[](size_t i) const { return entries_[i]; }
  StepEntry& operator[](size_t i) { return entries_[i]; }
  const StepEntry& front() const { return entries_.front(); }
  const StepEntry& back() const { return entries_.back(); }
  /// The first step that is not before `global_step`; size() where all are.
  size_t LowerBound(int64_t global_step) const {
    const auto at = std::lower_bound(entries_.begin(), entries_.end(), global_step,
                                     [](const StepEntry& e, int64_t step) { return e.global_step < step; });
    return static_cast<size_t>(at - entries_.begin());
  }
  StepEntry& Insert(size_t at, const StepEntry& entry) {
    return *entries_.insert(entries_.begin() + static_cast<ptrdiff_t>(at), entry);
  }

 private:
  std::deque<StepEntry> entries_;
};

}  // namespace tdbg
