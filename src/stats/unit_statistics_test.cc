#include "stats/unit_statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "stats/variants.h"

namespace tdbg::stats {
namespace {

using testing::ElementsAre;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

void OnEveryTarget(const std::function<void()>& test) {
  WithEachKernelVariant([&](const std::string& variant) {
    SCOPED_TRACE(variant);
    test();
  });
}

Statistic Of(const char* id) { return *Statistic::FromId(id); }

// Memory of some element type, readable as doubles.
struct Memory {
  DType dtype;
  std::vector<std::byte> bytes;

  Memory(DType type, size_t count, uint32_t seed) : dtype(type), bytes(count * ItemSize(type) + 8) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal(0, 3);
    for (size_t i = 0; i < count; ++i) {
      double v = normal(random);
      if (random() % 7 == 0) v = 0;
      if (random() % 11 == 0) v = std::round(v);
      if (random() % 31 == 0) v = random() % 3 == 0 ? kNaN : random() % 2 == 0 ? kInf : -kInf;
      Set(i, v);
    }
  }
  template <typename T>
  void Store(size_t i, T v) {
    std::memcpy(bytes.data() + i * sizeof(T), &v, sizeof v);
  }
  template <typename T>
  T Load(size_t i) const {
    T v;
    std::memcpy(&v, bytes.data() + i * sizeof(T), sizeof v);
    return v;
  }
  void Set(size_t i, double v) {
    const double whole = std::isfinite(v) ? std::round(std::abs(v)) : 3;
    switch (dtype) {
      case DType::kFloat32:
        return Store(i, static_cast<float>(v));
      case DType::kFloat64:
        return Store(i, v);
      case DType::kBFloat16:
        return Store(i, static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(v)) >> 16));
      case DType::kFloat16:  // 0, 1, 2, -1, inf, NaN
        return Store(
            i,
            std::array<uint16_t, 6>{0, 0x3c00, 0x4000, 0xbc00, 0x7c00,
                                    0x7e00}[static_cast<size_t>(std::isfinite(v) ? static_cast<int>(whole) % 4
                                                                : std::isnan(v)  ? 5
                                                                                 : 4)]);
      case DType::kBool:
        return Store(i, static_cast<uint8_t>(v > 0));
      case DType::kUInt8:
        return Store(i, static_cast<uint8_t>(whole));
      case DType::kInt8:
        return Store(i, static_cast<int8_t>(v < 0 ? -whole : whole));
      case DType::kUInt16:
        return Store(i, static_cast<uint16_t>(whole));
      case DType::kInt16:
        return Store(i, static_cast<int16_t>(v < 0 ? -whole : whole));
      case DType::kUInt32:
        return Store(i, static_cast<uint32_t>(whole));
      case DType::kInt32:
        return Store(i, static_cast<int32_t>(v < 0 ? -whole : whole));
      case DType::kUInt64:
        return Store(i, static_cast<uint64_t>(whole));
      default:
        return Store(i, static_cast<int64_t>(v < 0 ? -whole : whole));
    }
  }
  double At(size_t i) const {
    switch (dtype) {
      case DType::kFloat32:
        return Load<float>(i);
      case DType::kFloat64:
        return Load<double>(i);
      case DType::kBFloat16:
        return std::bit_cast<float>(static_cast<uint32_t>(Load<uint16_t>(i)) << 16);
      case DType::kFloat16: {
        const uint16_t h = Load<uint16_t>(i);
        return h == 0x3c00 ? 1 : h == 0x4000 ? 2 : h == 0xbc00 ? -1 : h == 0x7c00 ? kInf : h == 0 ? 0 : kNaN;
      }
      case DType::kBool:
      case DType::kUInt8:
        return Load<uint8_t>(i);
      case DType::kInt8:
        return Load<int8_t>(i);
      case DType::kUInt16:
        return Load<uint16_t>(i);
      case DType::kInt16:
        return Load<int16_t>(i);
      case DType::kUInt32:
        return Load<uint32_t>(i);
      case DType::kInt32:
        return Load<int32_t>(i);
      case DType::kUInt64:
        return static_cast<double>(Load<uint64_t>(i));
      default:
        return static_cast<double>(Load<int64_t>(i));
    }
  }
};

struct Layout {
  std::vector<int64_t> shape, strides;
  int64_t offset = 0;
};

// The definition: index by index.
StatisticValue Define(const Statistic& statistic, const Memory& memory, const Layout& layout, int axis) {
  const size_t rank = layout.shape.size();
  StatisticValue out;
  size_t count = 1;
  for (const int64_t n : layout.shape) count *= static_cast<size_t>(n);
  const size_t units = axis < 0 ? 1 : static_cast<size_t>(layout.shape[static_cast<size_t>(axis)]);
  out.samples = rank == 0 ? 1 : static_cast<uint64_t>(layout.shape[0]);
  out.elements = count / units;
  out.values.assign(statistic.per_unit() ? units : statistic.parameters.size(), 0);
  std::vector<int64_t> index(rank, 0);
  const auto& p = statistic.parameters;
  for (size_t i = 0; i < count; ++i) {
    int64_t at = layout.offset;
    for (size_t d = 0; d < rank; ++d) at += index[d] * layout.strides[d];
    const double x = memory.At(static_cast<size_t>(at));
    const size_t unit = axis < 0 ? 0 : static_cast<size_t>(index[static_cast<size_t>(axis)]);
    switch (statistic.kind) {
      case Statistic::Kind::kCountAbove:
        out.values[unit] += x > p[0];
        break;
      case Statistic::Kind::kCountWithin:
        out.values[unit] += p[0] < x && x < p[1];
        break;
      case Statistic::Kind::kSums:
        out.values[unit] += x;
        break;
      case Statistic::Kind::kValueCounts:
        for (size_t v = 0; v < p.size(); ++v) out.values[v] += x == p[v];
        break;
    }
    for (size_t d = rank; d-- > 0;) {
      if (++index[d] < layout.shape[d]) break;
      index[d] = 0;
    }
  }
  return out;
}

void ExpectSame(const Statistic& statistic, const StatisticValue& got, const StatisticValue& want) {
  EXPECT_EQ(got.elements, want.elements);
  EXPECT_EQ(got.samples, want.samples);
  ASSERT_EQ(got.values.size(), want.values.size());
  for (size_t i = 0; i < got.values.size(); ++i) {
    const double w = want.values[i];
    if (statistic.kind != Statistic::Kind::kSums) {
      EXPECT_EQ(got.values[i], w) << "entry " << i;
    } else if (std::isfinite(w)) {
      EXPECT_NEAR(got.values[i], w, 1e-9 * static_cast<double>(want.elements)) << "entry " << i;
    } else {
      EXPECT_TRUE(std::isnan(w) ? std::isnan(got.values[i]) : got.values[i] == w) << "entry " << i;
    }
  }
}

constexpr DType kAll[] = {DType::kBool,    DType::kUInt8,   DType::kInt8,    DType::kUInt16, DType::kInt16,
                          DType::kUInt32,  DType::kInt32,   DType::kUInt64,  DType::kInt64,  DType::kFloat16,
                          DType::kFloat32, DType::kFloat64, DType::kBFloat16};

Layout RandomLayout(std::mt19937& random, size_t* elements) {
  Layout layout;
  const size_t rank = 1 + random() % 4;
  int64_t product = 1;
  for (size_t i = 0; i < rank; ++i) {
    const int64_t most = i + 1 == rank ? 300 : 40;
    int64_t n = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(most));
    while (product * n > 60'000) n = (n + 1) / 2;
    if (random() % 6 == 0) n = 1;
    layout.shape.push_back(n);
    product *= n;
  }
  // C order of a random permutation of the axes, some stretched, flipped or expanded.
  std::vector<size_t> order(rank);
  for (size_t i = 0; i < rank; ++i) order[i] = i;
  if (random() % 2 == 0) std::shuffle(order.begin(), order.end(), random);
  layout.strides.assign(rank, 0);
  int64_t stride = 1;
  const bool plain = random() % 3 == 0;
  for (size_t k = rank; k-- > 0;) {
    const size_t i = order[k];
    if (!plain && random() % 4 == 0) stride += static_cast<int64_t>(random() % 3);
    layout.strides[i] = stride;
    stride *= layout.shape[i];
    if (!plain && random() % 5 == 0) {
      layout.offset += layout.strides[i] * (layout.shape[i] - 1);
      layout.strides[i] = -layout.strides[i];
    } else if (!plain && random() % 8 == 0) {
      layout.strides[i] = 0;
    }
  }
  *elements = static_cast<size_t>(stride + layout.offset) + 1;
  return layout;
}

TEST(UnitStatisticsTest, AgreesWithTheDefinitionForEveryTypeLayoutAndInstructionSet) {
  OnEveryTarget([] {
    std::mt19937 random(7);
    UnitStatistics statistics;
    const char* const kIds[] = {"count_above(0)", "count_above(-1)", "count_within(-2,2.5)", "sums(-1)",
                                "value_counts(0,1,-2)"};
    for (int round = 0; round < 300; ++round) {
      size_t elements = 0;
      const Layout layout = RandomLayout(random, &elements);
      const Memory memory(kAll[round % std::size(kAll)], elements, static_cast<uint32_t>(round));
      const int rank = static_cast<int>(layout.shape.size());
      const TensorView view{memory.bytes.data() + static_cast<size_t>(layout.offset) * ItemSize(memory.dtype),
                            memory.dtype, layout.shape, layout.strides};
      for (const char* id : kIds) {
        const Statistic statistic = Of(id);
        const int unit_axis = static_cast<int>(random() % static_cast<uint64_t>(rank));
        const int axis = statistic.AxisOf(unit_axis, layout.shape.size());
        StatisticValue got;
        ASSERT_TRUE(statistics.Compute(statistic, view, unit_axis, &got).ok());
        SCOPED_TRACE(testing::Message()
                     << id << " round " << round << " axis " << axis << " " << DTypeName(memory.dtype)
                     << " shape " << testing::PrintToString(layout.shape) << " strides "
                     << testing::PrintToString(layout.strides));
        ExpectSame(statistic, got, Define(statistic, memory, layout, axis));
        if (testing::Test::HasFailure()) return;
      }
    }
  });
}

// Convolutions' shapes, wide and narrow, in both memory formats; beyond one panel of columns.
TEST(UnitStatisticsTest, LayersOfRealSizes) {
  OnEveryTarget([] {
    UnitStatistics statistics;
    struct Case {
      std::vector<int64_t> shape;
      int axis;
      bool channels_last;
    };
    for (const Case& c :
         {Case{{4, 32, 28, 28}, 1, false}, Case{{4, 32, 28, 28}, 1, true}, Case{{3, 130, 7, 7}, 1, false},
          Case{{5, 9001}, 1, false}, Case{{2, 17, 777}, 2, false}, Case{{6, 500}, 0, false}}) {
      Layout layout{c.shape, {}, 0};
      size_t n = 1;
      for (const int64_t d : c.shape) n *= static_cast<size_t>(d);
      layout.strides.assign(c.shape.size(), 1);
      for (size_t i = c.shape.size() - 1; i-- > 0;)
        layout.strides[i] = layout.strides[i + 1] * c.shape[i + 1];
      if (c.channels_last)
        layout.strides = {c.shape[1] * c.shape[2] * c.shape[3], 1, c.shape[3] * c.shape[1], c.shape[1]};
      for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat64, DType::kInt64}) {
        const Memory memory(dtype, n, 3);
        for (const char* id : {"count_above(0)", "count_within(-2,2.5)"}) {
          StatisticValue got;
          ASSERT_TRUE(
              statistics.Compute(Of(id), {memory.bytes.data(), dtype, c.shape, layout.strides}, c.axis, &got)
                  .ok());
          ExpectSame(Of(id), got, Define(Of(id), memory, layout, c.axis));
        }
      }
    }
  });
}

// Floats are compared with the double that was asked for, not with a float near it.
TEST(UnitStatisticsTest, ThresholdsThatNoFloatHoldsAreExact) {
  OnEveryTarget([] {
    const float below = 9.4999f;
    ASSERT_LT(static_cast<double>(below), 9.4999);
    const float x[] = {below, std::nextafterf(below, 10), -below, 9.5f};
    const int64_t shape[] = {4, 1};
    UnitStatistics statistics;
    StatisticValue got;
    ASSERT_TRUE(
        statistics.Compute(Of("count_within(-9.4999,9.4999)"), {x, DType::kFloat32, shape, {}}, 0, &got)
            .ok());
    EXPECT_THAT(got.values, ElementsAre(1, 0, 1, 0));
    ASSERT_TRUE(statistics.Compute(Of("count_above(9.4999)"), {x, DType::kFloat32, shape, {}}, 0, &got).ok());
    EXPECT_THAT(got.values, ElementsAre(0, 1, 0, 1));
    ASSERT_TRUE(statistics.Compute(Of("count_above(1e300)"), {x, DType::kFloat32, shape, {}}, 0, &got).ok());
    EXPECT_THAT(got.values, ElementsAre(0, 0, 0, 0));
    ASSERT_TRUE(
        statistics.Compute(Of("count_within(-1e300,1e300)"), {x, DType::kFloat32, shape, {}}, 0, &got).ok());
    EXPECT_THAT(got.values, ElementsAre(1, 1, 1, 1));
    ASSERT_TRUE(
        statistics.Compute(Of("value_counts(9.4999,9.5)"), {x, DType::kFloat32, shape, {}}, 0, &got).ok());
    EXPECT_THAT(got.values, ElementsAre(0, 1));
  });
}

TEST(UnitStatisticsTest, BoundsAreOutsideAndInfinityIsAbove) {
  const double x[] = {-1, std::nextafter(-1, 0), 1, std::nextafter(1, 0), kInf, -kInf, kNaN, -0.0};
  const int64_t shape[] = {8};
  UnitStatistics statistics;
  StatisticValue got;
  ASSERT_TRUE(statistics.Compute(Of("count_within(-1,1)"), {x, DType::kFloat64, shape, {}}, 0, &got).ok());
  EXPECT_THAT(got.values, ElementsAre(0, 1, 0, 1, 0, 0, 0, 1));
  ASSERT_TRUE(statistics.Compute(Of("count_above(0)"), {x, DType::kFloat64, shape, {}}, 0, &got).ok());
  EXPECT_THAT(got.values, ElementsAre(0, 0, 1, 1, 1, 0, 0, 0));
  EXPECT_EQ(got.elements, 1u);
  EXPECT_EQ(got.samples, 8u);
}

#if defined(__SSE__)
TEST(UnitStatisticsTest, ASubnormalIsAboveZeroWhateverTheFrameworkSet) {
  const float x[] = {1e-42f, 0, -1e-42f, 1};
  const int64_t shape[] = {4};
  UnitStatistics statistics;
  StatisticValue got;
  const uint32_t before = _mm_getcsr();
  _mm_setcsr(before | 0x8040u);  // flush to zero, denormals are zero
  const Status status = statistics.Compute(Of("count_above(0)"), {x, DType::kFloat32, shape, {}}, 0, &got);
  EXPECT_EQ(_mm_getcsr() & 0x8040u, 0x8040u);
  _mm_setcsr(before);
  ASSERT_TRUE(status.ok());
  EXPECT_THAT(got.values, ElementsAre(1, 0, 0, 1));
}
#endif

TEST(UnitStatisticsTest, EmptyTensorsHaveUnitsWithoutElements) {
  const int64_t no_samples[] = {0, 3}, no_units[] = {2, 0};
  UnitStatistics statistics;
  StatisticValue got{7, 7, {7}};
  ASSERT_TRUE(
      statistics.Compute(Of("count_above(0)"), {nullptr, DType::kFloat32, no_samples, {}}, 1, &got).ok());
  EXPECT_EQ(got, (StatisticValue{0, 0, {0, 0, 0}}));
  ASSERT_TRUE(
      statistics.Compute(Of("count_above(0)"), {nullptr, DType::kFloat32, no_units, {}}, 1, &got).ok());
  EXPECT_EQ(got, (StatisticValue{0, 2, {}}));
}

TEST(UnitStatisticsTest, CountsBeyondThirtyTwoBits) {
  const float x = 1;
  const int64_t shape[] = {int64_t{1} << 20, 3, int64_t{1} << 20}, strides[] = {0, 0, 0};
  UnitStatistics statistics;
  StatisticValue got;
  ASSERT_TRUE(statistics.Compute(Of("count_above(0)"), {&x, DType::kFloat32, shape, strides}, 1, &got).ok());
  EXPECT_THAT(got.values, ElementsAre(0x1p40, 0x1p40, 0x1p40));
  EXPECT_EQ(got.elements, uint64_t{1} << 40);
}

TEST(UnitStatisticsTest, WithoutAnAxisOrStatisticsItSaysSo) {
  const float x[] = {1, 2};
  const int64_t shape[] = {2};
  UnitStatistics statistics;
  StatisticValue got;
  EXPECT_EQ(statistics.Compute(Of("count_above(0)"), {x, DType::kFloat32, shape, {}}, -1, &got).code(),
            Code::kFailedPrecondition);
  EXPECT_EQ(statistics.Compute(Of("sums(1)"), {x, DType::kFloat32, shape, {}}, 0, &got).code(),
            Code::kFailedPrecondition);
  EXPECT_EQ(statistics.Compute(Of("value_counts(0)"), {x, DType::kFloat8E5M2, shape, {}}, 0, &got).code(),
            Code::kUnimplemented);
}

}  // namespace
}  // namespace tdbg::stats
