// One tensor boiled down to counts, moments, norms and a signed log-scale histogram.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "tdbg/status.h"
#include "tdbg/tensor.h"

namespace tdbg {

/// Statistics of one tensor (or of several merged ones).
///
/// Counts cover every element; everything else covers the finite elements only. Where a tensor has
/// no finite element the doubles are NaN (l1, l2 and the moments included), so that "nothing was there" is
/// not read as 0. NumPy's answer ("NaN if any is NaN") is derived on reading, see `NumpyMean` and friends.
struct Summary {
  uint64_t count = 0;  ///< all elements: the product of the shape
  uint64_t nan_count = 0;
  uint64_t pos_inf_count = 0;
  uint64_t neg_inf_count = 0;
  uint64_t zero_count = 0;  ///< +0 and -0
  double min = kNaN;
  double max = kNaN;
  double mean = kNaN;
  double variance = kNaN;  ///< second central moment, divides by n (NumPy's ddof=0)
  double m3 = kNaN;        ///< third central moment, divides by n; needed to merge m4
  double m4 = kNaN;        ///< fourth central moment, divides by n; kurtosis = m4 / variance^2
  double l1 = kNaN;        ///< sum of |x|
  double l2 = kNaN;        ///< sqrt(sum of x^2), element-wise (not a matrix norm)
  double abs_min = kNaN;
  double abs_max = kNaN;

  uint64_t finite_count() const { return count - nan_count - pos_inf_count - neg_inf_count; }
  double mean_abs() const { return finite_count() ? l1 / static_cast<double>(finite_count()) : kNaN; }

  static constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
};

/// The summary of the two element sets together. Exact for counts and extrema; moments by the
/// pairwise formulas of Chan, Golub, LeVeque (1979), extended to m3 and m4 by Pebay (2008).
Summary Merge(const Summary& a, const Summary& b);

/// What NumPy would answer for the whole array, non-finite elements included.
double NumpyMean(const Summary& s);
double NumpyMeanAbs(const Summary& s);
double NumpyMin(const Summary& s);
double NumpyMax(const Summary& s);
double NumpyVariance(const Summary& s);
double NumpyL1(const Summary& s);
double NumpyL2(const Summary& s);

/// One bucket of the signed log histogram.
///
/// |x| in [2^e * (1 + m/4), 2^e * (1 + (m+1)/4)), m = 0..3, has k = 4*e + m. `bucket` is
/// +(k + kBucketBias) for x > 0 and -(k + kBucketBias) for x < 0, so ascending buckets are
/// ascending values. Zeros are not here: Summary::zero_count has them.
/// Answering with the bucket's harmonic midpoint 2ab/(a+b) is off by at most 1/9 = 11.2 % of |x|.
struct HistogramBucket {
  int16_t bucket = 0;
  uint64_t count = 0;
  friend bool operator==(const HistogramBucket&, const HistogramBucket&) = default;
};
inline constexpr int kBucketBias =
    4301;  ///< makes every k of a double (>= -4296) positive; stored, never change
inline constexpr double kHistogramRelativeError = 1.0 / 9.0;

/// Ascending by bucket, counts > 0.
using Histogram = std::vector<HistogramBucket>;

/// Bucket of a finite, non-zero value.
int16_t BucketOf(double x);
/// Bounds of a bucket in ascending order: lower <= x < upper for positive, lower < x <= upper for negative.
double BucketLower(int16_t bucket);
double BucketUpper(int16_t bucket);
/// The value that stands for a bucket (see HistogramBucket).
double BucketValue(int16_t bucket);
Histogram MergeHistograms(std::span<const HistogramBucket> a, std::span<const HistogramBucket> b);
/// The value below which a share `q` in [0, 1] of the finite elements lies; NaN if there are none.
double Quantile(const Summary& s, std::span<const HistogramBucket> h, double q);

/// Stored form, at most 13 bytes a bucket, usually 2-3: LEB128 bucket count, then per bucket ascending:
/// zigzag LEB128 of the difference to the previous bucket (the first: to 0), LEB128 of the count.
void EncodeHistogram(std::span<const HistogramBucket> h, std::vector<uint8_t>* append_to);
/// \error kDataLoss  not produced by EncodeHistogram.
Result<Histogram> DecodeHistogram(std::span<const uint8_t> bytes);

/// Computes summaries. Owns its scratch memory (about 350 KiB), so keep one per thread.
///
/// \threadsafety One object, one thread. Borrows the tensor for the call. Allocates only while the
/// histogram's vector grows; reuse it.
class Summarizer {
 public:
  Summarizer();
  ~Summarizer();
  Summarizer(Summarizer&&) noexcept;
  Summarizer& operator=(Summarizer&&) noexcept;

  /// One pass over `x`. With `histogram` non-null it is replaced by the exact histogram of all
  /// finite non-zero elements.
  /// \error kUnimplemented  the dtype has no statistics (HasStatistics).
  /// Accuracy: integers of 64 bits are taken as doubles; sums are in float32 for at
  /// most 2,048 elements at a time and in float64 beyond; docs/statistics.md has the bounds.
  Status Summarize(const TensorView& x, Summary* summary, Histogram* histogram);

 private:
  struct Scratch;
  std::unique_ptr<Scratch> scratch_;
};

}  // namespace tdbg
