#include "rules/interval_means.h"

namespace tdbg::rules {

std::vector<IntervalEnd> IntervalMeans::Take(int64_t position, int64_t global_step,
                                             std::optional<double> value, const Interval& interval,
                                             bool gaps_are_losses) {
  std::vector<IntervalEnd> ends;
  if (values_ == 0) {
    if (!value) return ends;
    first_ = position;
  }
  if (values_ == 1 && value && position - last_position_ > 1 && !interval.given && !gaps_are_losses) {
    kept_sparsely_ = true;
  }
  const int64_t current = (position - first_) / interval.steps;
  // The interval's last step had no value, or was not recorded: it ends here, with what it has.
  if (open_values_ > 0 && (current > open_interval_ || kept_sparsely_)) Close(&ends);
  open_interval_ = current;
  if (value) {
    open_sum_ += *value;
    ++open_values_;
    ++values_;
    last_position_ = position;
    last_global_step_ = global_step;
  }
  const bool last_of_interval = (position - first_ + 1) % interval.steps == 0;
  if (open_values_ > 0 && (last_of_interval || kept_sparsely_)) Close(&ends);
  return ends;
}

void IntervalMeans::Close(std::vector<IntervalEnd>* ends) {
  ends->push_back(
      {last_position_, last_global_step_, open_values_, open_sum_ / static_cast<double>(open_values_)});
  open_sum_ = 0;
  open_values_ = 0;
}

}  // namespace tdbg::rules
