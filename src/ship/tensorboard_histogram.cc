#include "ship/tensorboard_histogram.h"

#include <algorithm>
#include <cmath>

namespace tdbg::ship {
namespace {

// Appends (lower, upper], with an empty bucket in front where the previous one ended earlier.
void Append(double lower, double upper, double count, tfevents::HistogramProto* out) {
  if (!out->limits.empty() && out->limits.back() < lower) {
    out->limits.push_back(lower);
    out->counts.push_back(0);
  }
  out->limits.push_back(upper);
  out->counts.push_back(count);
}

// Half the distance to the nearest element that is not zero, so that the zeros' bucket cannot touch its
// bucket, and small against the largest, so that zeros are seen to be zeros.
double ZeroHalfWidth(const Summary& summary, std::span<const HistogramBucket> buckets) {
  double nearest = summary.abs_max;
  for (const HistogramBucket& bucket : buckets) {
    const double edge = bucket.bucket > 0 ? BucketLower(bucket.bucket) : -BucketUpper(bucket.bucket);
    nearest = std::min(nearest, edge);
  }
  return std::min(nearest / 2, summary.abs_max / 2048);
}

}  // namespace

tfevents::HistogramProto MakeTensorBoardHistogram(const Summary& summary,
                                                  std::span<const HistogramBucket> buckets) {
  tfevents::HistogramProto out;
  out.min = summary.min;
  out.max = summary.max;
  out.num = static_cast<double>(summary.finite_count());
  out.sum = summary.mean * out.num;
  out.sum_squares = summary.l2 * summary.l2;
  out.limits.reserve(2 * buckets.size() + 2);
  out.counts.reserve(2 * buckets.size() + 2);

  const double zero = ZeroHalfWidth(summary, buckets);
  bool zeros_are_in = summary.zero_count == 0;
  const auto append_zeros = [&] {
    if (zeros_are_in) return;
    Append(-zero, zero, static_cast<double>(summary.zero_count), &out);
    zeros_are_in = true;
  };
  for (const HistogramBucket& bucket : buckets) {
    if (bucket.bucket > 0) append_zeros();
    Append(BucketLower(bucket.bucket), BucketUpper(bucket.bucket), static_cast<double>(bucket.count), &out);
  }
  append_zeros();
  return out;
}

}  // namespace tdbg::ship
