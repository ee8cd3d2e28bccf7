#include "rules/loss_values.h"

#include <algorithm>

#include "trial/columns.h"

namespace tdbg::rules {

Interval IntervalOf(const Interval& configured, const TensorInfo& series) {
  Interval interval = configured;
  const bool of_rounds =
      std::ranges::count(series.collections, "metrics") > 0 && series.name.find('-') != std::string::npos;
  if (of_rounds && !interval.given) interval.steps = kDefaultMetricInterval;
  return interval;
}

void LossReader::Add(TensorIndex tensor, WorkerIndex worker, SubKey sub, double value) {
  Sum& sum = sums_[{tensor, worker}];
  if (sub.sub == 0) {
    sum.own = true;
    sum.value = value;
  } else if (!sum.own) {
    sum.value += value;
    ++sum.micro_steps;
  }
}

const std::vector<LossValue>& LossReader::Read(const StepContext& step) {
  values_.clear();
  selector_.Update(step);
  if (!selector_.found_any()) return values_;
  const uint8_t* const inspected = selector_.mask();
  for (const Rows rows : step.rows()) {
    for (uint32_t i = rows.begin(); i < rows.end(); ++i) {
      const TensorIndex tensor = rows.tensor(i);
      if (!inspected[tensor] || rows.point(i) != Point::kNone || rows.is_empty(i)) continue;
      Add(tensor, rows.worker(), {rows.sub(i), Point::kNone},
          rows.is_finite(i) ? rows.mean(i) : NumpyMean(rows.summary(i)));
    }
  }
  for (const StepContext::Scalar& scalar : step.scalars()) {
    if (!inspected[scalar.tensor] || scalar.sub.point != Point::kNone) continue;
    Add(scalar.tensor, scalar.worker, scalar.sub, scalar.value);
  }
  for (auto& [key, sum] : sums_) {
    if (!sum.own && sum.micro_steps == 0) continue;
    values_.push_back({key.first, key.second, sum.own ? sum.value : sum.value / sum.micro_steps});
    sum = {};
  }
  return values_;
}

}  // namespace tdbg::rules
