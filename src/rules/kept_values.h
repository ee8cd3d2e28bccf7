// Raw values that a run kept, for rules that compare a tensor with its earlier values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "rules/interval_means.h"
#include "rules/run_plan.h"
#include "rules/selector.h"
#include "rules/step_context.h"
#include "trial/columns.h"
#include "trial/elements.h"

namespace tdbg::rules {

/// Which of one tensor's values count: those `interval` steps apart. Values that were kept sparsely all count
/// (docs/semantics.md, "Cadence"), unless an interval was given, or by the run's plan it was not the user who
/// chose the steps (CadenceInterval).
class ValueCadence {
 public:
  /// Could a value here count? If not, it need not be read.
  bool MayTake(int64_t position, const Interval& interval) const {
    if (kept_ == 0) return true;
    const bool may_be_sparse = kept_ == 1 && !interval.given;
    return position > last_ && (may_be_sparse || sparse_ || position - last_ >= interval.steps);
  }
  /// Call if a value was kept here. True if it counts. \pre MayTake
  bool Take(int64_t position, const Interval& interval) {
    if (++kept_ == 2 && !interval.given && position - last_ > 1) sparse_ = true;
    if (kept_ > 1 && !sparse_ && position - last_ < interval.steps) return false;
    last_ = position;
    return true;
  }

 private:
  int64_t kept_ = 0, last_ = 0;
  bool sparse_ = false;
};

/// The interval at which this tensor's values count. They were kept sparsely if the user's own configuration
/// saves them; without a plan, that is guessed from the values themselves.
inline Interval CadenceInterval(const Interval& configured, const RunPlan* plan, const TensorInfo& tensor) {
  Interval interval = configured;
  if (plan != nullptr && !plan->UserSavesValuesOf(tensor)) interval.given = true;
  return interval;
}

/// Elements [first, first + out.size()) as doubles. False for types that are not real numbers (complex,
/// float8).
bool LoadElements(const TensorValue& value, size_t first, std::span<double> out);
size_t ElementCount(const TensorValue& value);

/// Calls f(a, b) for each pair of elements, until it returns false. False if the two cannot be compared:
/// other types than real numbers, or not the same shape.
template <typename F>
bool ForEachPair(const TensorValue& a, const TensorValue& b, F&& f) {
  if (a.shape != b.shape) return false;
  double left[1024], right[1024];
  const size_t count = ElementCount(a);
  for (size_t first = 0; first < count; first += std::size(left)) {
    const size_t n = std::min(std::size(left), count - first);
    if (!LoadElements(a, first, {left, n}) || !LoadElements(b, first, {right, n})) return false;
    for (size_t i = 0; i < n; ++i) {
      if (!f(left[i], right[i])) return true;
    }
  }
  return true;
}

/// The step's own values of inspected tensors, of each worker: raw ones, and those that are exact without
/// raw bytes: tensors of one element, and numeric series. Calls wanted(tensor, worker), and where that is
/// true and a value was kept, take(tensor, worker, TensorValue). False if a value that was kept cannot be
/// read.
template <typename Wanted, typename Take>
bool ForEachKeptValue(const StepContext& step, const Selector& inspected, Wanted&& wanted, Take&& take) {
  bool readable = true;
  for (const WorkerIndex worker : step.raw_workers()) {
    for (TensorIndex tensor = 0; tensor < step.tensor_count(); ++tensor) {
      if (!inspected.contains(tensor) || !wanted(tensor, worker)) continue;
      Result<TensorValue> value = step.Raw(tensor, worker);
      if (value.ok()) {
        take(tensor, worker, *std::move(value));
      } else if (value.status().code() != Code::kNotFound) {
        readable = false;
      }
    }
  }
  step.ForEachRow([&](const StepContext::Row& row) {
    if (row.count() != 1 || row.sub != SubKey{} || !inspected.contains(row.tensor)) return;
    if (!row.Knows(~uint64_t{0})) return;
    const DType dtype = step.tensor(row.tensor).dtype;
    const auto element = OnlyElement(row.summary(), dtype);
    if (element && wanted(row.tensor, row.worker))
      take(row.tensor, row.worker, ElementValue(*element, dtype, {}));
  });
  for (const StepContext::Scalar& scalar : step.scalars()) {
    if (scalar.sub != SubKey{} || !inspected.contains(scalar.tensor)) continue;
    if (wanted(scalar.tensor, scalar.worker))
      take(scalar.tensor, scalar.worker, ElementValue(scalar.value, DType::kFloat64, {}));
  }
  return readable;
}

}  // namespace tdbg::rules
