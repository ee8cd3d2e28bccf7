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

/// What the run's configuration and one rule's own needs kept, told from what other rules made the run keep:
/// a rule judges as if it were the run's only one.
class RunPlan {
 public:
  RunPlan(const plan::Plan& plan, const plan::Need& need);

  /// Statistics (or the number) of this tensor were due at every step: a gap is the training's, and no
  /// SaveConfig's.
  bool KeepsEveryStep(const TensorInfo& tensor) const;
  /// The user's own configuration says at which steps values of this tensor are kept.
  bool UserSavesValuesOf(const TensorInfo& tensor) const;
  /// True if the tensor's value at this step was kept only because another rule asked for it.
  bool OnlyOthersAskedFor(TensorIndex index, const TensorInfo& tensor, const StepInfo& step) const;

 private:
  int64_t summaries_every_ = 1;
  bool hides_ = false;  // the run kept something for this rule, and something for others
  // Nothing where the plan cannot be compiled: it was, once, or there would be no run.
  std::optional<plan::CompiledPlan> users_, own_, others_;
  struct Groups {
    uint64_t own = 0, others = 0;
    bool known = false;
  };
  mutable std::vector<Groups> groups_;  // by tensor: their regexes are asked once
};

}  // namespace tdbg::rules
