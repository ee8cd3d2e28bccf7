// Arithmetic of histogram buckets, shared by the definition (histogram.cc) and the fast paths.
#pragma once

#include <bit>
#include <cstdint>

#include "tdbg/summary.h"

namespace tdbg::stats {

/// k = 4e + m of a finite, non-zero double whose sign bit is cleared.
inline int KOfMagnitude(uint64_t bits) {
  const int field = static_cast<int>(bits >> 50);
  if (field >= 4) return field - 4 * 1023;
  // Subnormal: the value is bits * 2^-1074, so its leading bit is its exponent. The two bits after
  // it are the quarter; a value of one or two bits has zeros there.
  const int lead = 63 - std::countl_zero(bits);
  const auto quarter = static_cast<int>(lead >= 2 ? bits >> (lead - 2) : bits << (2 - lead)) & 3;
  return 4 * (lead - 1074) + quarter;
}

inline constexpr int kSmallestK = 4 * -1074;
inline constexpr int kLargestK = 4 * 1023 + 3;
static_assert(kSmallestK + kBucketBias == 5);
static_assert(kLargestK + kBucketBias == 8396);

}  // namespace tdbg::stats
