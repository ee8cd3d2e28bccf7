#include "ship/tensorboard_histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace tdbg::ship {
namespace {

tfevents::HistogramProto Of(const std::vector<double>& values, Summary* summary) {
  const int64_t shape[] = {static_cast<int64_t>(values.size())};
  Summarizer summarizer;
  Histogram buckets;
  EXPECT_TRUE(summarizer.Summarize({values.data(), DType::kFloat64, shape, {}}, summary, &buckets).ok());
  return MakeTensorBoardHistogram(*summary, buckets);
}

// At each limit as many elements lie at or below it as the buckets up to it hold, but for elements that lie
// exactly on a positive limit: ours belong to the bucket above, TensorBoard's to the one below.
void ExpectCountsAgree(const tfevents::HistogramProto& h, std::vector<double> values) {
  std::erase_if(values, [](double x) { return !std::isfinite(x); });
  ASSERT_TRUE(std::is_sorted(h.limits.begin(), h.limits.end()));
  ASSERT_EQ(h.limits.size(), h.counts.size());
  double below = 0;
  for (size_t i = 0; i < h.limits.size(); ++i) {
    below += h.counts[i];
    const auto strictly =
        std::count_if(values.begin(), values.end(), [&](double x) { return x < h.limits[i]; });
    const auto at_most =
        std::count_if(values.begin(), values.end(), [&](double x) { return x <= h.limits[i]; });
    EXPECT_GE(below, static_cast<double>(strictly)) << "limit " << h.limits[i];
    EXPECT_LE(below, static_cast<double>(at_most)) << "limit " << h.limits[i];
  }
  EXPECT_EQ(below, static_cast<double>(values.size()));
}

TEST(TensorBoardHistogram, CountsWhatLiesBetweenItsLimits) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  for (const double zeros : {0.0, 0.3, 1.0}) {
    for (const double scale : {1e-30, 1.0, 1e30}) {
      std::vector<double> values(2000);
      for (double& x : values) x = std::bernoulli_distribution(zeros)(random) ? 0 : normal(random) * scale;
      values[0] = -scale;  // exactly on limits
      values[1] = scale * 2;
      values[2] = std::numeric_limits<double>::quiet_NaN();
      values[3] = -std::numeric_limits<double>::infinity();
      Summary summary;
      const auto histogram = Of(values, &summary);
      ExpectCountsAgree(histogram, values);
      EXPECT_EQ(histogram.num, 1998);
      EXPECT_EQ(histogram.min, summary.min);
      EXPECT_EQ(histogram.max, summary.max);
      double squares = 0;
      for (const double x : values) squares += std::isfinite(x) ? x * x : 0;
      EXPECT_NEAR(histogram.sum_squares, squares, 1e-9 * squares);
    }
  }
}

TEST(TensorBoardHistogram, ZerosHaveANarrowBucketOfTheirOwn) {
  Summary summary;
  // A rectifier's output: nothing between 0 and 0.75.
  const auto histogram = Of({0, 0, 0, 0.75, 3}, &summary);
  const auto zeros = std::upper_bound(histogram.limits.begin(), histogram.limits.end(), 0.0);
  ASSERT_NE(zeros, histogram.limits.end());
  EXPECT_EQ(histogram.counts[static_cast<size_t>(zeros - histogram.limits.begin())], 3);
  EXPECT_LE(*zeros, 3.0 / 1024);
}

TEST(TensorBoardHistogram, HoldsZerosOnlyAndSubnormals) {
  Summary summary;
  EXPECT_EQ(Of(std::vector<double>(300, 0.0), &summary).counts, std::vector<double>{300});
  const double tiny = std::numeric_limits<double>::denorm_min();
  ExpectCountsAgree(Of({-tiny, 0, 0, tiny, 2 * tiny}, &summary), {-tiny, 0, 0, tiny, 2 * tiny});
}

}  // namespace
}  // namespace tdbg::ship
