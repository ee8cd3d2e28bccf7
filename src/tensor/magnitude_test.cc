#include "tensor/magnitude.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <limits>
#include <vector>

namespace tdbg {
namespace {

using testing::DoubleEq;
using testing::ElementsAre;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

TEST(MagnitudeTest, OfBothTypes) {
  const std::complex<float> narrow[] = {{3, 4}, {-5, 0}, {0, 0}};
  const std::complex<double> wide[] = {{3e200, -4e200}, {0, 1}, {-0.0, 0}};
  const int64_t shape[] = {3};
  EXPECT_THAT(Magnitudes({narrow, DType::kComplex64, shape, {}}), ElementsAre(5, 5, 0));
  EXPECT_THAT(Magnitudes({wide, DType::kComplex128, shape, {}}), ElementsAre(DoubleEq(5e200), 1, 0));
}

TEST(MagnitudeTest, WhatIsFiniteStaysSoAndWhatIsNotIsNot) {
  const float most = std::numeric_limits<float>::max();
  const std::complex<float> values[] = {{most, most}, {kInf, kNaN}, {kNaN, -kInf}, {kNaN, 1}, {1, kNaN}};
  const int64_t shape[] = {5};
  const std::vector<double> found = Magnitudes({values, DType::kComplex64, shape, {}});
  EXPECT_DOUBLE_EQ(found[0], std::sqrt(2.0) * most);
  EXPECT_EQ(found[1], HUGE_VAL);
  EXPECT_EQ(found[2], HUGE_VAL);
  EXPECT_TRUE(std::isnan(found[3]));
  EXPECT_TRUE(std::isnan(found[4]));
}

TEST(MagnitudeTest, AnyViewIsReadInCOrder) {
  std::vector<std::complex<double>> values(1200);
  for (size_t i = 0; i < values.size(); ++i) values[i] = {0, static_cast<double>(i)};
  const int64_t shape[] = {30, 40}, transposed[] = {1, 30};
  const std::vector<double> found = Magnitudes({values.data(), DType::kComplex128, shape, transposed});
  ASSERT_EQ(found.size(), 1200u);
  for (size_t i = 0; i < 30; ++i) {
    for (size_t j = 0; j < 40; ++j) EXPECT_EQ(found[i * 40 + j], static_cast<double>(i + 30 * j));
  }
  const int64_t none[] = {0, 3};
  EXPECT_TRUE(Magnitudes({nullptr, DType::kComplex64, none, {}}).empty());
  EXPECT_THAT(Magnitudes({values.data() + 7, DType::kComplex128, {}, {}}), ElementsAre(7));
}

}  // namespace
}  // namespace tdbg
