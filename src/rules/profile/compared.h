// Predictions and their targets, at the steps at which the training process looked at them
// (docs/incidents.md, "Learning"), and what else detectors of them have to know.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "rules/profile/digest.h"
#include "rules/profile/history.h"

namespace tdbg::rules::profile {

/// Steps in which any model still finds its level.
inline constexpr int64_t kBeginning = 40;
/// Steps after the latest rise of the learning rate in which little is expected: a warm-up.
inline constexpr int64_t kRateSettles = 100;

/// A loss function's two arguments at one step. Nothing of a number that was not told.
struct Compared {
  std::optional<double> target_mean, target_std, target_between;  ///< between: rows
  std::optional<double> mean, std, between;                       ///< of predictions
  std::optional<double> guess, loss, correlation;

  /// Roots of the mean squares.
  double target_size() const { return std::hypot(target_mean.value_or(0), target_std.value_or(0)); }
  double size() const { return std::hypot(mean.value_or(0), std.value_or(0)); }
};

/// Nothing: the step was not looked at, or something of it is not finite.
/// \param number  of the step's losses; of those after the first errors alone are looked at, of rows of
/// several
///                numbers
std::optional<Compared> ComparedAt(const Digest& step, int number = 0);

/// What a loss function was given, as the topic says.
struct Comparison {
  enum Kind : uint8_t { kOther, kElements, kBinary, kClasses } kind = kOther;
  bool single = false;  ///< a row is one number: a value, a price

  /// What a decoder makes is judged even where it is a part of a loss. A value network's targets are noise
  /// until there are rewards, and a model that judges domains that are to be made alike should have nothing
  /// to go by.
  bool is_picture() const { return (kind == kElements || kind == kBinary) && !single; }

  static Comparison Of(const Digest& step);
};

/// How long ago the learning rate rose last.
class Rate {
 public:
  /// To be asked once at each training step.
  int64_t StepsSinceRise(const Digest& step);

 private:
  double rate_ = 0;
  int64_t since_ = 0;
};

/// Words and columns that are seldom learn seldom: of tables, and of the first matrix, whose columns are the
/// input's, what has no gradient at a step was not there. A table of all words that the model guesses is none
/// of these, as what it guesses most often is learnt without it.
class SeldomFeatures {
 public:
  void See(const Digest& step);
  /// Steps in which an element of the weight that is seen least had a gradient, on average.
  double LeastTouched() const;

 private:
  struct Touched {
    double sum = 0;
    int64_t steps = 0;
  };
  std::vector<Touched> touched_;  // by parameter
};

/// A loss over that of the best constant, at the latest looks. A value network begins with values of nothing,
/// and so do its targets and its loss: as these grow the loss may, while the network knows more and more of
/// them.
class AgainstGuessing {
 public:
  void See(const Digest& step);
  bool IsKnown() const { return guesses_.seen() > 0; }
  /// False of both where it is not known.
  bool IsBetterThan(double times) const;
  bool IsWorseThan(double times) const { return IsKnown() && !IsBetterThan(times); }
  /// May a loss be as high as it is, less than so many times what guessing has? Where nothing is known of the
  /// targets only that of a script's own: a function of torch's is given targets that would have been looked
  /// at.
  bool MayBe(const Loss& loss, double times) const {
    if (loss.kind != LossKind::kRegression) return false;
    return IsKnown() ? IsBetterThan(times) : loss.own;
  }

 private:
  static constexpr size_t kLooks = 3;
  History guesses_{kLooks}, losses_{kLooks};
};

}  // namespace tdbg::rules::profile
