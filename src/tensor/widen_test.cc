#include "tensor/widen.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace tdbg {
namespace {

// From the OCP 8-bit floating point specification (E4M3, E5M2) and the FNUZ variants' definition.
TEST(Widen, Float8ValuesAreTheFormatsOwn) {
  EXPECT_EQ(Float8ToFloat(DType::kFloat8E4M3FN, 0x7e), 448.0f);
  EXPECT_EQ(Float8ToFloat(DType::kFloat8E4M3FN, 0x01), std::ldexp(1.0f, -9));
  EXPECT_EQ(Float8ToFloat(DType::kFloat8E4M3FN, 0x38), 1.0f);
  EXPECT_TRUE(std::isnan(Float8ToFloat(DType::kFloat8E4M3FN, 0xff)));
  EXPECT_TRUE(std::signbit(Float8ToFloat(DType::kFloat8E4M3FN, 0x80)));

  EXPECT_EQ(Float8ToFloat(DType::kFloat8E5M2, 0x7b), 57344.0f);
  EXPECT_EQ(Float8ToFloat(DType::kFloat8E5M2, 0x01), std::ldexp(1.0f, -16));
  EXPECT_EQ(Float8ToFloat(DType::kFloat8E5M2, 0xfc), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(Float8ToFloat(DType::kFloat8E5M2, 0x7d)));

  EXPECT_EQ(Float8ToFloat(DType::kFloat8E4M3FNUZ, 0x7f), 240.0f);
  EXPECT_EQ(Float8ToFloat(DType::kFloat8E4M3FNUZ, 0x01), std::ldexp(1.0f, -10));
  EXPECT_TRUE(std::isnan(Float8ToFloat(DType::kFloat8E4M3FNUZ, 0x80)));
  EXPECT_EQ(Float8ToFloat(DType::kFloat8E5M2FNUZ, 0x7f), 57344.0f);
  EXPECT_EQ(Float8ToFloat(DType::kFloat8E5M2FNUZ, 0x01), std::ldexp(1.0f, -17));
}

TEST(Widen, HalfAndBFloat16) {
  EXPECT_EQ(HalfToFloat(0x3c00), 1.0f);
  EXPECT_EQ(HalfToFloat(0x7bff), 65504.0f);
  EXPECT_EQ(HalfToFloat(0x8001), -std::ldexp(1.0f, -24));
  EXPECT_TRUE(std::isinf(HalfToFloat(0x7c00)));
  EXPECT_TRUE(std::isnan(HalfToFloat(0x7e00)));
  EXPECT_EQ(BFloat16ToFloat(0xc040), -3.0f);
}

template <typename From, typename To>
void ExpectSame(DType from, DType to, std::vector<From> values) {
  const int64_t shape[] = {static_cast<int64_t>(values.size())};
  const std::vector<std::byte> wide = Widen({values.data(), from, shape, {}}, to);
  ASSERT_EQ(wide.size(), values.size() * sizeof(To));
  for (size_t i = 0; i < values.size(); ++i) {
    To got;
    std::memcpy(&got, wide.data() + i * sizeof(To), sizeof(To));
    EXPECT_EQ(got, static_cast<To>(values[i]));
  }
}

TEST(Widen, IntegersKeepTheirValues) {
  ExpectSame<int8_t, int32_t>(DType::kInt8, DType::kInt32, {-128, -1, 0, 127});
  ExpectSame<uint16_t, int32_t>(DType::kUInt16, DType::kInt32, {0, 65535});
  ExpectSame<uint32_t, int64_t>(DType::kUInt32, DType::kInt64, {0, 4294967295u});
  ExpectSame<uint64_t, int64_t>(DType::kUInt64, DType::kInt64, {0, uint64_t{1} << 62});
  ExpectSame<uint64_t, double>(DType::kUInt64, DType::kFloat64, {0, ~uint64_t{0}});
}

TEST(Widen, StridedViewsBecomeDense) {
  const uint16_t data[] = {0x3f80, 0x4000, 0x4040, 0x4080};  // 1 2 3 4
  const int64_t shape[] = {2, 2}, strides[] = {1, 2};
  const std::vector<std::byte> wide = Widen({data, DType::kBFloat16, shape, strides}, DType::kFloat32);
  float got[4];
  ASSERT_EQ(wide.size(), sizeof(got));
  std::memcpy(got, wide.data(), sizeof(got));
  EXPECT_EQ(std::vector<float>(got, got + 4), (std::vector<float>{1, 3, 2, 4}));
}

}  // namespace
}  // namespace tdbg
