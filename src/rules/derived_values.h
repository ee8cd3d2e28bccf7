// Derived statistics of inspected tensors at a step: recorded ones, or computed from raw values that were
// kept.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rules/selector.h"
#include "rules/step_context.h"
#include "stats/unit_statistics.h"
#include "tdbg/statistic.h"
#include "tdbg/status.h"

namespace tdbg::rules {

/// The values for a rule about units or tokens. Micro-steps and repeated calls are separate values; values
/// that were recorded at a point (before clipping, at the end) are ignored.
class DerivedValues {
 public:
  /// Which statistic to judge one inspected tensor by, or why there is none.
  using StatisticOf = std::function<Result<Statistic>(const TensorInfo&)>;

  /// \param looks_at  which of the inspected tensors to use; empty: all
  DerivedValues(Selector inspected, StatisticOf statistic_of,
                std::function<bool(const TensorInfo&)> looks_at = {})
      : inspected_(std::move(inspected)),
        statistic_of_(std::move(statistic_of)),
        looks_at_(std::move(looks_at)) {}

  const Selector& inspected() const { return inspected_; }

  /// Calls f(tensor, worker, sub, const StatisticValue&) for every value of the step, tensor by tensor. False
  /// if a value that was kept cannot be read.
  template <typename F>
  bool ForEach(const StepContext& step, F&& f) {
    Update(step);
    bool readable = true;
    for (Followed& followed : followed_) {
      readable &= Collect(step, &followed);
      for (const Found& found : found_) f(followed.tensor, found.worker, found.sub, found.value);
    }
    return readable;
  }

  /// For Rule::AtEnd: if an inspected tensor never had a value, the verdict cannot be "no issues".
  /// \error kFailedPrecondition  names it and what is missing: a unit axis, statistics of its type, the
  /// statistic
  Status AllHadValues(const StepContext& last) const;

 private:
  struct Followed {
    TensorIndex tensor = 0;
    Result<Statistic> statistic;
    std::optional<TensorIndex> recorded;
    size_t looked_among = 0;  // tensors, when the recorded one was last looked for
    bool had_values = false;
  };
  struct Found {
    WorkerIndex worker = 0;
    uint16_t sub = 0;
    StatisticValue value;
  };

  void Update(const StepContext& step);
  bool Collect(const StepContext& step, Followed* followed);

  Selector inspected_;
  StatisticOf statistic_of_;
  std::function<bool(const TensorInfo&)> looks_at_;
  stats::UnitStatistics compute_;
  size_t seen_ = 0;
  std::vector<Followed> followed_;
  std::vector<Found> found_;
};

}  // namespace tdbg::rules
