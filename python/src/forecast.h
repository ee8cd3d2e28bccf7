// What will be due in a step, before the run has begun it.
#pragma once

#include <cstdint>
#include <string_view>

#include "plan/plan.h"
#include "tdbg/status.h"

namespace tdbg::python {

/// For work that comes before a step is begun: no copy of a loss and no mark of a batch is made for a step
/// that takes nothing, and a device's reductions are enqueued while earlier steps are still on their way. It
/// asks the plan as the run itself does. A request for more detail the run alone knows: whoever hands
/// requests on says with `more` that one holds, and everything may be due then.
class Forecast {
 public:
  /// \error kInvalidArgument, kUnimplemented  as Plan::FromJson
  static Result<Forecast> FromPlan(std::string_view plan_json);

  bool Due(int mode, int64_t mode_step) const;
  /// Are raw values of any collection due?
  bool RawDue(int mode, int64_t mode_step) const;
  /// Statistics are taken in every step of every mode: there is nothing to ask.
  bool always() const { return plan_.plan().summaries_every == 1 && look_every == 1; }

  bool more = false;
  int64_t look_every = 1;  ///< as Run::LookEvery was told

 private:
  explicit Forecast(plan::CompiledPlan plan) : plan_(std::move(plan)) {}
  plan::CompiledPlan plan_;
};

}  // namespace tdbg::python
