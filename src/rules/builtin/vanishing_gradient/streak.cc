#include "rules/builtin/vanishing_gradient/streak.h"

namespace tdbg::rules {
namespace {

// A linear warm-up of 100 steps lets the first matrix of a LoRA pair grow with the square of the step: by 1.5
// from one window of 10 steps to the next up to step 60, where it is above 1e-7 in all but odd cases. Batch
// noise moves a mean over 5 to 10 steps by less.
constexpr double kGrowth = 1.5;

}  // namespace

void Streak::StartWindow(int64_t position) {
  window_begin_ = position;
  first_half_ = second_half_ = {};
}

// A distance that is met twice in a row is an interval, at which the gradient is looked at from now on.
bool Streak::LeftOut(int64_t position) {
  const int64_t distance = position - last_position_;
  const bool first = last_position_ < 0;
  last_position_ = position;
  if (first || distance <= 0) return false;
  const bool left_out = distance_ != 0 && distance > distance_ && distance != other_distance_;
  (left_out ? other_distance_ : distance_) = distance;
  if (!left_out) other_distance_ = 0;
  return left_out;
}

bool Streak::Below(int64_t position, int64_t global_step, double value, int64_t patience) {
  if (LeftOut(position) || !open_) {
    open_ = true;
    only_zeros_ = true;
    first_step_ = global_step;
    first_value_ = value;
    begin_ = position;
    before_ = -1;
    StartWindow(position);
  }
  only_zeros_ = only_zeros_ && value == 0;
  last_step_ = global_step;
  last_value_ = value;
  Mean& half = position - window_begin_ < patience / 2 ? first_half_ : second_half_;
  half.sum += value;
  ++half.values;
  if (position - begin_ + 1 < patience) return false;
  if (ever_above_ || patience == 1) return true;
  if (position - window_begin_ + 1 < patience) return false;
  if (!rising()) return true;
  before_ = Whole().get();
  StartWindow(position + 1);
  return false;
}

bool Streak::rising() const {
  if (before_ >= 0) return Whole().values == 0 || Whole().get() > kGrowth * before_;
  // In a run shorter than half the patience the second half is empty.
  if (second_half_.values == 0) return last_value_ > kGrowth * first_value_;
  return second_half_.get() > kGrowth * first_half_.get();
}

}  // namespace tdbg::rules
