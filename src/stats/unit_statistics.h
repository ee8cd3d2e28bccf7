// Statistics per unit, channel or value of one tensor, in one pass over host memory.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "tdbg/statistic.h"
#include "tdbg/status.h"
#include "tdbg/tensor.h"

namespace tdbg::stats {

/// Computes entries of the catalogue of derived statistics (tdbg/statistic.h).
///
/// Any dtype with statistics, any strides (a view is read in the order of its memory; an axis of stride 0
/// counts as often as it is long). Comparisons are those of the elements' exact values with the double;
/// 64-bit integers are rounded to double first. An empty tensor has entries of 0 over 0 elements. Owns 80 KiB
/// of scratch: make one per thread and keep it.
class UnitStatistics {
 public:
  UnitStatistics();
  ~UnitStatistics();
  UnitStatistics(UnitStatistics&&) noexcept;
  UnitStatistics& operator=(UnitStatistics&&) noexcept;

  /// \param unit_axis  the adaptor's; what the statistic makes of it: Statistic::AxisOf
  /// \error kUnimplemented       no statistics for this dtype
  /// \error kFailedPrecondition  the statistic needs an axis that the tensor lacks
  Status Compute(const Statistic& statistic, const TensorView& x, int unit_axis, StatisticValue* out);

 private:
  struct Scratch;
  std::unique_ptr<Scratch> scratch_;
};

}  // namespace tdbg::stats
