#include "tdbg/statistic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace tdbg {
namespace {

using testing::HasSubstr;

TEST(StatisticTest, AnIdIsTheSameTextForTheSameStatistic) {
  for (const auto& [written, id] : std::initializer_list<std::pair<const char*, const char*>>{
           {"count_above(0)", "count_above(0)"},
           {" count_above ( -0.0 )", "count_above(0)"},
           {"count_within(-9.4999, 9.49990)", "count_within(-9.4999,9.4999)"},
           {"count_within(-23,16.99999)", "count_within(-23,16.99999)"},
           {"sums(1)", "sums(1)"},
           {"sums(-1)", "sums(-1)"},
           {"value_counts(0,1e2)", "value_counts(0,100)"},
       }) {
    const auto statistic = Statistic::FromId(written);
    ASSERT_TRUE(statistic.ok()) << statistic.status().ToString();
    EXPECT_EQ(statistic->Id(), id);
    EXPECT_EQ(*Statistic::FromId(statistic->Id()), *statistic);
  }
}

TEST(StatisticTest, WhatIsNotInTheCatalogueIsRefusedWithTheCatalogue) {
  std::string many = "value_counts(0";
  for (int i = 1; i < 100'000; ++i) many += "," + std::to_string(i);
  many += ")";
  for (const char* id :
       {"", "count_above", "count_above()", "count_above(0,1)", "count_above(nan)", "count_above(inf)",
        "count_within(1)", "count_within(1,1)", "count_within(2,1)", "sums(0.5)", "sums(65)",
        "value_counts()", "median(0)", "count_above(0", "count_above(x)", many.c_str()}) {
    const auto statistic = Statistic::FromId(id);
    ASSERT_FALSE(statistic.ok()) << id;
    EXPECT_EQ(statistic.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(statistic.status().message(), HasSubstr("value_counts(value,...)"));
    EXPECT_LT(statistic.status().message().size(), 400u);
  }
}

TEST(StatisticTest, ANameHoldsTheIdAndTheTensorsNameWhateverThatIs) {
  for (const char* tensor : {"relu_output_0", "a/b)/c(0)@3", ""}) {
    const std::string name = StatisticTensorName("count_within(-1,1)", tensor);
    const auto parts = ParseStatisticTensorName(name);
    ASSERT_TRUE(parts) << name;
    EXPECT_EQ(parts->id, "count_within(-1,1)");
    EXPECT_EQ(parts->tensor, tensor);
  }
  EXPECT_FALSE(ParseStatisticTensorName("relu_output_0"));
  EXPECT_FALSE(ParseStatisticTensorName("statistic/relu_output_0"));
}

TEST(StatisticTest, TheAxisIsTheAdaptorsOrTheParameter) {
  const Statistic above = *Statistic::FromId("count_above(0)");
  EXPECT_EQ(above.AxisOf(1, 4), 1);
  EXPECT_EQ(above.AxisOf(-1, 4), -1);
  EXPECT_EQ(above.AxisOf(2, 2), -1) << "a rank that the adaptor did not mean";
  EXPECT_EQ(Statistic::FromId("sums(1)")->AxisOf(-1, 4), 1);
  EXPECT_EQ(Statistic::FromId("sums(-1)")->AxisOf(0, 4), 3);
  EXPECT_EQ(Statistic::FromId("sums(1)")->AxisOf(0, 1), -1);
  EXPECT_EQ(Statistic::FromId("value_counts(0)")->AxisOf(0, 3), -1);
}

TEST(StatisticTest, WhatIsRecordedIsReadAgain) {
  const auto round_trip = [](const char* id, const StatisticValue& value, DType dtype) {
    std::vector<std::byte> bytes(3);  // others' bytes before it, and no alignment
    EXPECT_EQ(AppendStatistic(*Statistic::FromId(id), value, &bytes), dtype);
    const int64_t shape[] = {static_cast<int64_t>(2 + value.values.size())};
    const auto read = DecodeStatistic({bytes.data() + 3, dtype, shape, {}});
    ASSERT_TRUE(read.ok());
    EXPECT_EQ(*read, value);
  };
  round_trip("count_above(0)", {1568, 2, {0, 3, 1568}}, DType::kInt32);
  round_trip("count_above(0)", {0, 0, {}}, DType::kInt32);
  round_trip("count_above(0)", {uint64_t{1} << 31, 2, {1, 0x1p31}}, DType::kInt64);
  round_trip("sums(1)", {4, 2, {0.5, -1e300, std::numeric_limits<double>::infinity()}}, DType::kFloat64);
}

TEST(StatisticTest, WhatIsNoStatisticIsRefused) {
  const int32_t numbers[] = {1, 2, 3, 4};
  const int64_t one[] = {1}, square[] = {2, 2}, four[] = {4};
  EXPECT_EQ(DecodeStatistic({numbers, DType::kInt32, one, {}}).status().code(), Code::kDataLoss);
  EXPECT_EQ(DecodeStatistic({numbers, DType::kInt32, square, {}}).status().code(), Code::kDataLoss);
  EXPECT_EQ(DecodeStatistic({numbers, DType::kFloat32, four, {}}).status().code(), Code::kDataLoss);
}

}  // namespace
}  // namespace tdbg
