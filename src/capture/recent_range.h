// The recent range of a tensor's statistics. When a value leaves that range, the tensor's histogram is worth
// recording at once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "format/records.h"

namespace tdbg::capture {

/// The range of one tensor's statistics over the last two spans of steps; a span is the interval between two
/// histograms. With one span only, anything that recurs now and then would look new each time.
///
/// The answer depends only on the rows and their order: the same rows always give the same
/// histograms.
class RecentRange {
 public:
  /// Adds the row to the range. True if it lay outside of what the range was before: more than twice the most
  /// or less than half of the least of NaN and infinities, or of zeros (give or take 1/64 of the elements),
  /// or the smallest or largest element beyond its range by more than the largest magnitude in it (inwards:
  /// by half of that). A tensor that was not seen for two spans is news itself.
  bool Leaves(const format::SummaryRow& row, uint32_t span) {
    if (span != span_) {
      before_ = span == span_ + 1 ? now_ : Range{};
      now_ = Range{};
      span_ = span;
    }
    Range recent = before_;
    recent.Add(now_);
    const Range is = Of(row);
    now_.Add(is);
    return recent.empty() || recent.IsLeftBy(is, static_cast<float>(row.count));
  }

 private:
  // Floats: what is compared differs by factors, and this is read for every tensor at every step.
  struct Range {
    static constexpr float kInf = std::numeric_limits<float>::infinity();
    float fewest_nonfinite = kInf, most_nonfinite = -kInf;
    float fewest_zeros = kInf, most_zeros = -kInf;
    float lowest_min = kInf, highest_min = -kInf;  // both as they are where no element was finite
    float lowest_max = kInf, highest_max = -kInf;

    bool empty() const { return most_zeros < 0; }
    void Add(const Range& r) {
      fewest_nonfinite = std::min(fewest_nonfinite, r.fewest_nonfinite);
      most_nonfinite = std::max(most_nonfinite, r.most_nonfinite);
      fewest_zeros = std::min(fewest_zeros, r.fewest_zeros);
      most_zeros = std::max(most_zeros, r.most_zeros);
      lowest_min = std::min(lowest_min, r.lowest_min);
      highest_min = std::max(highest_min, r.highest_min);
      lowest_max = std::min(lowest_max, r.lowest_max);
      highest_max = std::max(highest_max, r.highest_max);
    }
    bool IsLeftBy(const Range& r, float elements) const {
      const float few = elements / 64;
      if (r.most_nonfinite > 2 * most_nonfinite || 2 * r.fewest_nonfinite < fewest_nonfinite) return true;
      if (r.most_zeros > 2 * most_zeros + few || 2 * r.fewest_zeros + few < fewest_zeros) return true;
      if (r.lowest_min > r.highest_max) return false;  // nothing is finite, and the counts have said that
      const float magnitude = std::max(-lowest_min, highest_max);
      return r.lowest_min < lowest_min - magnitude || r.lowest_min > highest_min + magnitude / 2 ||
             r.highest_max > highest_max + magnitude || r.highest_max < lowest_max - magnitude / 2;
    }
  };

  static Range Of(const format::SummaryRow& row) {
    Range r;
    r.fewest_nonfinite = r.most_nonfinite =
        static_cast<float>(row.nan_count + row.pos_inf_count + row.neg_inf_count);
    r.fewest_zeros = r.most_zeros = static_cast<float>(row.zero_count);
    if (!(row.min <= row.max)) return r;  // NaN: nothing is finite
    r.lowest_min = r.highest_min = static_cast<float>(row.min);
    r.lowest_max = r.highest_max = static_cast<float>(row.max);
    return r;
  }

  Range before_, now_;
  uint32_t span_ = 0;
};

}  // namespace tdbg::capture
