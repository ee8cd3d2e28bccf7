#include "tdbg/summary.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace tdbg {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

Summary Of(const std::vector<double>& x) {
  Summarizer summarizer;
  Summary s;
  const std::vector<int64_t> shape = {static_cast<int64_t>(x.size())};
  EXPECT_TRUE(summarizer.Summarize({x.data(), DType::kFloat64, shape, {}}, &s, nullptr).ok());
  return s;
}

TEST(MergeTest, AnEmptySideChangesOnlyTheCounts) {
  const Summary s = Of({1, 2, 4});
  const Summary nothing = Of({});
  const Summary nan = Of({std::nan(""), kInf});
  EXPECT_EQ(Merge(s, nothing).mean, s.mean);
  EXPECT_EQ(Merge(nothing, s).m4, s.m4);
  const Summary with = Merge(nan, s);
  EXPECT_EQ(with.count, 5u);
  EXPECT_EQ(with.nan_count, 1u);
  EXPECT_EQ(with.pos_inf_count, 1u);
  EXPECT_EQ(with.variance, s.variance);
  EXPECT_TRUE(std::isnan(Merge(nan, nothing).mean));
}

TEST(MergeTest, ConstantPartsStayExactlyConstant) {
  const Summary merged = Merge(Of(std::vector<double>(7, 0.1)), Of(std::vector<double>(11, 0.1)));
  EXPECT_EQ(merged.mean, 0.1);
  EXPECT_EQ(merged.variance, 0.0);
}

TEST(MergeTest, NormsOfHugeValuesDoNotOverflow) {
  const Summary merged = Merge(Of({1e200, -1e200}), Of({1e200, 1e200}));
  EXPECT_NEAR(merged.l2, 2e200, 1e188);
}

TEST(NumpyTest, NonFiniteElementsAreReadBackIn) {
  const Summary finite = Of({-3, 1});
  EXPECT_EQ(NumpyMean(finite), -1);
  EXPECT_EQ(NumpyMeanAbs(finite), 2);
  EXPECT_EQ(NumpyVariance(finite), 4);
  EXPECT_EQ(NumpyMin(finite), -3);
  EXPECT_EQ(NumpyL1(finite), 4);

  const Summary nan = Of({1, std::nan("")});
  for (const double v : {NumpyMean(nan), NumpyMeanAbs(nan), NumpyMin(nan), NumpyMax(nan), NumpyVariance(nan),
                         NumpyL1(nan), NumpyL2(nan)}) {
    EXPECT_TRUE(std::isnan(v));
  }

  const Summary up = Of({1, kInf});
  EXPECT_EQ(NumpyMean(up), kInf);
  EXPECT_EQ(NumpyMin(up), 1);
  EXPECT_EQ(NumpyMax(up), kInf);
  EXPECT_TRUE(std::isnan(NumpyVariance(up)));
  EXPECT_EQ(NumpyL2(up), kInf);

  const Summary both = Of({-kInf, kInf});
  EXPECT_TRUE(std::isnan(NumpyMean(both)));
  EXPECT_EQ(NumpyMin(both), -kInf);
  EXPECT_EQ(NumpyMeanAbs(both), kInf);

  EXPECT_EQ(NumpyMin(Of({kInf})), kInf);
  EXPECT_EQ(NumpyMax(Of({-kInf})), -kInf);
  EXPECT_TRUE(std::isnan(NumpyMean(Of({}))));
  EXPECT_EQ(NumpyL2(Of({})), 0);
}

TEST(BucketTest, BoundsHoldTheirValuesOverTheWholeRange) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 200000; ++i) {
    const double x = std::bit_cast<double>(i % 3 == 0 ? random() & 0x800fffffffffffffu : random());
    if (!std::isfinite(x) || x == 0) continue;
    const int16_t b = BucketOf(x);
    if (x > 0) {
      ASSERT_LE(BucketLower(b), x);
      ASSERT_GT(BucketUpper(b), x);
    } else {
      ASSERT_LT(BucketLower(b), x);
      ASSERT_GE(BucketUpper(b), x);
    }
    if (std::abs(x) > 1e-300) {
      ASSERT_LE(std::abs(BucketValue(b) - x), kHistogramRelativeError * std::abs(x) * 1.0000001);
    }
    ASSERT_EQ(BucketOf(-x), -b);
  }
}

TEST(BucketTest, AscendingValuesHaveAscendingBuckets) {
  const double edges[] = {-1e308,   -2, -1.75, -1,  -1e-310, 5e-324, 1e-310,
                          2.3e-308, 1,  1.25,  1.5, 1.75,    2,      1.7e308};
  for (size_t i = 1; i < std::size(edges); ++i) EXPECT_LT(BucketOf(edges[i - 1]), BucketOf(edges[i])) << i;
  EXPECT_EQ(BucketOf(1.0), kBucketBias);
  EXPECT_EQ(BucketOf(5e-324), 5);
  EXPECT_EQ(BucketOf(std::numeric_limits<double>::max()), 8396);
}

TEST(QuantileTest, IsWithinTheStatedErrorOfTheTrueOne) {
  std::mt19937_64 random(2);
  std::normal_distribution<double> normal(0.3, 1);
  std::vector<double> x(10001);
  for (double& v : x) v = std::max(normal(random), -0.5);
  for (size_t i = 0; i < 500; ++i) x[i] = 0;
  Summarizer summarizer;
  Summary s;
  Histogram h;
  const std::vector<int64_t> shape = {10001};
  ASSERT_TRUE(summarizer.Summarize({x.data(), DType::kFloat64, shape, {}}, &s, &h).ok());
  std::sort(x.begin(), x.end());
  for (double q = 0.001; q < 1; q += 0.007) {
    const double truth = x[static_cast<size_t>(std::ceil(q * 10001)) - 1];
    EXPECT_NEAR(Quantile(s, h, q), truth, kHistogramRelativeError * std::abs(truth) + 1e-12) << q;
  }
  EXPECT_EQ(Quantile(s, h, 0), s.min);
  EXPECT_EQ(Quantile(s, h, 1), s.max);
  EXPECT_TRUE(std::isnan(Quantile(s, h, std::nan(""))));
  EXPECT_TRUE(std::isnan(Quantile(Summary(), {}, 0.5)));
}

TEST(HistogramCodecTest, RoundTripsAndAppends) {
  const Histogram histograms[] = {
      {},
      {{4301, 1}},
      {{-8396, 1}, {-5, 2}, {5, 3}, {8396, uint64_t{1} << 60}},
      {{4200, 5}, {4201, 127}, {4202, 128}, {4203, 16384}},
  };
  for (const Histogram& h : histograms) {
    std::vector<uint8_t> bytes = {42};
    EncodeHistogram(h, &bytes);
    EXPECT_EQ(bytes[0], 42);
    EXPECT_LE(bytes.size(), 1 + 10 + 13 * h.size());
    const Result<Histogram> back = DecodeHistogram(std::span(bytes).subspan(1));
    ASSERT_TRUE(back.ok()) << back.status().ToString();
    EXPECT_EQ(*back, h);
    for (size_t cut = 1; cut < bytes.size(); ++cut) {
      EXPECT_EQ(DecodeHistogram(std::span(bytes).subspan(1, cut - 1)).status().code(), Code::kDataLoss)
          << cut;
    }
  }
}

// The bytes of the documented form, by hand: 2 buckets, +4301 seen 3 times, then +4302 300 times.
TEST(HistogramCodecTest, BytesAreTheDocumentedOnes) {
  std::vector<uint8_t> bytes;
  EncodeHistogram(Histogram{{4301, 3}, {4302, 300}}, &bytes);
  EXPECT_EQ(bytes, (std::vector<uint8_t>{2, 0x9a, 0x43, 3, 2, 0xac, 0x02}));
}

TEST(HistogramCodecTest, WhatWasNotEncodedHereIsRefused) {
  const std::vector<uint8_t> bad[] = {
      {},
      {1},
      {1, 0x9a, 0x43},              // no count
      {1, 0x9a, 0x43, 0},           // empty bucket
      {1, 0x9a, 0x43, 0x83, 0x00},  // a longer form of 3
      {1, 0x9a, 0x43, 3, 0},        // a byte left over
      {2, 0x9a, 0x43, 3, 0, 3},     // the same bucket twice
      {2, 0x9a, 0x43, 3, 1, 3},     // descending
      {1, 0, 3},                    // bucket 0
      {1, 8, 3},                    // bucket 4: below every double
      {1, 0x9a, 0x83, 0x01, 3},     // bucket 8397
      {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 1, 1},
      {1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 1},
      {1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 1},
      {2, 0x9a, 0x43, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 2, 1},  // counts overflow
  };
  for (size_t i = 0; i < std::size(bad); ++i) {
    EXPECT_EQ(DecodeHistogram(bad[i]).status().code(), Code::kDataLoss) << i;
  }
}

TEST(HistogramCodecTest, RandomBytesNeverCrashAndWhatIsAcceptedIsCanonical) {
  std::mt19937 random(3);
  for (int i = 0; i < 200000; ++i) {
    std::vector<uint8_t> bytes(random() % 24);
    for (uint8_t& b : bytes) b = static_cast<uint8_t>(random() % (i % 2 == 0 ? 256 : 8));
    if (bytes.size() > 2 && i % 3 == 0) {
      bytes[0] = static_cast<uint8_t>((bytes.size() - 1) / 3);
      bytes[1] = 0x9a;
      bytes[2] = 0x43;
    }
    const Result<Histogram> h = DecodeHistogram(bytes);
    if (!h.ok()) continue;
    std::vector<uint8_t> again;
    EncodeHistogram(*h, &again);
    ASSERT_EQ(again, bytes);
  }
}

}  // namespace
}  // namespace tdbg
