// The vector kernels behind per-unit statistics. One copy per instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tdbg::stats {

/// Memory in C order as [outer, units, inner]: a tensor whose axes before and after the unit's are merged.
struct UnitBlock {
  size_t outer = 1;
  size_t units = 1;
  size_t inner = 1;
};

/// Scratch of one call: accumulators for a stretch of columns, where units are narrow.
inline constexpr size_t kUnitColumns = 4096;

/// out[u] += number of x of unit u with above < x && x <= at_most. NaN is in no range.
/// `columns` has kUnitColumns elements; its contents mean nothing before and after.
void CountBetween(const float* x, UnitBlock block, float above, float at_most, int64_t* columns,
                  int64_t* out);
void CountBetween(const double* x, UnitBlock block, double above, double at_most, int64_t* columns,
                  int64_t* out);
/// out[u] += sum of unit u's elements, in double; non-finite ones as IEEE 754 adds them.
void SumUnits(const float* x, UnitBlock block, double* columns, double* out);
void SumUnits(const double* x, UnitBlock block, double* columns, double* out);

}  // namespace tdbg::stats
