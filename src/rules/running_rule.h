// One rule while an engine judges with it. For engine.cc.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plan/config.h"
#include "rules/engine.h"
#include "rules/rule.h"
#include "rules/run_plan.h"
#include "rules/selector.h"

namespace tdbg::rules {

inline constexpr int64_t kNoAttempt = std::numeric_limits<int64_t>::max();

/// A rule of an engine: what judges, and what is known of its judging.
struct Running {
  plan::RuleConfig config;
  std::unique_ptr<RunPlan> plan;  // which the rule borrows; none where the run has none
  std::unique_ptr<Rule> rule;
  AsyncRule* async = nullptr;  // the same, if it judges in another process
  int64_t start_step = 0;
  int64_t end_step = std::numeric_limits<int64_t>::max();  // exclusive, as smdebug's invoke_rule has it
  bool done = false;
  int64_t ended_at = -1;   // done: the step of its finding, or the one it failed at
  Selector needed;         // the tensors of its Needs()
  uint64_t unknown = 0;    // columns it reads that rows of those tensors did not know
  std::string unknown_of;  // the first such tensor
  int64_t lacking = 0;     // steps of which something was dropped, and at which it said nothing
  int64_t owed = 0;        // answers it has not given yet
  bool asked = false;      // AtEnd was called
  std::string doubt;       // why its inputs cannot appear
  /// It judged all steps up to this one, of attempts up to that one, when nothing was missing of them.
  int64_t whole_until = -1, whole_attempt = kNoAttempt;

  bool Sees(int64_t global_step) const {
    return !done && global_step >= start_step && global_step < end_step;
  }
  void Use(std::unique_ptr<Rule> made) {
    rule = std::move(made);
    async = dynamic_cast<AsyncRule*>(rule.get());
  }
  /// A tensor of the rule's has a row that lacks what it reads: a clean verdict would speak for it, too.
  bool NeededSomethingHidden(const StepContext& context);
  /// What the run lost of this rule's steps, in words; empty if nothing.
  std::string Incomplete(const RuleStatus& status, const std::vector<DroppedInfo>& dropped,
                         const std::vector<std::string>& damage) const;
};

}  // namespace tdbg::rules
