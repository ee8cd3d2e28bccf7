// What CheckInputImages and NLPSequenceRatio have in common: derived statistics of inputs, added up over the
// run.
#pragma once

#include <functional>
#include <vector>

#include "rules/derived_values.h"
#include "rules/rule.h"

namespace tdbg::rules {

/// Adds up one derived statistic of the inspected tensors over the run, and judges the total at every step
/// that adds to it.
class DerivedTotals : public Rule {
 public:
  /// \param statistic  of every inspected tensor
  /// \param looks_at  which of those to use; empty: all
  DerivedTotals(Selector inspected, const Statistic& statistic,
                std::function<bool(const TensorInfo&)> looks_at = {});

  plan::Need Needs() const override;
  Result<Judged> Invoke(const StepContext& step, std::vector<Finding>* findings) override;
  Result<Judged> AtEnd(const StepContext& last, std::vector<Finding>* findings) override;

 protected:
  /// Adds one value of a tensor that is not empty. True if there is enough to judge now; appends a finding
  /// for each total beyond its threshold.
  virtual bool Add(const StepContext& step, TensorIndex tensor, WorkerIndex worker,
                   const StatisticValue& value, std::vector<Finding>* findings) = 0;
  const Statistic& statistic() const { return need_.statistic; }
  const Selector& inspected() const { return values_.inspected(); }

 private:
  plan::StatisticNeed need_;
  DerivedValues values_;
};

}  // namespace tdbg::rules
