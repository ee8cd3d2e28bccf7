#include "rules/builtin/loss_not_decreasing/loss_series.h"

#include <cmath>

namespace tdbg::rules {
namespace {

int Preference(ModeKey mode) { return mode == ModeKey::kEval ? 2 : mode == ModeKey::kTrain ? 1 : 0; }

// GLOBAL is not a mode of steps but the count of all of them.
ModeKey JudgedMode(ModeKey mode) { return Preference(mode) > 0 ? mode : ModeKey::kGlobal; }

}  // namespace

void LossSeries::Restart(ModeKey mode) {
  *this = LossSeries();
  mode_ = mode;
}

std::vector<LossCheck> LossSeries::Take(const StepInfo& step, std::optional<double> value,
                                        const LossCadence& cadence, bool gaps_are_losses) {
  std::vector<LossCheck> checks;
  if (cadence.mode) {
    mode_ = *cadence.mode;
    if (mode_ != ModeKey::kGlobal && step.mode != mode_) return checks;
  } else {
    if (values() == 0 && !value) return checks;
    const ModeKey mode = JudgedMode(step.mode);
    if (value && (values() == 0 || Preference(mode) > Preference(mode_))) Restart(mode);
    if (mode != mode_) return checks;
  }
  const int64_t position = mode_ == ModeKey::kGlobal ? step.global_step : step.mode_step;
  for (const IntervalEnd& end :
       means_.Take(position, step.global_step, value, cadence.interval, gaps_are_losses))
    Compare(end, cadence, &checks);
  return checks;
}

void LossSeries::Compare(const IntervalEnd& end, const LossCadence& cadence, std::vector<LossCheck>* checks) {
  // Everything up to the latest end that is far enough back is settled; ends_ stays as short as num_steps is.
  while (ends_.size() > 1 && ends_[1].position <= end.position - cadence.num_steps)
    ends_.erase(ends_.begin());
  if (!last_check_) {
    last_check_ = end.position;
    if (!std::isfinite(end.mean)) checks->push_back({std::nullopt, end});
  } else if (end.position - *last_check_ >= cadence.num_steps) {
    last_check_ = end.position;
    checks->push_back({ends_.front(), end});
  }
  ends_.push_back(end);
}

}  // namespace tdbg::rules
