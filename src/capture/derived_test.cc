// Derived statistics: when they are due, of what, and what becomes of tensors that have none.
#include <gmock/gmock.h>

#include "capture/recorder.h"
#include "capture/testing.h"

namespace tdbg::capture {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST_F(RecorderTest, DerivedStatisticsAreTensorsBesideTheirTensorWhichIsNotKept) {
  Start(PlanWithStatistics({"count_above(0)", "count_within(-1,1)"}));
  const auto w = Define("w", "weight", {2});
  const auto y = recorder_->Define({.name = "relu_output_0",
                                    .kind = "output",
                                    .module_kind = "relu",
                                    .dtype = DType::kFloat32,
                                    .shape = {2, 3},
                                    .variable_shape = true,
                                    .unit_axis = 1});
  ASSERT_EQ(sink_.defs.size(), 4u);
  EXPECT_EQ(sink_.defs[2].name, "statistic/count_above(0)/relu_output_0");
  EXPECT_EQ(sink_.defs[2].kind, kStatisticKind);
  EXPECT_EQ(sink_.defs[2].dtype, DType::kInt32);
  EXPECT_THAT(sink_.defs[2].shape, ElementsAre(5));
  Step(ModeKey::kTrain, [&] {
    EXPECT_TRUE(recorder_->Due(y));
    PutFloats(w, {1, 2});
    const float values[] = {0, 2, 0.5f, -1, 3, 0, 0, 0, 9};
    const int64_t two[] = {2, 3}, three[] = {3, 3};
    recorder_->Put(y, {values, DType::kFloat32, two, {}}, {});
    recorder_->Put(y, {values, DType::kFloat32, three, {}}, {.sub = 2});
  });
  ASSERT_EQ(sink_.statistics.size(), 4u);
  EXPECT_EQ(sink_.statistics[0].name, "statistic/count_above(0)/relu_output_0");
  EXPECT_EQ(sink_.statistics[0].value, (StatisticValue{2, 2, {0, 2, 1}}));
  EXPECT_EQ(sink_.statistics[1].name, "statistic/count_within(-1,1)/relu_output_0");
  EXPECT_EQ(sink_.statistics[1].value, (StatisticValue{2, 2, {1, 0, 2}}));
  EXPECT_EQ(sink_.statistics[2].sub, (format::SubKey{2, format::Point::kNone}));
  EXPECT_EQ(sink_.statistics[2].value, (StatisticValue{3, 3, {0, 2, 2}}));
  EXPECT_EQ(sink_.summaries.size(), 1u) << "the weight's";
  EXPECT_TRUE(sink_.raws.empty());
  EXPECT_EQ(sink_.log.back(), "commit");
}

TEST_F(RecorderTest, DerivedStatisticsAreDueWithTheStatistics) {
  plan::Plan plan = PlanWithStatistics({"value_counts(0)"});
  plan.summaries_every = 2;
  Start(plan);
  const auto y = Define("tokens_input_0", "output", {4});
  PutFloats(y, {0, 0, 0, 0});  // between the steps: it belongs to the next one
  for (int i = 0; i < 3; ++i) {
    Step(ModeKey::kTrain, [&] {
      EXPECT_EQ(recorder_->Due(y), i % 2 == 0);
      PutFloats(y, {0, 1, 2, 0});
    });
    PutFloats(y, {0, 1, 1, 1});
  }
  std::vector<std::pair<int64_t, double>> counts;
  for (const auto& s : sink_.statistics) counts.push_back({s.step, s.value.values[0]});
  EXPECT_THAT(counts,
              ElementsAre(std::pair(0, 4.0), std::pair(0, 2.0), std::pair(2, 1.0), std::pair(2, 2.0)));
}

TEST_F(RecorderTest, DerivedStatisticsOfABatch) {
  Start(PlanWithStatistics({"sums(0)"}));
  const auto a = Define("a", "output", {2}), b = Define("b", "weight", {2}), c = Define("c", "output", {2});
  const float values[] = {1, 2, 3, 4, 5, 6};
  const Recorder::Id ids[] = {a, b, c};
  const void* const data[] = {values, values + 2, nullptr};
  Step(ModeKey::kTrain, [&] { recorder_->PutMany(ids, data, {}); });
  ASSERT_EQ(sink_.statistics.size(), 1u);
  EXPECT_THAT(sink_.statistics[0].value.values, ElementsAre(1, 2));
  EXPECT_EQ(sink_.summaries.size(), 1u);
}

TEST_F(RecorderTest, WithoutAUnitAxisOrOfATypeWithoutStatisticsNothingIsDerived) {
  Start(PlanWithStatistics({"count_above(0)"}));
  const auto no_axis = Define("y", "output", {2});
  const auto complex = recorder_->Define(
      {.name = "z", .kind = "output", .dtype = DType::kComplex64, .shape = {1, 2}, .unit_axis = 1});
  EXPECT_NE(no_axis, Run::kNotWanted) << "its definition says why there is none";
  Step(ModeKey::kTrain, [&] {
    PutFloats(no_axis, {1, 2});
    const float values[4] = {};
    const int64_t shape[] = {1, 2};
    recorder_->Put(complex, {values, DType::kComplex64, shape, {}}, {});
  });
  EXPECT_TRUE(sink_.statistics.empty());
  EXPECT_THAT(sink_.dropped, ElementsAre(format::DropCause::kUnsupported));
}

TEST_F(RecorderTest, OfAnotherRankTheUnitsAreAlongAnotherAxis) {
  Start(PlanWithStatistics({"count_above(0)"}));
  const auto define = [&](std::vector<int64_t> shape) {
    const int axis = static_cast<int>(shape.size()) - 1;
    return recorder_->Define({.name = "fc_output_0",
                              .kind = "output",
                              .dtype = DType::kFloat32,
                              .shape = std::move(shape),
                              .variable_shape = true,
                              .unit_axis = axis});
  };
  const auto flat = define({2, 3}), deep = define({2, 1, 3});
  EXPECT_NE(flat, deep);
  EXPECT_EQ(define({8, 3}), flat);
  Step(ModeKey::kTrain, [&] {
    const float values[] = {1, 0, 0, 1, 0, 0};
    const int64_t shape[] = {2, 1, 3};
    recorder_->Put(deep, {values, DType::kFloat32, shape, {}}, {});
  });
  ASSERT_EQ(sink_.statistics.size(), 1u);
  EXPECT_THAT(sink_.statistics[0].value.values, ElementsAre(2, 0, 0));
}

}  // namespace
}  // namespace tdbg::capture
