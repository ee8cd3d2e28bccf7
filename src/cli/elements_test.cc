#include "cli/elements.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>

namespace tdbg::cli {
namespace {

TEST(Element, HalvesAreDecodedBitByBit) {
  const uint16_t halves[] = {0x3C00, 0xC000, 0x0001, 0x7BFF, 0x7C00, 0xFE00, 0x3555};
  EXPECT_EQ(ElementJson(DType::kFloat16, halves, 0), 1.0);
  EXPECT_EQ(ElementJson(DType::kFloat16, halves, 1), -2.0);
  EXPECT_EQ(ElementJson(DType::kFloat16, halves, 2), std::ldexp(1, -24));
  EXPECT_EQ(ElementJson(DType::kFloat16, halves, 3), 65504.0);
  EXPECT_EQ(ElementJson(DType::kFloat16, halves, 4), "Infinity");
  EXPECT_EQ(ElementJson(DType::kFloat16, halves, 5), "NaN");
  EXPECT_EQ(ElementJson(DType::kFloat16, halves, 6), 0.333251953125);
  const uint16_t brains[] = {0x3F80, 0xFF80};
  EXPECT_EQ(ElementJson(DType::kBFloat16, brains, 0), 1.0);
  EXPECT_EQ(ElementJson(DType::kBFloat16, brains, 1), "-Infinity");
}

TEST(Element, FloatsShowAFloatsDigits) {
  const float value = 0.1f;
  EXPECT_EQ(ElementText(DType::kFloat32, &value, 0), "0.1");
  EXPECT_EQ(ElementJson(DType::kFloat32, &value, 0).dump(), "0.1");
  const uint64_t large = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(ElementText(DType::kUInt64, &large, 0), "18446744073709551615");
  const uint8_t byte = 0x7f;
  EXPECT_EQ(ElementText(DType::kFloat8E4M3FN, &byte, 0), "0x7f");
}

TEST(Tensor, IsPrintedAsNumPyDoes) {
  int32_t numbers[24];
  std::iota(numbers, numbers + 24, 0);
  TensorValue value;
  value.dtype = DType::kInt32;
  value.data = numbers;
  value.shape = {2, 3};
  EXPECT_EQ(FormatTensor(value, 3), "[[0, 1, 2],\n [3, 4, 5]]");
  value.shape = {10};
  EXPECT_EQ(FormatTensor(value, 3), "[0, 1, 2, ..., 7, 8, 9]");
  value.shape = {};
  EXPECT_EQ(FormatTensor(value, 3), "0");
  value.shape = {0, 4};
  EXPECT_EQ(FormatTensor(value, 3), "[]");
  value.shape = {2, 1, 2};
  EXPECT_EQ(TensorJson(value).dump(), "[[[0,1]],[[2,3]]]");
}

TEST(Tensor, TextsAreOneElementEach) {
  const uint32_t points[] = {'f', '0', 0, 'L', 0x00e4, 0x1f600, '"', 0, 0};
  TensorValue value;
  value.dtype = DType::kText;
  value.data = points;
  value.shape = {3, 3};
  EXPECT_EQ(FormatTensor(value, 3), "[\"f0\", \"L\u00e4\U0001f600\", \"\\\"\"]");
  EXPECT_EQ(TensorJson(value).dump(), "[\"f0\",\"L\u00e4\U0001f600\",\"\\\"\"]");
  value.shape = {2, 0};
  EXPECT_EQ(TensorJson(value).dump(), "[\"\",\"\"]");
}

TEST(StepRange, IsHalfOpenAndForgiving) {
  EXPECT_TRUE(ParseStepRange("")->Holds(1'000'000));
  EXPECT_TRUE(ParseStepRange("5:7")->Holds(6));
  EXPECT_FALSE(ParseStepRange("5:7")->Holds(7));
  EXPECT_TRUE(ParseStepRange("5:")->Holds(500));
  EXPECT_FALSE(ParseStepRange(":5")->Holds(5));
  EXPECT_TRUE(ParseStepRange("5")->Holds(5));
  EXPECT_FALSE(ParseStepRange("5")->Holds(6));
  for (const char* bad : {"a:b", "1:2:3", "-1:", "1-2"}) {
    EXPECT_EQ(ParseStepRange(bad).status().code(), Code::kInvalidArgument) << bad;
  }
}

}  // namespace
}  // namespace tdbg::cli
