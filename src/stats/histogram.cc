// The histogram's buckets: where a value belongs, what a bucket stands for, and quantiles.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "stats/buckets.h"
#include "tdbg/summary.h"

namespace tdbg {
namespace {

int KOf(int16_t bucket) { return std::abs(static_cast<int>(bucket)) - kBucketBias; }

// 2^e * (1 + m/4) for k = 4e + m. Beyond the largest double this is infinity, below the smallest
// subnormal it rounds to a neighbour: bounds of buckets no double can fall between.
double EdgeOf(int k) { return std::ldexp(1.0 + 0.25 * (k & 3), k >> 2); }

}  // namespace

int16_t BucketOf(double x) {
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  const int k = stats::KOfMagnitude(bits & ~(uint64_t{1} << 63));
  const int bucket = k + kBucketBias;
  return static_cast<int16_t>((bits >> 63) != 0 ? -bucket : bucket);
}

double BucketLower(int16_t bucket) {
  if (bucket == 0) return 0;
  return bucket > 0 ? EdgeOf(KOf(bucket)) : -EdgeOf(KOf(bucket) + 1);
}

double BucketUpper(int16_t bucket) {
  if (bucket == 0) return 0;
  return bucket > 0 ? EdgeOf(KOf(bucket) + 1) : -EdgeOf(KOf(bucket));
}

double BucketValue(int16_t bucket) {
  if (bucket == 0) return 0;
  const int k = KOf(bucket);
  const double a = 1.0 + 0.25 * (k & 3);
  const double b = a + 0.25;
  // Scaled last: the topmost bucket's upper edge is infinite as a double, its midpoint is not.
  const double value = std::ldexp(2 * a * b / (a + b), k >> 2);
  return bucket > 0 ? value : -value;
}

Histogram MergeHistograms(std::span<const HistogramBucket> a, std::span<const HistogramBucket> b) {
  Histogram r;
  r.reserve(a.size() + b.size());
  size_t i = 0;
  size_t j = 0;
  while (i < a.size() && j < b.size()) {
    if (a[i].bucket < b[j].bucket) {
      r.push_back(a[i++]);
    } else if (b[j].bucket < a[i].bucket) {
      r.push_back(b[j++]);
    } else {
      r.push_back({a[i].bucket, a[i].count + b[j].count});
      ++i;
      ++j;
    }
  }
  r.insert(r.end(), a.begin() + static_cast<std::ptrdiff_t>(i), a.end());
  r.insert(r.end(), b.begin() + static_cast<std::ptrdiff_t>(j), b.end());
  return r;
}

double Quantile(const Summary& s, std::span<const HistogramBucket> h, double q) {
  // The total is counted from `h` itself: a histogram that was damaged or belongs elsewhere then
  // still gives an answer inside [min, max] instead of running off its end.
  uint64_t total = s.zero_count;
  for (const HistogramBucket& b : h) total += b.count;
  if (total == 0 || s.finite_count() == 0 || std::isnan(q)) return Summary::kNaN;
  if (q <= 0) return s.min;
  if (q >= 1) return s.max;
  const double rank = q * static_cast<double>(total);
  double below = 0;
  bool zeros_passed = false;
  double value = s.max;
  for (const HistogramBucket& b : h) {
    if (b.bucket > 0 && !zeros_passed) {
      zeros_passed = true;
      below += static_cast<double>(s.zero_count);
      if (s.zero_count != 0 && below >= rank) return 0;
    }
    below += static_cast<double>(b.count);
    if (below >= rank) {
      value = BucketValue(b.bucket);
      return std::clamp(value, s.min, s.max);
    }
  }
  if (!zeros_passed && s.zero_count != 0) return 0;
  return value;
}

}  // namespace tdbg
