// A series reduced to the means of its intervals, which rules that judge a trend compare.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace tdbg::rules {

/// The distance that Amazon's defaults implied in deep learning (docs/semantics.md, "Cadence").
inline constexpr int64_t kDefaultInterval = 500;

/// And in XGBoost, whose metrics come once a round.
inline constexpr int64_t kDefaultMetricInterval = 10;

/// How `interval` was configured; the same for all series of a rule.
struct Interval {
  int64_t steps = kDefaultInterval;
  bool given = false;  ///< otherwise a series that is kept sparsely is compared value by value
};

/// The mean over one interval, known from its last step on.
struct IntervalEnd {
  int64_t position = 0;     ///< last step with a value, in steps of the judged mode
  int64_t global_step = 0;  ///< the same step
  int64_t values = 0;
  double mean = 0;  ///< NaN or infinite if a value was
};

/// Takes every step of the judged mode in order. Intervals are counted from the first value, so that a run
/// that starts at step 12,345, or a rule with a start_step, compares only whole intervals.
class IntervalMeans {
 public:
  /// Adds a step; `value` is the series' value there, if it has one. Returns the intervals that ended:
  /// usually none, two if a gap ends one late and the value ends its own.
  /// \param gaps_are_losses  gaps are dropped values, not the cadence at which the series is kept
  std::vector<IntervalEnd> Take(int64_t position, int64_t global_step, std::optional<double> value,
                                const Interval& interval, bool gaps_are_losses);
  int64_t values() const { return values_; }

 private:
  void Close(std::vector<IntervalEnd>* ends);

  int64_t values_ = 0;
  bool kept_sparsely_ = false;
  int64_t first_ = 0;  // position of the first value
  int64_t open_interval_ = 0;
  int64_t open_values_ = 0;
  double open_sum_ = 0;
  int64_t last_position_ = 0, last_global_step_ = 0;
};

}  // namespace tdbg::rules
