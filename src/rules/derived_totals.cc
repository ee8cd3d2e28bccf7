#include "rules/derived_totals.h"

#include "rules/step_context.h"

namespace tdbg::rules {

DerivedTotals::DerivedTotals(Selector inspected, const Statistic& statistic,
                             std::function<bool(const TensorInfo&)> looks_at)
    : need_{inspected.Need().collections, inspected.Need().tensor_regex, statistic},
      values_(
          std::move(inspected), [statistic](const TensorInfo&) { return statistic; }, std::move(looks_at)) {}

plan::Need DerivedTotals::Needs() const {
  plan::Need need;
  need.statistics = {need_};
  return need;
}

Result<Judged> DerivedTotals::Invoke(const StepContext& step, std::vector<Finding>* findings) {
  bool judged = false;
  const bool readable = values_.ForEach(
      step, [&](TensorIndex tensor, WorkerIndex worker, uint16_t, const StatisticValue& value) {
        if (value.elements != 0 && !value.values.empty())
          judged |= Add(step, tensor, worker, value, findings);
      });
  if (!findings->empty()) return Judged::kJudged;
  if (!readable || step.statistics_incomplete()) return Judged::kIncomplete;
  return judged ? Judged::kJudged : Judged::kNotDue;
}

Result<Judged> DerivedTotals::AtEnd(const StepContext& last, std::vector<Finding>*) {
  TDBG_RETURN_IF_ERROR(values_.AllHadValues(last));
  return Judged::kNotDue;
}

}  // namespace tdbg::rules
