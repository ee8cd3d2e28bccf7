#include "query/envelope.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace tdbg::query {

Envelope EnvelopeOf(std::span<const int64_t> steps, std::span<const double> values, size_t columns) {
  Envelope out;
  out.points = steps.size();
  if (steps.empty()) return out;
  columns = std::max<size_t>(columns, 1);
  const bool all = steps.size() <= 4 * columns;
  const double range = static_cast<double>(steps.back()) - static_cast<double>(steps.front()) + 1;
  const auto column_of = [&](int64_t step) {
    const double part = (static_cast<double>(step) - static_cast<double>(steps.front())) / range;
    return static_cast<size_t>(part * static_cast<double>(columns));
  };
  for (size_t i = 0; i < steps.size();) {
    size_t end = i + 1;
    if (!all) {
      const size_t column = column_of(steps[i]);
      while (end < steps.size() && column_of(steps[end]) == column) ++end;
    }
    std::array<size_t, 4> keep{};  // first, least, greatest, last
    bool finite = false, nan = false, positive = false, negative = false;
    for (size_t k = i; k < end; ++k) {
      if (!std::isfinite(values[k])) {
        bool& seen = std::isnan(values[k]) ? nan : values[k] > 0 ? positive : negative;
        if (!seen) {
          out.nonfinite_steps.push_back(steps[k]);
          out.nonfinite_values.push_back(values[k]);
        }
        seen = true;
        continue;
      }
      if (!finite) keep = {k, k, k, k};
      finite = true;
      if (values[k] < values[keep[1]]) keep[1] = k;
      if (values[k] > values[keep[2]]) keep[2] = k;
      keep[3] = k;
    }
    if (finite) {
      std::ranges::sort(keep);
      for (size_t k = 0; k < keep.size(); ++k) {
        if (k > 0 && keep[k] == keep[k - 1]) continue;
        out.steps.push_back(steps[keep[k]]);
        out.values.push_back(values[keep[k]]);
      }
    }
    i = end;
  }
  return out;
}

}  // namespace tdbg::query
