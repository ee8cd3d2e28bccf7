// Derived statistics of inspected tensors at a step: as they were recorded, or computed from raw values that
// were kept.
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

/// What a rule about units or tokens looks at. Micro-steps and repeated calls are values of their own; what a
/// run recorded under a point (before clipping, at the end) is not looked at.
class DerivedValues {
 public:
  /// The statistic that one inspected tensor is judged by, or why there is none.
  using StatisticOf = std::function<Result<Statistic>(const TensorInfo&)>;

  /// \param looks_at  of the inspected tensors, those that are meant; empty: all
  DerivedValues(Selector inspected, StatisticOf statistic_of,
                std::function<bool(const TensorInfo&)> looks_at = {})
      : inspected_(std::move(inspected)),
        statistic_of_(std::move(statistic_of)),
        looks_at_(std::move(looks_at)) {}

  const Selector& inspected() const { return inspected_; }

  /// Calls f(tensor, worker, sub, const StatisticValue&) for every value of the step, tensor by tensor. False
  /// if one that was kept cannot be read.
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

  /// For Rule::AtEnd: a tensor that was inspected and never had a value makes a clean verdict impossible.
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
