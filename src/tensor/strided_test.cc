#include "tensor/strided.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

namespace tdbg {
namespace {

struct Shape {
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
  int64_t offset = 0;
};

TensorView ViewOf(const std::vector<int32_t>& memory, const Shape& s) {
  return {memory.data() + s.offset, DType::kInt32, s.shape, s.strides};
}

// The definition: index by index, innermost fastest.
std::vector<int32_t> Reference(const std::vector<int32_t>& memory, const Shape& s) {
  std::vector<int32_t> out;
  std::vector<int64_t> index(s.shape.size(), 0);
  int64_t n = 1;
  for (const int64_t d : s.shape) n *= d;
  for (int64_t i = 0; i < n; ++i) {
    int64_t at = s.offset;
    for (size_t a = 0; a < index.size(); ++a) at += index[a] * s.strides[a];
    out.push_back(memory[static_cast<size_t>(at)]);
    for (size_t a = index.size(); a-- > 0;) {
      if (++index[a] < s.shape[a]) break;
      index[a] = 0;
    }
  }
  return out;
}

const std::vector<Shape>& Shapes() {
  static const std::vector<Shape> shapes = {
      {{}, {}},
      {{7}, {1}},
      {{4, 5}, {5, 1}},
      {{4, 5}, {1, 4}},
      {{70, 90}, {1, 70}},
      {{3, 70, 90}, {6300, 1, 70}},
      {{70, 3, 90}, {1, 70, 210}},
      {{2, 3, 40, 50}, {6000, 1, 150, 3}},
      {{5, 6}, {12, 2}},
      {{5, 6}, {-6, 1}, 24},
      {{5, 6}, {6, -1}, 5},
      {{5, 6}, {-6, -1}, 29},
      {{9, 4}, {0, 1}},
      {{9, 4}, {1, 0}},
      {{3, 3}, {0, 0}},
      {{1, 6, 1, 5}, {99, 5, -7, 1}},
      {{6, 6}, {1, 1}},
      {{2, 1, 2, 1, 2, 1, 2, 1, 2, 2, 2, 2, 2}, {2000, 5, 700, 5, 300, 9, 150, 1, 80, 40, 16, 6, 2}},
  };
  return shapes;
}

std::vector<int32_t> Memory() {
  std::vector<int32_t> memory(100000);
  std::iota(memory.begin(), memory.end(), 0);
  return memory;
}

TEST(CopyContiguousTest, EqualsTheDefinitionForEveryKindOfStride) {
  const std::vector<int32_t> memory = Memory();
  for (size_t i = 0; i < Shapes().size(); ++i) {
    const std::vector<int32_t> expected = Reference(memory, Shapes()[i]);
    std::vector<int32_t> out(expected.size(), -1);
    CopyContiguous(ViewOf(memory, Shapes()[i]), reinterpret_cast<std::byte*>(out.data()));
    EXPECT_EQ(out, expected) << "shape " << i;
  }
}

TEST(CopyContiguousTest, EveryItemSizeIsTransposed) {
  std::vector<uint8_t> memory(16 * 40 * 50);
  std::mt19937 random(1);
  for (uint8_t& b : memory) b = static_cast<uint8_t>(random());
  const std::vector<int64_t> shape = {50, 40};
  const std::vector<int64_t> strides = {1, 50};
  for (const DType dtype : {DType::kInt8, DType::kInt16, DType::kInt32, DType::kInt64, DType::kComplex128}) {
    const size_t item = ItemSize(dtype);
    std::vector<std::byte> out(item * 2000);
    CopyContiguous({memory.data(), dtype, shape, strides}, out.data());
    for (size_t r = 0; r < 50; ++r) {
      for (size_t c = 0; c < 40; ++c) {
        ASSERT_EQ(std::memcmp(&out[(r * 40 + c) * item], &memory[(c * 50 + r) * item], item), 0) << item;
      }
    }
  }
}

TEST(CopyContiguousTest, EmptyTensorMayHaveNoMemory) {
  const std::vector<int64_t> shape = {3, 0, 2};
  std::byte untouched{42};
  CopyContiguous({nullptr, DType::kFloat32, shape, {}}, &untouched);
  EXPECT_EQ(untouched, std::byte{42});
}

TEST(UnorderedWalkTest, VisitsTheSameElementsEquallyOften) {
  const std::vector<int32_t> memory = Memory();
  for (size_t i = 0; i < Shapes().size(); ++i) {
    const UnorderedWalk walk = MakeUnorderedWalk(ViewOf(memory, Shapes()[i]));
    RunReader reader(walk.data, walk.axes, 4);
    std::vector<int32_t> once(static_cast<size_t>(walk.element_count()));
    size_t n = 0;
    while (const size_t got = reader.Read(reinterpret_cast<std::byte*>(once.data() + n), 7)) n += got;
    EXPECT_EQ(n, once.size());
    std::vector<int32_t> all;
    for (int64_t m = 0; m < walk.multiplicity; ++m) all.insert(all.end(), once.begin(), once.end());
    std::vector<int32_t> expected = Reference(memory, Shapes()[i]);
    std::sort(all.begin(), all.end());
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(all, expected) << "shape " << i;
  }
}

TEST(UnorderedWalkTest, PermutedAndFlippedDenseTensorsAreOneRun) {
  const std::vector<int32_t> memory = Memory();
  EXPECT_TRUE(MakeUnorderedWalk(ViewOf(memory, {{4, 5}, {1, 4}})).contiguous());
  EXPECT_TRUE(MakeUnorderedWalk(ViewOf(memory, {{2, 3, 40, 50}, {6000, 1, 150, 3}})).contiguous());
  EXPECT_TRUE(MakeUnorderedWalk(ViewOf(memory, {{5, 6}, {-6, -1}, 29})).contiguous());
  EXPECT_TRUE(MakeUnorderedWalk(ViewOf(memory, {{9, 4}, {0, 1}})).contiguous());
  EXPECT_FALSE(MakeUnorderedWalk(ViewOf(memory, {{5, 6}, {12, 2}})).contiguous());
}

TEST(TensorViewTest, ContiguityIgnoresStridesOfLengthOneAxes) {
  const std::vector<int64_t> shape = {4, 1, 3};
  const std::vector<int64_t> dense = {3, 77, 1};
  const std::vector<int64_t> gaps = {6, 3, 1};
  EXPECT_TRUE((TensorView{nullptr, DType::kInt8, shape, dense}.is_contiguous()));
  EXPECT_TRUE((TensorView{nullptr, DType::kInt8, shape, {}}.is_contiguous()));
  EXPECT_FALSE((TensorView{nullptr, DType::kInt8, shape, gaps}.is_contiguous()));
}

TEST(TensorViewTest, RankZeroHoldsOneElementAndAZeroAxisNone) {
  const TensorView scalar{nullptr, DType::kFloat64, {}, {}};
  EXPECT_EQ(scalar.element_count(), 1);
  EXPECT_EQ(scalar.byte_count(), 8u);
  const std::vector<int64_t> shape = {5, 0};
  const std::vector<int64_t> odd = {9, 9};
  const TensorView empty{nullptr, DType::kFloat64, shape, odd};
  EXPECT_EQ(empty.element_count(), 0);
  EXPECT_TRUE(empty.is_contiguous());
}

TEST(DTypeTest, NamesRoundTripAndUnknownNumbersAreInvalid) {
  for (int i = 1; i < 20; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(DTypeFromName(DTypeName(dtype)), dtype);
    EXPECT_GT(ItemSize(dtype), 0u);
  }
  EXPECT_EQ(ItemSize(static_cast<DType>(200)), 0u);
  EXPECT_FALSE(HasStatistics(static_cast<DType>(200)));
  EXPECT_EQ(DTypeFromName("invalid"), std::nullopt);
  EXPECT_EQ(DTypeFromName("float33"), std::nullopt);
}

TEST(DTypeTest, StatisticsExistForRealTypesOnly) {
  EXPECT_TRUE(HasStatistics(DType::kBool));
  EXPECT_TRUE(HasStatistics(DType::kFloat64));
  EXPECT_FALSE(HasStatistics(DType::kComplex64));
  EXPECT_FALSE(HasStatistics(DType::kFloat8E5M2));
}

}  // namespace
}  // namespace tdbg
