// Central moments of a set of numbers, and how to merge those of two sets.
#pragma once

namespace tdbg::stats {

/// Sums, not averages: power2 = sum (x - mean)^2 and so on. n is a double because every use divides by it.
struct Moments {
  double n = 0;
  double mean = 0;
  double power2 = 0;
  double power3 = 0;
  double power4 = 0;
};

/// Chan, Golub, LeVeque (1979) for power2; Pebay (SAND2008-6212), equations 2.4 and 2.5, for power3 and
/// power4.
inline Moments MergeMoments(const Moments& a, const Moments& b) {
  if (a.n == 0) return b;
  if (b.n == 0) return a;
  Moments r;
  r.n = a.n + b.n;
  const double delta = b.mean - a.mean;
  // Sets of one constant value must stay exactly constant: with delta == 0 nothing below may add a
  // rounding, and 0 * inf of an overflown power2 may not make a NaN of it.
  if (delta == 0) {
    r.mean = a.mean;
    r.power2 = a.power2 + b.power2;
    r.power3 = a.power3 + b.power3;
    r.power4 = a.power4 + b.power4;
    return r;
  }
  const double share = b.n / r.n;
  const double other = a.n / r.n;
  const double d2 = delta * delta;
  const double cross = a.n * share;
  r.mean = a.mean + delta * share;
  r.power2 = a.power2 + b.power2 + d2 * cross;
  r.power3 = a.power3 + b.power3 + d2 * delta * cross * (other - share) +
             3 * delta * (other * b.power2 - share * a.power2);
  r.power4 = a.power4 + b.power4 + d2 * d2 * cross * (other * other - other * share + share * share) +
             6 * d2 * (other * other * b.power2 + share * share * a.power2) +
             4 * delta * (other * b.power3 - share * a.power3);
  return r;
}

/// From power sums s_k = sum (x - pivot)^k of n numbers.
inline Moments MomentsAbout(double pivot, double n, double s1, double s2, double s3, double s4) {
  Moments r;
  if (n == 0) return r;
  const double delta = s1 / n;
  const double d2 = delta * delta;
  r.n = n;
  r.mean = pivot + delta;
  r.power2 = s2 - s1 * delta;
  r.power3 = s3 - 3 * delta * s2 + 2 * n * d2 * delta;
  r.power4 = s4 - 4 * delta * s3 + 6 * d2 * s2 - 3 * n * d2 * d2;
  // Where the spread is far below the distance to the pivot, what is left may be a rounding error
  // of either sign; a negative sum of squares would become a NaN in the first square root.
  if (r.power2 < 0) r.power2 = 0;
  if (r.power4 < 0) r.power4 = 0;
  return r;
}

}  // namespace tdbg::stats
