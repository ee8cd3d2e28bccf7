#include "rules/builtin/loss_not_decreasing/loss_series.h"

#include <algorithm>
#include <cmath>

namespace tdbg::rules {
namespace {

int Preference(ModeKey mode) { return mode == ModeKey::kEval ? 2 : mode == ModeKey::kTrain ? 1 : 0; }

// GLOBAL is not a mode of steps but the count of all of them.
ModeKey JudgedMode(ModeKey mode) { return Preference(mode) > 0 ? mode : ModeKey::kGlobal; }

}  // namespace

std::map<ModeKey, int64_t> LossSeries::values() const {
  std::map<ModeKey, int64_t> values;
  for (const auto& [mode, track] : tracks_) values[mode] = track.means.values();
  return values;
}

// EVAL is preferred, and a run of eight evaluations never has enough of it: a mode gives way to a better one
// when that one can be judged, and not when its first value appears.
bool LossSeries::BetterIsJudged(ModeKey mode) const {
  return std::any_of(tracks_.begin(), tracks_.end(), [&](const auto& track) {
    return Preference(track.first) > Preference(mode) && track.second.compared;
  });
}

std::vector<LossCheck> LossSeries::Take(const StepInfo& step, std::optional<double> value,
                                        const LossCadence& cadence, bool gaps_are_losses) {
  std::vector<LossCheck> checks;
  const ModeKey mode = cadence.mode.value_or(JudgedMode(step.mode));
  if (cadence.mode && mode != ModeKey::kGlobal && step.mode != mode) return checks;
  auto at = tracks_.find(mode);
  if (at == tracks_.end()) {
    if (!value) return checks;
    at = tracks_.emplace(mode, Track()).first;
  }
  const int64_t position = mode == ModeKey::kGlobal ? step.global_step : step.mode_step;
  if (value && !judged_ && !cadence.interval.given) at->second.whole.Add(position, step.global_step, *value);
  for (const IntervalEnd& end :
       at->second.means.Take(position, step.global_step, value, cadence.interval, gaps_are_losses))
    Compare(mode, end, cadence, &at->second, &checks);
  if (!checks.empty() && BetterIsJudged(mode)) checks.clear();
  if (!checks.empty() && !judged_) {
    for (auto& [other, track] : tracks_) track.whole = {};
  }
  if (!checks.empty()) judged_ = mode;
  return checks;
}

std::optional<LossHalves> LossSeries::Halves(const LossCadence& cadence) const {
  std::optional<LossHalves> halves;
  if (judged_ || cadence.interval.given) return halves;
  for (const auto& [mode, track] : tracks_) {
    if (track.whole.values() < 2 * cadence.num_steps) continue;
    if (halves && Preference(mode) < Preference(halves->mode)) continue;
    const std::vector<Stretch> parts = track.whole.Split(2);
    if (parts.size() == 2) halves = {mode, parts[0], parts[1]};
  }
  return halves;
}

void LossSeries::Compare(ModeKey mode, const IntervalEnd& end, const LossCadence& cadence, Track* track,
                         std::vector<LossCheck>* checks) {
  std::vector<IntervalEnd>& ends = track->ends;
  // Everything up to the latest end that is far enough back is settled; `ends` stays as short as num_steps
  // is.
  while (ends.size() > 1 && ends[1].position <= end.position - cadence.num_steps) ends.erase(ends.begin());
  if (!track->last_check) {
    track->last_check = end.position;
    if (!std::isfinite(end.mean)) checks->push_back({mode, std::nullopt, end});
  } else if (end.position - *track->last_check >= cadence.num_steps) {
    track->last_check = end.position;
    track->compared = true;
    checks->push_back({mode, ends.front(), end});
  }
  ends.push_back(end);
}

}  // namespace tdbg::rules
