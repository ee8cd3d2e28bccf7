// From where to where NaN and infinity spread: what tells findings of one cause from those of two.
#pragma once

#include <cstdint>
#include <unordered_set>
#include <vector>

#include "rules/step_context.h"

namespace tdbg::rules {

/// An episode lasts from the first value that is not finite until each tensor that had one has been recorded
/// again and was finite. Something that is not finite later has a cause of its own.
///
/// Looks at steps from the first finding on, and at none before: most runs have no such finding.
class NonfiniteEpisodes {
 public:
  /// A rule found something not finite at this step.
  void Begin(int64_t global_step);
  bool begun() const { return from_ >= 0; }
  /// Each step from then on, in order; that of the finding, too. Steps before are left out, and those whose
  /// update AMP skipped: overflow is how it finds its scale.
  /// \pre step.rows() shows what knows columns::kFinite
  void See(const StepContext& step);
  /// Where the last episode began that had begun by this step; -1: none is known.
  int64_t BeginOf(int64_t global_step) const;
  /// Steps from `base` on will come again, and be others; those before it will be as they were.
  void Restart(int64_t base);

 private:
  int64_t from_ = -1;
  bool fresh_ = false;                    // of the episode that Begin began nothing was seen yet
  std::unordered_set<uint64_t> tensors_;  // by worker: those whose last row was not finite
  std::vector<int64_t> begins_;           // ascending
};

}  // namespace tdbg::rules
