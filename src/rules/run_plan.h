// A run's plan, as one rule sees it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/config.h"
#include "plan/plan.h"
#include "tdbg/trial.h"
#include "trial/access.h"

namespace tdbg::rules {

/// Tells values that were kept for the run's configuration or for one rule's needs from those that were kept
/// for other rules, so that a rule judges as if it were the run's only one.
class RunPlan {
 public:
  RunPlan(const plan::Plan& plan, const plan::Need& need);

  /// Were statistics (or the number) of this tensor due at every step? Then a gap comes from the training,
  /// not from a save config.
  bool KeepsEveryStep(const TensorInfo& tensor) const;
  /// Does the user's own configuration say at which steps values of this tensor are kept?
  bool UserSavesValuesOf(const TensorInfo& tensor) const;
  /// True if the tensor's value at this step was kept only because another rule asked for it.
  bool OnlyOthersAskedFor(TensorIndex index, const TensorInfo& tensor, const StepInfo& step) const;

 private:
  int64_t summaries_every_ = 1;
  bool hides_ = false;  // the run kept something for this rule, and something for others
  // Nothing if the plan cannot be compiled, which cannot happen for a plan that has captured a run.
  std::optional<plan::CompiledPlan> users_, own_, others_;
  struct Groups {
    uint64_t own = 0, others = 0;
    bool known = false;
  };
  mutable std::vector<Groups> groups_;  // by tensor, so that each name is matched once
};

}  // namespace tdbg::rules
