// Where the engine's steps come from: an opened trial, or a small one in memory (tests).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rules/step_context.h"
#include "tdbg/status.h"
#include "tdbg/trial.h"

namespace tdbg::rules {

/// A worker that was declared lost: from `from_step` on, nothing is expected of it and nothing it may still
/// deliver is judged. The declaration depended on a clock, so it is an event, and replay obeys the event.
struct LostWorker {
  int64_t attempt = 0;
  std::string worker;     ///< "worker_3", or "rank 3" for one that was never seen
  int64_t from_step = 0;  ///< global
};

/// The steps of a run in order, complete ones first. Positions are stable while overlay_generation() is.
class StepSource {
 public:
  virtual ~StepSource() = default;
  virtual uint64_t overlay_generation() const = 0;
  /// The lowest global step that is another one since overlay_generation() was raised last.
  virtual int64_t overlay_base() const = 0;
  virtual size_t complete_count() const = 0;
  virtual size_t step_count() const = 0;  ///< with incomplete ones
  virtual StepInfo Info(size_t position) const = 0;
  virtual int64_t AttemptOf(size_t position) const = 0;
  /// Is the step still to be committed by a worker that is not lost there?
  virtual bool IsAwaited(size_t position, const std::vector<LostWorker>& lost) const = 0;
  /// Valid until the next call.
  virtual const StepContext& At(size_t position, const std::vector<LostWorker>& lost) = 0;
  virtual std::vector<DroppedInfo> dropped() const = 0;
  virtual std::vector<std::string> damage() const = 0;
};

}  // namespace tdbg::rules
