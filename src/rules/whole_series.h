// A series whose length is not known before its end, in a few stretches: for rules that judge a short run as
// a whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tdbg::rules {

/// Consecutive values of a series.
struct Stretch {
  int64_t values = 0;
  int64_t last_position = -1;  ///< in the steps of the judged mode
  int64_t last_global_step = -1;
  double mean = 0;     ///< NaN or infinite if a value was
  double squares = 0;  ///< sum of the squared distances from the mean

  void Merge(const Stretch& next);
  double Variance() const;  ///< of a value; 0 of a single one
};

/// How far the difference of two stretches' means may lie from what they stand for, by the noise of their
/// values: one standard error.
double ErrorOfDifference(const Stretch& a, const Stretch& b);

/// Takes the values of a series one by one and keeps at most kMost stretches of equal length, whatever the
/// series' length. The same values always give the same stretches.
class WholeSeries {
 public:
  static constexpr size_t kMost = 128;

  /// \param position  in the steps of the judged mode
  void Add(int64_t position, int64_t global_step, double value);
  int64_t values() const { return values_; }
  /// The series in `count` parts, as equal as its stretches allow (exactly equal below kMost values where
  /// `count` divides them). Empty: it has fewer values than that.
  std::vector<Stretch> Split(size_t count) const;

 private:
  int64_t values_ = 0, width_ = 1;  // of a stretch that is full
  std::vector<Stretch> stretches_;
};

}  // namespace tdbg::rules
