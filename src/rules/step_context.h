// What a rule may look at while it judges one step: that step's values, never a later one's
// (docs/semantics.md, "Causality").
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rules/rows.h"
#include "tdbg/trial.h"
#include "trial/access.h"

namespace tdbg::rules {

class RunPlan;  // run_plan.h

/// One complete step.
///
/// Everything is columns and dense indices: a rule resolves names once per new tensor (selector.h) and walks
/// numbers afterwards. What a rule wants of earlier steps it keeps itself, so that a verdict cannot depend on
/// how much of the run happens to be readable. \threadsafety Valid during Rule::Invoke, on its thread. Spans
/// and pointers must not be kept.
class StepContext {
 public:
  using Row = rules::Row;
  using Scalar = TrialAccess::Scalar;
  using HiddenRow = TrialAccess::HiddenRow;

  virtual ~StepContext() = default;

  virtual const StepInfo& info() const = 0;
  int64_t global_step() const { return info().global_step; }
  int64_t mode_step() const { return info().mode_step; }
  ModeKey mode() const { return info().mode; }
  bool skipped() const { return info().skipped; }
  /// Which start of the job the step is of.
  virtual int64_t attempt() const { return 0; }

  /// Statistics that were due here were shed or cannot be read: what rows() shows is not all there was. A
  /// rule that finds no reason to hit answers kIncomplete then.
  virtual bool statistics_incomplete() const = 0;

  /// Tensors seen up to here; indices are dense and keep their meaning for the life of the trial.
  virtual size_t tensor_count() const = 0;
  virtual const TensorInfo& tensor(TensorIndex tensor) const = 0;
  virtual const std::string& worker_name(WorkerIndex worker) const = 0;

  /// Called by the engine before each rule, with its Columns(): rows() shows what knows these, hidden_rows()
  /// the rest.
  virtual void ShowRowsThatKnow(uint64_t columns) const { (void)columns; }
  /// Called by the engine before each rule: raw values are shown as they would be kept were this the run's
  /// only rule. Null: all of them.
  virtual void ShowValuesBy(const RunPlan* plan) const { (void)plan; }
  virtual std::span<const HiddenRow> hidden_rows() const { return {}; }

  /// Every worker's statistics of this step, by rank: micro-steps and points included.
  virtual std::span<const Rows> rows() const = 0;
  /// Numeric series (user's metrics, XGBoost's losses, learning rates) of all workers.
  virtual std::span<const Scalar> scalars() const = 0;
  /// Workers that kept raw values at this step, by rank: none at most steps.
  virtual std::span<const WorkerIndex> raw_workers() const = 0;
  /// The raw value (the step's own), where one was kept. It may be kept beyond Invoke: it has an owner.
  /// \error kNotFound, kDataLoss
  virtual Result<TensorValue> Raw(TensorIndex tensor, WorkerIndex worker) const = 0;
  /// Every raw value of one tensor: by rank, then as recorded, micro-steps and points included.
  using RawValue = TrialAccess::Raw;
  virtual std::vector<RawValue> RawsOf(TensorIndex tensor) const = 0;
  /// \error kDataLoss
  virtual Result<TensorValue> Read(const RawValue& raw) const = 0;
  /// The tensor that a derived statistic of `tensor` is recorded as; nothing while none was seen.
  virtual std::optional<TensorIndex> StatisticOf(TensorIndex tensor, std::string_view statistic_id) const = 0;
  /// Of a row of this step. \error kNotFound, kDataLoss
  virtual Result<Histogram> HistogramOf(const Row& row) const = 0;

  /// Calls f(const Row&) for every row.
  template <typename F>
  void ForEachRow(F&& f) const {
    for (const Rows& rows : this->rows()) {
      for (uint32_t i = rows.begin(); i < rows.end(); ++i) f(static_cast<const Row&>(rows.at(i)));
    }
  }
};

}  // namespace tdbg::rules
