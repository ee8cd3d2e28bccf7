// A run's plan, as one rule sees it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "plan/config.h"
#include "plan/plan.h"
#include "tdbg/trial.h"
#include "trial/access.h"

namespace tdbg::rules {

/// What is the same for all rules of a run: compiled once, however many there are.
class SharedPlan {
 public:
  explicit SharedPlan(plan::Plan plan);

  const plan::Plan& plan() const { return plan_; }
  /// What the user's own configuration keeps. Nothing if it cannot be compiled, which cannot happen for a
  /// plan that has captured a run.
  const std::optional<plan::CompiledPlan>& users() const { return users_; }
  /// Collections that were added for rules.
  const std::set<std::string>& of_rules() const { return of_rules_; }

 private:
  plan::Plan plan_;
  std::optional<plan::CompiledPlan> users_;
  std::set<std::string> of_rules_;
};

/// Tells values that were kept for the run's configuration or for one rule's needs from those that were kept
/// for other rules, so that a rule judges as if it were the run's only one.
class RunPlan {
 public:
  RunPlan(std::shared_ptr<const SharedPlan> plan, const plan::Need& need);

  /// Were statistics (or the number) of this tensor due at every step? Then a gap comes from the training,
  /// not from a save config.
  bool KeepsEveryStep(const TensorInfo& tensor) const;
  /// Does the user's own configuration say at which steps values of this tensor are kept?
  bool UserSavesValuesOf(const TensorInfo& tensor) const;
  /// True if the tensor's value at this step was kept only because another rule asked for it.
  bool OnlyOthersAskedFor(TensorIndex index, const TensorInfo& tensor, const StepInfo& step) const;

 private:
  // Each compiled when it is first asked for, and nothing if it cannot be: mostly the user's is enough.
  const std::optional<plan::CompiledPlan>& Own() const;
  const std::optional<plan::CompiledPlan>& Others() const;
  bool IsMine(const std::string& collection) const;

  std::shared_ptr<const SharedPlan> plan_;
  std::string collection_;  // what was added for this rule; its values' has ":values" behind it
  bool took_part_ = false;  // the run kept something for this rule,
  bool hides_ = false;      // and something for others
  mutable std::optional<std::optional<plan::CompiledPlan>> own_, others_;
  struct Groups {
    uint64_t own = 0, others = 0;
    bool known = false;
  };
  mutable std::vector<Groups> groups_;  // by tensor, so that each name is matched once
};

}  // namespace tdbg::rules
