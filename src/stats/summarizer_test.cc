// Floats of every distribution, on every instruction set.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "stats/summarizer_testing.h"

namespace tdbg {
namespace {

TEST_F(SummarizerTest, NormalFloatsOfEverySize) {
  for (const size_t n : kSizes) Check(Normal(n, 0.1, 1), kFloatUnit, "normal");
}

TEST_F(SummarizerTest, LargeTensorsAreCountedByPairsAndStillExactly) {
  for (const size_t n : {65536u, 65537u, 200003u}) {
    Check(Normal(n, 0, 1), kFloatUnit, "centred");
    Check(Normal(n, 300, 1e-3), kFloatUnit, "far from zero");
    Check(Normal(n, 0, 1e-12), kFloatUnit, "small");
  }
}

TEST_F(SummarizerTest, ValuesOfAnyMagnitudeAreExactWhereExactnessIsPromised) {
  for (const size_t n : {5u, 100u, 3000u, 70000u, 300000u}) Check(AnyFinite(n), kFloatUnit, "any finite");
}

// As gradients are: one value in a hundred is too small for any window near the largest.
TEST_F(SummarizerTest, HeavyTailsBelowTheWindowAreCountedExactly) {
  for (const size_t n : {200u, 1000u, 2047u, 2048u, 4097u, 70001u, 300000u}) {
    std::vector<float> x = Normal(n, 0, 1);
    const std::vector<float> second = Normal(n, 0, 1e-3, 11), third = Normal(n, 0, 1, 12);
    for (size_t i = 0; i < n; ++i) x[i] = i % 5 == 0 ? 0.0f : x[i] * second[i] * third[i];
    Check(x, kFloatUnit, "products");
    for (size_t i = 7; i < n; i += 501) x[i] *= 1e6f;  // above it, too
    Check(x, kFloatUnit, "products with outliers");
  }
}

// A window that has become a wrong one is moved amid the tensor, whatever of its last block was inside it.
TEST_F(SummarizerTest, AWindowIsMovedWithAllThatItHolds) {
  for (const float few : {0x1p-20f, -0x1p-25f, 0x1p-90f}) {
    std::vector<float> x = Normal(14 * 16384 + 5, 0, 1e-3);
    for (float& v : x) v = 1 + std::fabs(v);
    for (size_t i = 10 * 16384; i < x.size(); ++i) x[i] *= i % 2 != 0 ? few : 0x1p-60f;
    for (size_t i = 12 * 16384; i < x.size(); i += 97) x[i] *= 0x1p-50f;  // below it, one in a hundred
    Check(x, kFloatUnit, "half of the last blocks 2^-60");
  }
}

TEST_F(SummarizerTest, NonFiniteValuesAreCountedAndLeftOut) {
  for (const size_t n : {3u, 64u, 3000u, 70000u, 200000u}) {
    for (const size_t every : {2u, 37u, 9973u}) {
      std::vector<float> x = Normal(n, 5, 2);
      const float odd[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                           -std::numeric_limits<float>::infinity(), 0.0f, -0.0f};
      for (size_t i = 0, k = 0; i < n; i += every, ++k) x[i] = odd[k % 5];
      Check(x, kFloatUnit, "one odd value in " + std::to_string(every));
    }
  }
}

TEST_F(SummarizerTest, AllNaNHasNoNumbers) {
  for (const size_t n : {1u, 64u, 5000u, 100000u}) {
    Check(std::vector<float>(n, std::numeric_limits<float>::quiet_NaN()), kFloatUnit, "all NaN");
    Check(std::vector<double>(n, kNaN), kDoubleUnit, "all NaN");
    Check(std::vector<double>(n, -kInf), kDoubleUnit, "all -inf");
  }
}

TEST_F(SummarizerTest, SubnormalsAreNeitherZeroNorLost) {
  for (const size_t n : {1u, 64u, 5000u, 100000u}) {
    std::mt19937 random(3);
    std::vector<float> x(n);
    for (float& v : x) v = std::bit_cast<float>(static_cast<uint32_t>(random() & 0x807fffffu));
    Check(x, kFloatUnit, "subnormal floats");
    for (float& v : x) v = (random() & 1) != 0 ? v : 1.0f;
    Check(x, kFloatUnit, "subnormals among ones");
    std::vector<double> y(n);
    for (double& v : y) v = std::bit_cast<double>((uint64_t{random()} << 20) ^ random());
    Summary s;
    Histogram h;
    const Expected want = Define(y);
    s = Of(y, &h);
    ExpectExactParts(s, want.s, "subnormal doubles");
    EXPECT_EQ(h, want.h);
    EXPECT_NEAR(s.l2, want.s.l2, 1e-10 * want.s.l2);
  }
}

#if defined(__SSE__)
TEST_F(SummarizerTest, TheCallersFlushToZeroModeChangesNothingAndSurvives) {
  std::vector<float> x = {0.0f, 1e-40f, -1e-41f, 1.0f};
  x.resize(3000, 1e-42f);
  const Summary plain = Of(x);
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040u);
  Histogram h;
  const Summary flushed = Of(x, &h);
  const unsigned during = _mm_getcsr();
  _mm_setcsr(before);
  EXPECT_EQ(during & 0x8040u, 0x8040u);
  EXPECT_EQ(flushed.zero_count, 1u);
  EXPECT_EQ(std::bit_cast<uint64_t>(flushed.abs_max), std::bit_cast<uint64_t>(plain.abs_max));
  EXPECT_EQ(std::bit_cast<uint64_t>(flushed.min), std::bit_cast<uint64_t>(plain.min));
  EXPECT_EQ(std::bit_cast<uint64_t>(flushed.l1), std::bit_cast<uint64_t>(plain.l1));
  EXPECT_EQ(h, Define(std::vector<double>(x.begin(), x.end())).h);
}
#endif

// A rule compares the variance with 0: "almost constant" would be a false alarm.
TEST_F(SummarizerTest, ConstantTensorHasExactlyZeroVarianceAndItsValueAsMean) {
  for (const float value : {0.1f, -3.0f, 1e-30f, 1e30f, 1e-42f, 0.0f}) {
    for (const size_t n : kSizes) {
      OnEveryTarget([&](const std::string& target) {
        const Summary s = Of(std::vector<float>(n, value));
        EXPECT_EQ(s.mean, value) << target;
        EXPECT_EQ(s.variance, 0.0) << target;
        EXPECT_EQ(s.m4, 0.0) << target;
        const Summary d = Of(std::vector<double>(n, value / 3.0));
        EXPECT_EQ(d.mean, value / 3.0) << target;
        EXPECT_EQ(d.variance, 0.0) << target;
      });
    }
    Check(std::vector<float>(150000, value), kFloatUnit, "constant");
  }
  EXPECT_EQ(Of(std::vector<double>(100, 1e300)).variance, 0.0);
  EXPECT_EQ(Of(std::vector<double>(100, 1e300)).mean, 1e300);
}

TEST_F(SummarizerTest, AFarOutlierInFrontDoesNotSpoilTheRest) {
  for (const float outlier : {1e4f, 1e10f, 1e30f, -1e38f}) {
    std::vector<float> x = Normal(100000, 0, 1);
    x[0] = outlier;
    Check(x, kFloatUnit, "outlier first");
    std::swap(x[0], x[50000]);
    Check(x, kFloatUnit, "outlier in the middle");
    std::fill(x.begin() + 16, x.end(), 0.25f);
    std::fill(x.begin(), x.begin() + 16, outlier);
    Check(x, kFloatUnit, "sixteen outliers, then constant");
  }
}

// The first block is looked at in nine places before it is read.
TEST_F(SummarizerTest, AFewElementsThatAreLikeNoOtherDoNotSpeakForAll) {
  constexpr size_t kSize = 16384;
  for (const float v : {0.0f, 1e-12f, 1e-30f, 1e-40f, 1e6f, 3e38f, HUGE_VALF, NAN}) {
    for (const float outlier : {0.0f, 1e20f}) {
      std::vector<float> x = Normal(kSize, 0, 1e-3);
      for (size_t i = 0; i < 9; ++i) x[i * (kSize - 1) / 8] = v;
      x[5] = outlier;
      Check(x, kFloatUnit, "nine of " + std::to_string(v));
    }
  }
}

TEST_F(SummarizerTest, LevelsThatJumpBetweenBlocksStayAccurate) {
  std::vector<float> x = Normal(400000, 0, 1);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = x[i] * (i % 100000 < 50000 ? 1e-3f : 1.0f) + (i < 200000 ? 1000 : -500);
  Check(x, kFloatUnit, "jumps");
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  Check(x, kFloatUnit, "ramp");
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::ldexp(1.0f, static_cast<int>(i / 4000)) * 1e-20f;
  Check(x, kFloatUnit, "growing by 2^100");
}

TEST_F(SummarizerTest, MostlyZerosAndLeadingZeros) {
  std::vector<float> x = Normal(300000, 0, 1);
  for (float& v : x) v = std::max(v, 0.0f);
  Check(x, kFloatUnit, "rectified");
  std::fill(x.begin(), x.begin() + 100000, -0.0f);
  Check(x, kFloatUnit, "zeros first");
}

}  // namespace
}  // namespace tdbg
