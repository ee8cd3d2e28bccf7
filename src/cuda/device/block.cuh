// Sums and extrema over a block, in an order that nothing but the thread's number decides.
#pragma once

#include "cuda/device/elements.cuh"

namespace tdbg::cuda {
namespace device {

TDBG_DEVICE double WarpSum(double x) {
  TDBG_UNROLL
  for (int o = 16; o > 0; o >>= 1) x += TDBG_SHUFFLE_XOR(x, o);
  return x;
}
TDBG_DEVICE uint32_t WarpSum(uint32_t x) {
  TDBG_UNROLL
  for (int o = 16; o > 0; o >>= 1) x += TDBG_SHUFFLE_XOR(x, o);
  return x;
}
TDBG_DEVICE double WarpMin(double x) {
  TDBG_UNROLL
  for (int o = 16; o > 0; o >>= 1) x = fmin(x, TDBG_SHUFFLE_XOR(x, o));
  return x;
}
TDBG_DEVICE float WarpMin(float x) {
  TDBG_UNROLL
  for (int o = 16; o > 0; o >>= 1) x = fminf(x, TDBG_SHUFFLE_XOR(x, o));
  return x;
}
TDBG_DEVICE uint32_t WarpMin(uint32_t x) {
  TDBG_UNROLL
  for (int o = 16; o > 0; o >>= 1) {
    const uint32_t y = TDBG_SHUFFLE_XOR(x, o);
    x = y < x ? y : x;
  }
  return x;
}

TDBG_DEVICE float WarpMax(float x) {
  TDBG_UNROLL
  for (int o = 16; o > 0; o >>= 1) x = fmaxf(x, TDBG_SHUFFLE_XOR(x, o));
  return x;
}

/// Power sums of a chunk's finite elements about a pivot.
struct PowerSums {
  double s1, s2, s3, s4, l1;
};

/// Central sums of n numbers (stats/moments.h). n is a double because every use divides by it.
struct Moments {
  double n, mean, m2, m3, m4, l1;
};

TDBG_DEVICE Moments MomentsAbout(double pivot, double n, const PowerSums& s) {
  Moments r = {n, 0, 0, 0, 0, s.l1};
  if (n == 0) return r;
  const double d = s.s1 / n, d2 = d * d;
  r.mean = pivot + d;
  r.m2 = s.s2 - s.s1 * d;
  r.m3 = s.s3 - 3 * d * s.s2 + 2 * n * d2 * d;
  r.m4 = s.s4 - 4 * d * s.s3 + 6 * d2 * s.s2 - 3 * n * d2 * d2;
  if (r.m2 < 0) r.m2 = 0;
  if (r.m4 < 0) r.m4 = 0;
  return r;
}

/// Chan, Golub, LeVeque (1979) for m2; Pebay (SAND2008-6212), equations 2.4 and 2.5, for m3 and m4.
TDBG_SHARED_CODE Moments Merge(const Moments& a, const Moments& b) {
  if (a.n == 0) return b;
  if (b.n == 0) return a;
  Moments r;
  r.n = a.n + b.n;
  r.l1 = a.l1 + b.l1;
  const double delta = b.mean - a.mean;
  // Sets of one constant value stay exactly constant, and 0 * inf of an overflown m2 makes no NaN of it.
  if (delta == 0) {
    r.mean = a.mean;
    r.m2 = a.m2 + b.m2;
    r.m3 = a.m3 + b.m3;
    r.m4 = a.m4 + b.m4;
    return r;
  }
  const double share = b.n / r.n, other = a.n / r.n, d2 = delta * delta, cross = a.n * share;
  r.mean = a.mean + delta * share;
  r.m2 = a.m2 + b.m2 + d2 * cross;
  r.m3 = a.m3 + b.m3 + d2 * delta * cross * (other - share) + 3 * delta * (other * b.m2 - share * a.m2);
  r.m4 = a.m4 + b.m4 + d2 * d2 * cross * (other * other - other * share + share * share) +
         6 * d2 * (other * other * b.m2 + share * share * a.m2) + 4 * delta * (other * b.m3 - share * a.m3);
  return r;
}

/// A sum of squares about a pivot has lost log2(limit) bits of what is about the mean.
TDBG_DEVICE bool PivotIsFar(double s1, double s2, double n, double limit) {
  const double off = s1 * s1 / n, central = s2 - off;
  return off > limit * (central > 0 ? central : 0);
}

/// The exponent of a unit in which fourth powers of numbers up to `largest`, and sums of them, stay within a double: 0
/// wherever they do so as they are.
TDBG_DEVICE int UnitFor(double largest) {
  const int e = largest > 0 ? ExponentOf(largest) : 0;
  return e > 240 || e < -240 ? (e > 1000 ? 1000 : e < -1000 ? -1000 : e) : 0;
}

TDBG_DEVICE double Clamp(double x, double low, double high) { return x < low ? low : x > high ? high : x; }

/// A block's place for what its warps found, and for what its first thread decided from it.
struct Scratch {
  double sums[kWarps][5];
  double extremes[kWarps][3];
  uint32_t counts[kWarps][4];
  double pivot;
  int32_t exponent;
  uint32_t again;
  uint32_t last;  ///< of its group's chunks, to come
};

}  // namespace device
}  // namespace tdbg::cuda
