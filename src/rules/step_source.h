// Where the engine's steps come from: an opened trial, or a small one in memory (tests).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "rules/step_context.h"
#include "tdbg/status.h"
#include "tdbg/trial.h"

namespace tdbg::rules {

/// A worker that was declared lost: from `from_step` on, steps do not wait for it, and what it still delivers
/// is not judged. The decision depended on a clock, so it is recorded as an event, which a replay follows.
struct LostWorker {
  int64_t attempt = 0;
  std::string worker;     ///< "worker_3", or "rank 3" for one that was never seen
  int64_t from_step = 0;  ///< global
};

/// The steps of a run in order, complete ones first. Positions are valid until overlay_generation() changes.
class StepSource {
 public:
  virtual ~StepSource() = default;
  virtual uint64_t overlay_generation() const = 0;
  /// The lowest global step that was replaced when overlay_generation() was last raised.
  virtual int64_t overlay_base() const = 0;
  /// A run's attempts are judged one after the other, so that what was found in steps that a later attempt
  /// has replaced is found whenever somebody looks: shows the first attempt alone.
  virtual void ShowFirstAttempt() {}
  /// Is there an attempt with steps that is not shown yet? All steps that are shown are complete then.
  virtual bool HasNextAttempt() const { return false; }
  /// It takes over. Raises overlay_generation() where it replaces steps that were shown.
  virtual void ShowNextAttempt() {}
  virtual size_t complete_count() const = 0;
  virtual size_t step_count() const = 0;  ///< including incomplete steps
  virtual StepInfo Info(size_t position) const = 0;
  virtual int64_t AttemptOf(size_t position) const = 0;
  /// Is it the first step of an attempt of which nobody knows how it follows from the one before?
  virtual bool BeginsApart(size_t /*position*/) const { return false; }
  /// Will a worker that is not lost still commit this step?
  virtual bool IsAwaited(size_t position, const std::vector<LostWorker>& lost) const = 0;
  /// Valid until the next call.
  virtual const StepContext& At(size_t position, const std::vector<LostWorker>& lost) = 0;
  virtual std::vector<DroppedInfo> dropped() const = 0;
  virtual std::vector<std::string> damage() const = 0;
};

/// The last global step that is not of a later attempt: from one step to the next attempts never go back.
inline int64_t LastStepUpTo(const StepSource& steps, int64_t attempt) {
  const size_t count = steps.step_count();
  if (count == 0 || steps.AttemptOf(count - 1) <= attempt) return std::numeric_limits<int64_t>::max();
  size_t first = 0;
  while (steps.AttemptOf(first) <= attempt) ++first;
  return steps.Info(first).global_step - 1;
}

}  // namespace tdbg::rules
