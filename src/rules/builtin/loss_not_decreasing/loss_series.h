// One loss of one worker, boiled down to the means of its intervals, and when they are to be compared.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tdbg/trial.h"

namespace tdbg::rules {

/// How the rule was configured; the same for all its series.
struct LossCadence {
  int64_t interval = 500;
  bool interval_given = false;  ///< else a loss that is kept sparsely is compared value by value
  int64_t num_steps = 10;
  std::optional<ModeKey> mode;  ///< nothing: EVAL, else TRAIN, else GLOBAL
};

/// The mean over one interval, known from its last step on.
struct IntervalEnd {
  int64_t position = 0;     ///< last step with a value, in steps of the judged mode
  int64_t global_step = 0;  ///< the same step
  int64_t values = 0;
  double mean = 0;  ///< NaN or infinite if a value was
};

/// What is to be compared now. Without `earlier` there is nothing to compare with, and the mean is not
/// finite.
struct LossCheck {
  std::optional<IntervalEnd> earlier;
  IntervalEnd latest;
};

/// Feeds on every step in order. Intervals are counted from the series' first value, so that a run that
/// starts at step 12,345, or a rule with a start_step, compares whole intervals with whole intervals.
class LossSeries {
 public:
  /// Takes the step in; `value` is the loss there, if it has one. Returns checks that came due: usually none,
  /// two where a gap ends an interval late and the value ends one of its own.
  std::vector<LossCheck> Take(const StepInfo& step, std::optional<double> value, const LossCadence& cadence,
                              bool gaps_are_losses);
  int64_t values() const { return values_; }

 private:
  void Close(const LossCadence& cadence, std::vector<LossCheck>* checks);
  void Restart(ModeKey mode);

  ModeKey mode_ = ModeKey::kGlobal;
  int64_t values_ = 0;  // of this mode
  bool kept_sparsely_ = false;
  int64_t first_ = 0;  // position of the first value
  int64_t open_interval_ = 0;
  int64_t open_values_ = 0;
  double open_sum_ = 0;
  int64_t last_position_ = 0, last_global_step_ = 0;
  std::optional<int64_t> last_check_;
  std::vector<IntervalEnd> ends_;  // the latest at least num_steps back, and those after it
};

}  // namespace tdbg::rules
