// Every dtype and layout, and one object asked again.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "stats/summarizer_testing.h"

namespace tdbg {
namespace {

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
