// How long one gradient has been below a threshold, and whether it is on its way up.
#pragma once

#include <cstdint>

namespace tdbg::rules {

/// Follows one gradient of one worker: for how many steps in a row it has been below the threshold.
///
/// One such step says nothing: a batch may leave the loss at zero, advantages may be all equal, a layer may
/// be dropped. A gradient that starts at zero by design (the first matrix of a LoRA pair, a block whose
/// residual scale starts at zero) grows as its counterpart does, slowly while the learning rate warms up: as
/// long as it grows it is waited for. A gradient that was above the threshold once is not.
class Streak {
 public:
  /// \param position  in the steps of the mode
  void Above(int64_t position, int64_t global_step) {
    LeftOut(position);
    open_ = false;
    ever_above_ = true;
    above_at_ = global_step;
  }
  /// To be called where the gradient is below. True if it has vanished: `patience` such steps, not growing.
  /// Steps at which the gradient is left out (a batch without a loss), while it was there more often before,
  /// end the patience: what it would have been there is not known.
  bool Below(int64_t position, int64_t global_step, double value, int64_t patience);

  bool open() const { return open_; }
  bool ever_above() const { return ever_above_; }
  /// Was there any?
  bool seen() const { return last_position_ >= 0; }
  bool only_zeros() const { return only_zeros_; }
  /// Whether it was growing as far as it was seen; asked at the end of a run.
  bool rising() const;
  int64_t above_at() const { return above_at_; }      ///< the last step at which it was above; -1: none
  int64_t first_step() const { return first_step_; }  ///< of the streak; global
  int64_t first_position() const { return begin_; }
  int64_t last_step() const { return last_step_; }
  double last_value() const { return last_value_; }

 private:
  struct Mean {
    double sum = 0;
    int64_t values = 0;
    double get() const { return values == 0 ? 0 : sum / static_cast<double>(values); }
  };
  // Halves of the window at hand: in the first window they are compared with each other, later the window
  // with the one before.
  Mean Whole() const {
    return {first_half_.sum + second_half_.sum, first_half_.values + second_half_.values};
  }
  void StartWindow(int64_t position);
  bool LeftOut(int64_t position);

  bool open_ = false, ever_above_ = false, only_zeros_ = true;
  int64_t above_at_ = -1, first_step_ = 0, last_step_ = 0;
  int64_t begin_ = 0, window_begin_ = 0;  // positions
  // Of all that was seen: where last, how far apart, and a larger distance that was met once.
  int64_t last_position_ = -1, distance_ = 0, other_distance_ = 0;
  Mean first_half_, second_half_;
  double before_ = -1;  // mean of the window before; negative: there is none
  double first_value_ = 0, last_value_ = 0;
};

}  // namespace tdbg::rules
