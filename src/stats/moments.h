// Central moments of a set of numbers, and how to merge those of two sets.
#pragma once

namespace tdbg::stats {

/// Sums, as Pebay has them: m2 = sum (x - mean)^2 and so on; Summary's variance, m3, m4 are these by n. n is
/// a double because every use divides by it.
struct Moments {
  double n = 0;
  double mean = 0;
  double m2 = 0;
  double m3 = 0;
  double m4 = 0;
};

/// Chan, Golub, LeVeque (1979) for m2; Pebay (SAND2008-6212), equations 2.4 and 2.5, for m3 and m4.
inline Moments MergeMoments(const Moments& a, const Moments& b) {
  if (a.n == 0) return b;
  if (b.n == 0) return a;
  Moments r;
  r.n = a.n + b.n;
  const double delta = b.mean - a.mean;
  // Sets of one constant value must stay exactly constant: with delta == 0 nothing below may add a
  // rounding, and 0 * inf of an overflown m2 may not make a NaN of it.
  if (delta == 0) {
    r.mean = a.mean;
    r.m2 = a.m2 + b.m2;
    r.m3 = a.m3 + b.m3;
    r.m4 = a.m4 + b.m4;
    return r;
  }
  const double share = b.n / r.n;
  const double other = a.n / r.n;
  const double d2 = delta * delta;
  const double cross = a.n * share;
  r.mean = a.mean + delta * share;
  r.m2 = a.m2 + b.m2 + d2 * cross;
  r.m3 = a.m3 + b.m3 + d2 * delta * cross * (other - share) + 3 * delta * (other * b.m2 - share * a.m2);
  r.m4 = a.m4 + b.m4 + d2 * d2 * cross * (other * other - other * share + share * share) +
         6 * d2 * (other * other * b.m2 + share * share * a.m2) + 4 * delta * (other * b.m3 - share * a.m3);
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
  r.m2 = s2 - s1 * delta;
  r.m3 = s3 - 3 * delta * s2 + 2 * n * d2 * delta;
  r.m4 = s4 - 4 * delta * s3 + 6 * d2 * s2 - 3 * n * d2 * d2;
  // Where the spread is far below the distance to the pivot, what is left may be a rounding error
  // of either sign; a negative sum of squares would become a NaN in the first square root.
  if (r.m2 < 0) r.m2 = 0;
  if (r.m4 < 0) r.m4 = 0;
  return r;
}

}  // namespace tdbg::stats
