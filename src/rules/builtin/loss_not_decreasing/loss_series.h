// One loss of one worker, boiled down to the means of its intervals, and when they are to be compared.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "rules/interval_means.h"
#include "tdbg/trial.h"

namespace tdbg::rules {

/// How the rule was configured; the same for all its series.
struct LossCadence {
  Interval interval;
  int64_t num_steps = 10;
  std::optional<ModeKey> mode;  ///< nothing: EVAL, else TRAIN, else GLOBAL
};

/// What is to be compared now. Without `earlier` there is nothing to compare with, and the mean is not
/// finite.
struct LossCheck {
  std::optional<IntervalEnd> earlier;
  IntervalEnd latest;
};

/// Feeds on every step in order.
class LossSeries {
 public:
  /// Takes the step in; `value` is the loss there, if it has one. Returns checks that came due: usually none,
  /// two where a gap ends an interval late and the value ends one of its own.
  std::vector<LossCheck> Take(const StepInfo& step, std::optional<double> value, const LossCadence& cadence,
                              bool gaps_are_losses);
  int64_t values() const { return means_.values(); }

 private:
  void Compare(const IntervalEnd& end, const LossCadence& cadence, std::vector<LossCheck>* checks);
  void Restart(ModeKey mode);

  ModeKey mode_ = ModeKey::kGlobal;
  IntervalMeans means_;  // of this mode
  std::optional<int64_t> last_check_;
  std::vector<IntervalEnd> ends_;  // the latest at least num_steps back, and those after it
};

}  // namespace tdbg::rules
