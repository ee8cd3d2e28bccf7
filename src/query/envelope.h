// A series reduced to a line of a given number of pixels: the M4 aggregation (Jugel et al., VLDB 2014). Of
// each column of pixels the first, smallest, largest and last point are kept; a line through them covers the
// same pixels as the line through all points.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tdbg::query {

struct Envelope {
  std::vector<int64_t> steps;  ///< ascending; at most 4 a column
  std::vector<double> values;  ///< finite
  /// Values that are not finite, which a line cannot show: at least one step of each kind in each column.
  std::vector<int64_t> nonfinite_steps;
  std::vector<double> nonfinite_values;
  size_t points = 0;  ///< of the whole series
};

/// \param steps  ascending, as long as `values`
Envelope EnvelopeOf(std::span<const int64_t> steps, std::span<const double> values, size_t columns);

}  // namespace tdbg::query
