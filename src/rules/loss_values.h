// The losses of one step, for rules that follow losses.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "rules/interval_means.h"
#include "rules/selector.h"
#include "rules/step_context.h"
#include "trial/columns.h"

namespace tdbg::rules {

/// One loss of one worker at one step.
struct LossValue {
  TensorIndex tensor = 0;
  WorkerIndex worker = 0;
  double value = 0;  ///< NaN or infinite if an element was
};

/// The interval of one series: metrics of XGBoost (`train-rmse`, in the collection metrics) come once a
/// round, and have a default of their own.
Interval IntervalOf(const Interval& configured, const TensorInfo& series);

/// Reads inspected losses, both tensors and numeric series. The value of a loss with several elements is
/// their mean; under gradient accumulation a step's loss is the mean over its micro-steps.
class LossReader {
 public:
  LossReader() = default;
  explicit LossReader(Selector selector) : selector_(std::move(selector)) {}

  const Selector& selector() const { return selector_; }
  static constexpr uint64_t kColumns =
      columns::kFinite | columns::kMean;  ///< that Read reads, for Rule::Columns
  /// Valid until the next call.
  const std::vector<LossValue>& Read(const StepContext& step);

 private:
  struct Sum {
    bool own = false;
    double value = 0;  // the step's own, or the sum over micro-steps
    int micro_steps = 0;
  };
  void Add(TensorIndex tensor, WorkerIndex worker, SubKey sub, double value);

  Selector selector_;
  std::map<std::pair<TensorIndex, WorkerIndex>, Sum> sums_;
  std::vector<LossValue> values_;
};

}  // namespace tdbg::rules
