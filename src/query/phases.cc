#include "query/phases.h"

#include <algorithm>

#include "tdbg/mode.h"

namespace tdbg::query {

void Phases::Update(const TrialAccess& access) {
  if (access.overlay_generation() != overlay_generation_) {
    *this = Phases();
    overlay_generation_ = access.overlay_generation();
  }
  const auto steps = access.steps();
  for (; taken_ < access.complete_count(); ++taken_) {
    const TrialAccess::Step step = steps[taken_];
    if (attempts_.empty() || attempts_.back().attempt != step.attempt)
      attempts_.push_back({step.attempt, step.info.global_step});
    const bool evaluation = step.info.mode == ModeKey::kEval || step.info.mode == ModeKey::kPredict;
    if (evaluation) TakeInEvaluation(step.info.global_step);
    evaluating_ = evaluation;
  }
}

void Phases::TakeInEvaluation(int64_t step) {
  if (!evaluations_.empty() && (evaluating_ || step - evaluations_.back().last <= near_)) {
    evaluations_.back().last = step;
    return;
  }
  evaluations_.push_back({step, step});
  if (evaluations_.size() > kMostEvaluations) Thin();
}

void Phases::Thin() {
  while (evaluations_.size() > kMostEvaluations / 2) {
    near_ = std::max<int64_t>(2, near_ * 2);
    size_t kept = 0;
    for (size_t i = 1; i < evaluations_.size(); ++i) {
      if (evaluations_[i].first - evaluations_[kept].last <= near_) {
        evaluations_[kept].last = evaluations_[i].last;
      } else {
        evaluations_[++kept] = evaluations_[i];
      }
    }
    evaluations_.resize(kept + 1);
  }
}

Json Phases::Attempts() const {
  Json out = Json::array();
  for (const Attempt& a : attempts_) out.push_back({{"attempt", a.attempt}, {"first_step", a.first_step}});
  return out;
}

Json Phases::Evaluations() const {
  Json out = Json::array();
  for (const Range& range : evaluations_) out.push_back({range.first, range.last});
  return out;
}

}  // namespace tdbg::query
