// One loss of one worker, boiled down to the means of its intervals, and when they are to be compared.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "rules/interval_means.h"
#include "rules/whole_series.h"
#include "tdbg/trial.h"

namespace tdbg::rules {

/// How the rule was configured; the same for all its series.
struct LossCadence {
  Interval interval;
  int64_t num_steps = 10;
  std::optional<ModeKey> mode;  ///< nothing: EVAL as soon as it can be judged, else TRAIN, else GLOBAL
};

/// What is to be compared now. Without `earlier` there is nothing to compare with, and the mean is not
/// finite.
struct LossCheck {
  ModeKey mode = ModeKey::kGlobal;
  std::optional<IntervalEnd> earlier;
  IntervalEnd latest;
};

/// A series that ended before it could be compared by intervals, as its two halves.
struct LossHalves {
  ModeKey mode = ModeKey::kGlobal;
  Stretch first, second;
};

/// Feeds on every step in order.
class LossSeries {
 public:
  /// Takes the step in; `value` is the loss there, if it has one. Returns checks that came due: usually none,
  /// two where a gap ends an interval late and the value ends one of its own.
  std::vector<LossCheck> Take(const StepInfo& step, std::optional<double> value, const LossCadence& cadence,
                              bool gaps_are_losses);
  /// For the end of the run, if no interval was given and nothing was compared: the halves of the values of
  /// the best mode that has two times `num_steps` of them.
  std::optional<LossHalves> Halves(const LossCadence& cadence) const;
  /// Values seen, by mode.
  std::map<ModeKey, int64_t> values() const;
  /// The mode that was compared last; nothing: none was yet.
  std::optional<ModeKey> judged() const { return judged_; }

 private:
  // The loss in one mode. Values of different modes are never compared.
  struct Track {
    IntervalMeans means;
    std::optional<int64_t> last_check;
    std::vector<IntervalEnd> ends;  // the latest at least num_steps back, and those after it
    bool compared = false;          // it has been judged once: it can be
    WholeSeries whole;              // until some mode has been compared
  };

  bool BetterIsJudged(ModeKey mode) const;
  static void Compare(ModeKey mode, const IntervalEnd& end, const LossCadence& cadence, Track* track,
                      std::vector<LossCheck>* checks);

  std::map<ModeKey, Track> tracks_;
  std::optional<ModeKey> judged_;
};

}  // namespace tdbg::rules
