// The values of one step for a rule that judges a state (weights, gradients, outputs).
#pragma once

#include <string>
#include <utility>

#include "rules/selector.h"
#include "rules/step_context.h"
#include "tdbg/status.h"

namespace tdbg::rules {

/// Of each inspected tensor the step's own values, and its micro-steps' unless it is a gradient: under
/// gradient accumulation outputs and losses exist only in micro-steps, while a micro-step's gradient is
/// incomplete. Gradients of a step that AMP skipped are left out (docs/semantics.md, "What is judged by
/// itself").
class StateValues {
 public:
  StateValues() = default;
  static Result<StateValues> Make(Selector inspected) {
    StateValues values;
    values.inspected_ = std::move(inspected);
    TDBG_ASSIGN_OR_RETURN(values.gradients_, Selector::Make({"gradients"}, {}));
    return values;
  }

  const Selector& inspected() const { return inspected_; }

  /// Calls f(tensor, const Rows&, row) for every row.
  template <typename F>
  void ForEach(const StepContext& step, F&& f) {
    inspected_.Update(step);
    gradients_.Update(step);
    const uint8_t* const inspected = inspected_.mask();
    const uint8_t* const gradient = gradients_.mask();
    for (const Rows rows : step.rows()) {
      for (uint32_t i = rows.begin(); i < rows.end(); ++i) {
        const TensorIndex tensor = rows.tensor(i);
        if (!inspected[tensor] || rows.point(i) != Point::kNone) continue;
        if (gradient[tensor] && (step.skipped() || rows.sub(i) != 0)) continue;
        f(tensor, rows, i);
      }
    }
  }
  /// Calls f(const StepContext::Scalar&) for every inspected numeric series.
  template <typename F>
  void ForEachScalar(const StepContext& step, F&& f) {
    inspected_.Update(step);
    for (const StepContext::Scalar& scalar : step.scalars()) {
      if (inspected_.contains(scalar.tensor) && scalar.sub.point == Point::kNone) f(scalar);
    }
  }

 private:
  Selector inspected_, gradients_;
};

/// "micro-step 2", or nothing for a step's own value.
inline std::string MicroStepText(uint16_t sub) {
  return sub == 0 ? std::string() : "micro-step " + std::to_string(sub - 1);
}

}  // namespace tdbg::rules
