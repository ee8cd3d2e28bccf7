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
/// Everything is columns and dense indices: a rule resolves names once per new tensor (selector.h) and then
/// uses numbers. A rule keeps by itself what it needs of earlier steps, so that a verdict cannot depend on
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
  /// The attempt that the step belongs to.
  virtual int64_t attempt() const { return 0; }

  /// True if statistics that were due here were shed or cannot be read, so that rows() is not complete. A
  /// rule that finds nothing then answers kIncomplete.
  virtual bool statistics_incomplete() const = 0;

  /// Structured context that holds at this step: the topic's latest record, as JSON. Null: there is none.
  virtual const std::string* Context(std::string_view topic) const {
    (void)topic;
    return nullptr;
  }

  /// Tensors seen up to here; indices are dense and keep their meaning for the life of the trial.
  virtual size_t tensor_count() const = 0;
  virtual const TensorInfo& tensor(TensorIndex tensor) const = 0;
  /// A worker has the same index in all attempts, so that what a rule knows of it stays valid after an
  /// interruption; indices are in the order of ranks, so that what iterates by them finds the same for every
  /// reader. They need not be dense.
  virtual const std::string& worker_name(WorkerIndex worker) const = 0;

  /// Called by the engine before each rule, with its Columns(): rows() then has the rows in which these are
  /// known, hidden_rows() the others.
  virtual void ShowRowsThatKnow(uint64_t columns) const { (void)columns; }
  /// Called by the engine before each rule: shows only raw values that would have been kept if this were the
  /// run's only rule. Null: all of them.
  virtual void ShowValuesBy(const RunPlan* plan) const { (void)plan; }
  virtual std::span<const HiddenRow> hidden_rows() const { return {}; }

  /// Every worker's statistics of this step, by rank: micro-steps and points included.
  virtual std::span<const Rows> rows() const = 0;
  /// Numeric series (user's metrics, XGBoost's losses, learning rates) of all workers.
  virtual std::span<const Scalar> scalars() const = 0;
  /// Workers that kept raw values at this step, by rank; at most steps none.
  virtual std::span<const WorkerIndex> raw_workers() const = 0;
  /// The raw value (the step's own), if one was kept. It owns its memory, so it may be kept after Invoke.
  /// \error kNotFound, kDataLoss
  virtual Result<TensorValue> Raw(TensorIndex tensor, WorkerIndex worker) const = 0;
  /// Every raw value of one tensor: by rank, then as recorded, micro-steps and points included.
  struct RawValue {
    TensorIndex tensor = 0;
    WorkerIndex worker = 0;
    SubKey sub;
    TrialAccess::Raw in_trial;
  };
  virtual std::vector<RawValue> RawsOf(TensorIndex tensor) const = 0;
  /// \error kDataLoss
  virtual Result<TensorValue> Read(const RawValue& raw) const = 0;
  /// The tensor that a derived statistic of `tensor` is recorded as; nothing while none was seen.
  virtual std::optional<TensorIndex> StatisticOf(TensorIndex tensor, std::string_view statistic_id) const = 0;
  /// The histogram of a row of this step. \error kNotFound, kDataLoss
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
