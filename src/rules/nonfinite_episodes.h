// When an episode of NaN and infinity begins and ends, to tell findings of one cause from those of two.
#pragma once

#include <cstdint>
#include <unordered_set>
#include <vector>

#include "rules/engine.h"
#include "rules/step_context.h"

namespace tdbg::rules {

/// An episode lasts from the first value that is not finite until each tensor that had one was recorded again
/// as finite. A later value that is not finite has a new cause.
///
/// Looks only at steps from the first finding on, since most runs have no such finding.
class NonfiniteEpisodes {
 public:
  /// A rule found something not finite at this step.
  void Begin(int64_t global_step);
  bool begun() const { return from_ >= 0; }
  /// Call for each step from the first finding's on, in order. Ignores earlier steps, and steps whose update
  /// AMP skipped, since AMP finds its scale by overflows.
  /// \pre step.rows() shows what knows columns::kFinite
  void See(const StepContext& step);
  /// The step at which the episode began that this step is in, or the last one before it; -1: not known.
  int64_t BeginOf(int64_t global_step) const;
  /// Steps from `base` on will come again with new values; earlier ones stay as they were.
  void Restart(int64_t base);

 private:
  int64_t from_ = -1;
  bool fresh_ = false;                    // of the episode that Begin began nothing was seen yet
  std::unordered_set<uint64_t> tensors_;  // by worker: those whose last row was not finite
  std::vector<int64_t> begins_;           // ascending
};

/// Is each finding, whatever it measured, of a tensor that is not finite at this step? (A unit that puts out
/// NaN is not above zero.) Of an output there may be no summary but only what the rule asked for; then it
/// counts as not finite if a weight, gradient or loss of its worker is.
/// \pre step.rows() shows what knows columns::kFinite
bool FoundAmongNonfinite(const StepContext& step, const RuleStatus& status);

}  // namespace tdbg::rules
