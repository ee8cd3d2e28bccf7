// The latest values of one number, which detectors compare with.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace tdbg::rules::profile {

/// The last `most` values, oldest first.
class History {
 public:
  explicit History(size_t most = 50) : most_(most) {}

  void Add(double value) {
    values_.push_back(value);
    if (values_.size() > most_) values_.erase(values_.begin());
    ++seen_;
  }
  size_t seen() const { return seen_; }  ///< values ever added
  double last() const { return values_.back(); }
  /// \pre seen() > 0
  double Median() const {
    std::vector<double> sorted(values_.begin(), values_.end());
    const auto middle = sorted.begin() + static_cast<ptrdiff_t>(sorted.size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    return *middle;
  }
  double Min() const { return *std::min_element(values_.begin(), values_.end()); }
  double Max() const { return *std::max_element(values_.begin(), values_.end()); }
  /// Of the last n.
  double Mean(size_t n) const {
    n = std::min(n, values_.size());
    double sum = 0;
    for (size_t i = values_.size() - n; i < values_.size(); ++i) sum += values_[i];
    return sum / static_cast<double>(n);
  }

 private:
  size_t most_;
  size_t seen_ = 0;
  std::vector<double> values_;  // a deque takes half a kilobyte for each, empty or not
};

}  // namespace tdbg::rules::profile
