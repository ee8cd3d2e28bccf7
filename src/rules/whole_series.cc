#include "rules/whole_series.h"

#include <cmath>

namespace tdbg::rules {

void Stretch::Merge(const Stretch& next) {
  if (next.values == 0) return;
  const double distance = next.mean - mean;
  const auto here = static_cast<double>(values), there = static_cast<double>(next.values);
  squares += next.squares + distance * distance * here * there / (here + there);
  mean += distance * there / (here + there);
  values += next.values;
  last_position = next.last_position;
  last_global_step = next.last_global_step;
}

double Stretch::Variance() const { return values < 2 ? 0 : squares / static_cast<double>(values - 1); }

double ErrorOfDifference(const Stretch& a, const Stretch& b) {
  return std::sqrt(a.Variance() / static_cast<double>(a.values) +
                   b.Variance() / static_cast<double>(b.values));
}

void WholeSeries::Add(int64_t position, int64_t global_step, double value) {
  if (!stretches_.empty() && stretches_.back().values < width_) {
    stretches_.back().Merge({1, position, global_step, value, 0});
    ++values_;
    return;
  }
  if (stretches_.size() == kMost) {
    for (size_t i = 0; i < kMost / 2; ++i) {
      stretches_[i] = stretches_[2 * i];
      stretches_[i].Merge(stretches_[2 * i + 1]);
    }
    stretches_.resize(kMost / 2);
    width_ *= 2;
  }
  stretches_.push_back({1, position, global_step, value, 0});
  ++values_;
}

std::vector<Stretch> WholeSeries::Split(size_t count) const {
  std::vector<Stretch> parts;
  if (count == 0 || stretches_.size() < count) return parts;
  for (size_t part = 0; part < count; ++part) {
    Stretch merged;
    for (size_t i = part * stretches_.size() / count; i < (part + 1) * stretches_.size() / count; ++i)
      merged.Merge(stretches_[i]);
    parts.push_back(merged);
  }
  return parts;
}

}  // namespace tdbg::rules
