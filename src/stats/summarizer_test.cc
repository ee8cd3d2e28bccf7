#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hwy/highway.h>

#include "tdbg/summary.h"

namespace tdbg {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Runs a test once per instruction set that this machine has.
void OnEveryTarget(const std::function<void(const std::string&)>& test) {
  const int64_t supported = hwy::SupportedTargets() & HWY_TARGETS & ~int64_t{HWY_SCALAR};
  for (int64_t left = supported; left != 0; left &= left - 1) {
    const int64_t target = left & -left;
    hwy::DisableTargets(~target);
    test(hwy::TargetName(target));
    if (testing::Test::HasFatalFailure()) break;
  }
  hwy::DisableTargets(0);
}

struct Expected {
  Summary s;
  Histogram h;
};

// The definition: one value after the other, in long double, two passes.
Expected Define(const std::vector<double>& x) {
  Expected e;
  Summary& s = e.s;
  s.count = x.size();
  std::map<int16_t, uint64_t> buckets;
  std::vector<long double> finite;
  for (const double v : x) {
    if (std::isnan(v)) {
      ++s.nan_count;
    } else if (v == kInf) {
      ++s.pos_inf_count;
    } else if (v == -kInf) {
      ++s.neg_inf_count;
    } else {
      finite.push_back(v);
      if (v == 0) {
        ++s.zero_count;
      } else {
        ++buckets[BucketOf(v)];
      }
    }
  }
  for (const auto& [bucket, count] : buckets) e.h.push_back({bucket, count});
  if (finite.empty()) return e;
  const auto n = static_cast<long double>(finite.size());
  long double mean = 0, l1 = 0, l2 = 0;
  s.min = s.abs_min = kInf;
  s.max = s.abs_max = -kInf;
  for (const long double v : finite) {
    const auto d = static_cast<double>(v);
    s.min = std::min(s.min, d);
    s.max = std::max(s.max, d);
    s.abs_min = std::min(s.abs_min, std::abs(d));
    s.abs_max = std::max(s.abs_max, std::abs(d));
    mean += v;
    l1 += std::abs(v);
    l2 += v * v;
  }
  mean /= n;
  long double m2 = 0, m3 = 0, m4 = 0;
  for (const long double v : finite) {
    const long double d = v - mean;
    m2 += d * d;
    m3 += d * d * d;
    m4 += d * d * d * d;
  }
  s.mean = static_cast<double>(mean);
  s.variance = static_cast<double>(m2 / n);
  s.m3 = static_cast<double>(m3 / n);
  s.m4 = static_cast<double>(m4 / n);
  s.l1 = static_cast<double>(l1);
  s.l2 = static_cast<double>(std::sqrt(l2));
  return e;
}

void ExpectExactParts(const Summary& got, const Summary& want, const std::string& where) {
  EXPECT_EQ(got.count, want.count) << where;
  EXPECT_EQ(got.nan_count, want.nan_count) << where;
  EXPECT_EQ(got.pos_inf_count, want.pos_inf_count) << where;
  EXPECT_EQ(got.neg_inf_count, want.neg_inf_count) << where;
  EXPECT_EQ(got.zero_count, want.zero_count) << where;
  if (want.finite_count() == 0) {
    for (const double v : {got.min, got.max, got.mean, got.variance, got.m3, got.m4, got.l1, got.l2,
                           got.abs_min, got.abs_max}) {
      EXPECT_TRUE(std::isnan(v)) << where;
    }
    return;
  }
  EXPECT_EQ(got.min, want.min) << where;
  EXPECT_EQ(got.max, want.max) << where;
  EXPECT_EQ(got.abs_min, want.abs_min) << where;
  EXPECT_EQ(got.abs_max, want.abs_max) << where;
}

void ExpectClose(double got, double want, double bound, const std::string& where) {
  if (std::isinf(want)) {
    EXPECT_EQ(got, want) << where;
  } else {
    EXPECT_NEAR(got, want, bound) << where;
  }
}

// The bounds of docs/statistics.md: `unit` is 2^-18 where sums are of float32, 2^-40 where of doubles.
void ExpectWithinBounds(const Summary& got, const Summary& want, double unit, const std::string& where) {
  ExpectExactParts(got, want, where);
  if (want.finite_count() == 0) return;
  const double deviation = std::sqrt(want.variance);
  const double largest = want.abs_max;
  const double tiny = unit * 0x1p-22;
  ExpectClose(got.mean, want.mean, unit * deviation + tiny * largest, where);
  ExpectClose(got.variance, want.variance, unit * want.variance + tiny * tiny * largest * largest, where);
  ExpectClose(got.m3, want.m3, 8 * unit * std::pow(want.m4, 0.75) + std::pow(tiny * largest, 3), where);
  ExpectClose(got.m4, want.m4, 8 * unit * want.m4 + std::pow(tiny * largest, 4), where);
  ExpectClose(got.l1, want.l1, unit * want.l1, where);
  ExpectClose(got.l2, want.l2, unit * want.l2, where);
}

template <typename T>
struct Typed;
template <>
struct Typed<float> {
  static constexpr DType kType = DType::kFloat32;
};
template <>
struct Typed<double> {
  static constexpr DType kType = DType::kFloat64;
};
template <>
struct Typed<int8_t> {
  static constexpr DType kType = DType::kInt8;
};
template <>
struct Typed<uint8_t> {
  static constexpr DType kType = DType::kUInt8;
};
template <>
struct Typed<int16_t> {
  static constexpr DType kType = DType::kInt16;
};
template <>
struct Typed<uint16_t> {
  static constexpr DType kType = DType::kUInt16;
};
template <>
struct Typed<int32_t> {
  static constexpr DType kType = DType::kInt32;
};
template <>
struct Typed<uint32_t> {
  static constexpr DType kType = DType::kUInt32;
};
template <>
struct Typed<int64_t> {
  static constexpr DType kType = DType::kInt64;
};
template <>
struct Typed<uint64_t> {
  static constexpr DType kType = DType::kUInt64;
};

class SummarizerTest : public testing::Test {
 protected:
  Summary Of(const TensorView& view, Histogram* h = nullptr) {
    Summary s;
    const Status status = summarizer_.Summarize(view, &s, h);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return s;
  }

  template <typename T>
  Summary Of(const std::vector<T>& x, Histogram* h = nullptr) {
    const std::vector<int64_t> shape = {static_cast<int64_t>(x.size())};
    return Of(TensorView{x.data(), Typed<T>::kType, shape, {}}, h);
  }

  // With and without the histogram, on every instruction set, against the definition.
  template <typename T>
  void Check(const std::vector<T>& x, double unit, const std::string& where) {
    const Expected want = Define(std::vector<double>(x.begin(), x.end()));
    OnEveryTarget([&](const std::string& target) {
      Histogram h = {{1, 1}};
      const std::string what = where + " n=" + std::to_string(x.size()) + " on " + target;
      ExpectWithinBounds(Of(x), want.s, unit, what + " without");
      ExpectWithinBounds(Of(x, &h), want.s, unit, what + " with");
      EXPECT_EQ(h, want.h) << what;
    });
  }

  Summarizer summarizer_;
};

constexpr double kFloatUnit = 0x1p-18;
constexpr double kDoubleUnit = 0x1p-40;
const size_t kSizes[] = {1, 2, 3, 7, 15, 16, 17, 63, 64, 65, 100, 1000, 2047, 2048, 2049, 5000, 20000};

std::vector<float> Normal(size_t n, double mean, double deviation, unsigned seed = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(mean, deviation);
  std::vector<float> x(n);
  for (float& v : x) v = static_cast<float>(normal(random));
  return x;
}

// Every exponent of a float equally often, subnormals included.
std::vector<float> AnyFinite(size_t n, unsigned seed = 2) {
  std::mt19937 random(seed);
  std::vector<float> x(n);
  for (float& v : x) {
    do {
      v = std::bit_cast<float>(static_cast<uint32_t>(random()));
    } while (!std::isfinite(v));
  }
  return x;
}

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

TEST_F(SummarizerTest, DoublesOverTheirWholeRange) {
  std::mt19937_64 random(4);
  for (const size_t n : kSizes) {
    std::vector<double> x(n);
    std::normal_distribution<double> normal(3, 2);
    for (double& v : x) v = normal(random);
    Check(x, kDoubleUnit, "normal doubles");
    for (double& v : x) v *= 1e-160;
    const Summary small = Of(x);
    const Summary want = Define(x).s;
    EXPECT_NEAR(small.l2, want.l2, 1e-12 * want.l2);
    EXPECT_NEAR(small.mean, want.mean, 1e-12 * want.abs_max);
    for (double& v : x) v *= 1e300;
    Check(x, kDoubleUnit, "1e140");
  }
  const Summary huge = Of(std::vector<double>{1.7e308, -1.7e308, 1.7e308});
  EXPECT_NEAR(huge.mean, 1.7e308 / 3, 1e296);
  EXPECT_EQ(huge.variance, kInf);
  EXPECT_EQ(huge.max, 1.7e308);
  EXPECT_FALSE(std::isnan(huge.m4));
}

template <typename T>
std::vector<T> RandomIntegers(size_t n) {
  std::mt19937_64 random(5);
  std::vector<T> x(n);
  for (T& v : x) v = static_cast<T>(random());
  x[0] = std::numeric_limits<T>::min();
  x[n - 1] = std::numeric_limits<T>::max();
  x[n / 2] = 0;
  return x;
}

TEST_F(SummarizerTest, IntegersOfEveryWidthAndTheirExtremes) {
  for (const size_t n : {3u, 64u, 2050u, 80000u}) {
    Check(RandomIntegers<int8_t>(n), kFloatUnit, "int8");
    Check(RandomIntegers<uint8_t>(n), kFloatUnit, "uint8");
    Check(RandomIntegers<int16_t>(n), kFloatUnit, "int16");
    Check(RandomIntegers<uint16_t>(n), kFloatUnit, "uint16");
    Check(RandomIntegers<int32_t>(n), kDoubleUnit, "int32");
    Check(RandomIntegers<uint32_t>(n), kDoubleUnit, "uint32");
    Check(RandomIntegers<int64_t>(n), kDoubleUnit, "int64");
    Check(RandomIntegers<uint64_t>(n), kDoubleUnit, "uint64");
  }
}

double FromHalf(uint16_t h) {
  const int exponent = (h >> 10) & 31;
  const int mantissa = h & 1023;
  double v = 0;
  if (exponent == 31) {
    v = mantissa != 0 ? kNaN : kInf;
  } else if (exponent == 0) {
    v = std::ldexp(mantissa, -24);
  } else {
    v = std::ldexp(1024 + mantissa, exponent - 25);
  }
  return (h >> 15) != 0 ? -v : v;
}

double FromBFloat(uint16_t b) { return std::bit_cast<float>(uint32_t{b} << 16); }

TEST_F(SummarizerTest, EveryHalfAndEveryBFloatPattern) {
  std::vector<uint16_t> x(65536);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint16_t>(i);
  std::shuffle(x.begin(), x.end(), std::mt19937(6));
  for (const bool half : {true, false}) {
    for (const size_t n : {65536u, 5000u, 33u}) {
      std::vector<double> values;
      for (size_t i = 0; i < n; ++i) values.push_back(half ? FromHalf(x[i]) : FromBFloat(x[i]));
      const Expected want = Define(values);
      const std::vector<int64_t> shape = {static_cast<int64_t>(n)};
      OnEveryTarget([&](const std::string& target) {
        Histogram h;
        const TensorView view{x.data(), half ? DType::kFloat16 : DType::kBFloat16, shape, {}};
        ExpectWithinBounds(Of(view), want.s, kFloatUnit, target);
        ExpectWithinBounds(Of(view, &h), want.s, kFloatUnit, target);
        EXPECT_EQ(h, want.h) << target;
      });
    }
  }
}

TEST_F(SummarizerTest, LargeBFloatTensorsAreCountedByPairs) {
  for (const size_t n : {65536u, 200001u}) {
    const std::vector<float> wide = Normal(n, 0, 0.02);
    std::vector<uint16_t> x;
    std::vector<double> values;
    for (const float v : wide) {
      x.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(v) >> 16));
      values.push_back(FromBFloat(x.back()));
    }
    const Expected want = Define(values);
    const std::vector<int64_t> shape = {static_cast<int64_t>(n)};
    OnEveryTarget([&](const std::string& target) {
      Histogram h;
      ExpectWithinBounds(Of({x.data(), DType::kBFloat16, shape, {}}, &h), want.s, kFloatUnit, target);
      EXPECT_EQ(h, want.h) << target;
    });
  }
}

TEST_F(SummarizerTest, BooleansCountAsZeroAndOne) {
  std::vector<uint8_t> x(5000);
  std::vector<double> values;
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = i % 3 == 0 ? 1 : 0;
    values.push_back(x[i]);
  }
  const std::vector<int64_t> shape = {50, 100};
  Histogram h;
  const Expected want = Define(values);
  ExpectWithinBounds(Of({x.data(), DType::kBool, shape, {}}, &h), want.s, kFloatUnit, "bool");
  EXPECT_EQ(h, want.h);
}

TEST_F(SummarizerTest, EmptyTensorsHaveNoNumbersAndNoHistogram) {
  const std::vector<int64_t> shape = {4, 0};
  Histogram h = {{7, 7}};
  const Summary s = Of({nullptr, DType::kFloat32, shape, {}}, &h);
  EXPECT_EQ(s.count, 0u);
  EXPECT_TRUE(std::isnan(s.mean));
  EXPECT_TRUE(std::isnan(s.l1));
  EXPECT_TRUE(h.empty());
}

TEST_F(SummarizerTest, RankZeroIsOneElement) {
  const float value = -2.5f;
  Histogram h;
  const Summary s = Of({&value, DType::kFloat32, {}, {}}, &h);
  EXPECT_EQ(s.count, 1u);
  EXPECT_EQ(s.mean, -2.5);
  EXPECT_EQ(s.l2, 2.5);
  EXPECT_EQ(h, (Histogram{{BucketOf(-2.5), 1}}));
}

TEST_F(SummarizerTest, TypesWithoutStatisticsAreRefusedByName) {
  const std::vector<int64_t> shape = {4};
  Summary s;
  const Status status = summarizer_.Summarize({nullptr, DType::kComplex64, shape, {}}, &s, nullptr);
  EXPECT_EQ(status.code(), Code::kUnimplemented);
  EXPECT_THAT(status.message(), testing::HasSubstr("complex64"));
}

TEST_F(SummarizerTest, StridedViewsEqualTheirCopies) {
  const std::vector<float> memory = Normal(400000, 1, 2);
  const struct {
    std::vector<int64_t> shape, strides;
    int64_t offset;
  } views[] = {
      {{300, 400}, {1, 300}, 0},
      {{300, 400}, {1000, 2}, 0},
      {{300, 400}, {-1000, -2}, 399999},
      {{7, 300}, {0, 3}, 5},
      {{300, 7}, {3, 0}, 5},
      {{50, 0, 3}, {1, 2, 3}, 0},
      {{10, 20, 30}, {1, 600, 10}, 0},
      {{100000}, {3}, 0},
      {{5, 1, 3000}, {3001, 99, 1}, 1},
      {{3, 4}, {0, 0}, 9},
  };
  for (const auto& view : views) {
    const TensorView v{memory.data() + view.offset, DType::kFloat32, view.shape, view.strides};
    std::vector<float> copy(static_cast<size_t>(v.element_count()));
    if (!copy.empty()) CopyContiguous(v, reinterpret_cast<std::byte*>(copy.data()));
    const Expected want = Define(std::vector<double>(copy.begin(), copy.end()));
    OnEveryTarget([&](const std::string& target) {
      Histogram h;
      ExpectWithinBounds(Of(v, &h), want.s, kFloatUnit, target);
      EXPECT_EQ(h, want.h) << target;
    });
  }
}

TEST_F(SummarizerTest, MemoryThatIsNotAlignedToItsElementsIsRead) {
  const std::vector<double> x = {1, 2, 3, 4, 5};
  std::vector<std::byte> bytes(41);
  std::memcpy(bytes.data() + 1, x.data(), 40);
  const std::vector<int64_t> shape = {5};
  EXPECT_EQ(Of({bytes.data() + 1, DType::kFloat64, shape, {}}).mean, 3.0);
}

// A step is hundreds of tensors through one object: nothing may be left behind in its tables.
TEST_F(SummarizerTest, OneObjectAnswersTheSameAfterAnyOtherTensor) {
  const std::vector<float> probe = Normal(70000, 0, 1);
  const std::vector<float> small = Normal(300, 0, 1);
  Histogram before, before_small, after, ignored;
  Of(probe, &before);
  Of(small, &before_small);
  std::vector<float> dirty = AnyFinite(100000);
  dirty[7] = std::numeric_limits<float>::quiet_NaN();
  Of(dirty, &ignored);
  Of(std::vector<double>(dirty.begin(), dirty.end()), &ignored);
  Of(std::vector<float>(1000, 0.0f), &ignored);
  Of(std::vector<float>(100000, 0.0f), &ignored);
  Of(std::vector<float>(100000, 3.0f), &ignored);
  Of(RandomIntegers<int64_t>(1000), &ignored);
  Of(probe, &after);
  EXPECT_EQ(before, after);
  Of(small, &after);
  EXPECT_EQ(before_small, after);
}

TEST_F(SummarizerTest, MergedPartsEqualTheWhole) {
  const std::vector<float> x = Normal(90000, 4, 3);
  const std::vector<float> a(x.begin(), x.begin() + 1234);
  const std::vector<float> b(x.begin() + 1234, x.end());
  Histogram ha, hb, hx;
  const Summary whole = Of(x, &hx);
  const Summary merged = Merge(Of(a, &ha), Of(b, &hb));
  ExpectWithinBounds(merged, whole, kFloatUnit, "merged");
  EXPECT_EQ(MergeHistograms(ha, hb), hx);
}

}  // namespace
}  // namespace tdbg
