// A reference implementation of summaries, one value at a time, and comparisons with it, for tests.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

#include "stats/variants.h"
#include "tdbg/summary.h"

namespace tdbg {

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Expected {
  Summary s;
  Histogram h;
};

// The definition: one value after the other, in long double, two passes.
inline Expected Define(const std::vector<double>& x) {
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

inline void ExpectExactParts(const Summary& got, const Summary& want, const std::string& where) {
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

inline void ExpectClose(double got, double want, double bound, const std::string& where) {
  if (std::isinf(want)) {
    EXPECT_EQ(got, want) << where;
  } else {
    EXPECT_NEAR(got, want, bound) << where;
  }
}

// The bounds of docs/statistics.md: `unit` is 2^-18 where sums are of float32, 2^-40 where of doubles.
inline void ExpectWithinBounds(const Summary& got, const Summary& want, double unit,
                               const std::string& where) {
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

inline double FromHalf(uint16_t h) {
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

inline double FromBFloat(uint16_t b) { return std::bit_cast<float>(uint32_t{b} << 16); }

class SummarizerTest : public testing::Test {
 protected:
  // Runs a test once with each copy of the kernels that this machine can run. A Summarizer keeps the one that
  // it was made with.
  void OnEveryTarget(const std::function<void(const std::string&)>& test) {
    stats::WithEachKernelVariant([&](const std::string& variant) {
      summarizer_ = Summarizer();
      if (!HasFatalFailure()) test(variant);
    });
    summarizer_ = Summarizer();
  }

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

inline constexpr double kFloatUnit = 0x1p-18;
inline constexpr double kDoubleUnit = 0x1p-40;
const size_t kSizes[] = {1, 2, 3, 7, 15, 16, 17, 63, 64, 65, 100, 1000, 2047, 2048, 2049, 5000, 20000};

inline std::vector<float> Normal(size_t n, double mean, double deviation, unsigned seed = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(mean, deviation);
  std::vector<float> x(n);
  for (float& v : x) v = static_cast<float>(normal(random));
  return x;
}

// Every exponent of a float equally often, subnormals included.
inline std::vector<float> AnyFinite(size_t n, unsigned seed = 2) {
  std::mt19937 random(seed);
  std::vector<float> x(n);
  for (float& v : x) {
    do {
      v = std::bit_cast<float>(static_cast<uint32_t>(random()));
    } while (!std::isfinite(v));
  }
  return x;
}

}  // namespace tdbg
