// What a recorder leaves out where looking at large tensors takes too much of a training's time.
#include "format/overhead.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "capture/recorder.h"
#include "capture/testing.h"

namespace tdbg::capture {
namespace {

using testing::ElementsAre;

constexpr int64_t kElements = 128 << 10;  // 512 KiB
constexpr int64_t kMillisecond = 1'000'000;

/// Each look at a large tensor takes `look`: from the first to the second time that somebody asks meanwhile.
class SlowClock : public base::ManualClock {
 public:
  int64_t MonotonicNanos() const override {
    if (looks && asked_++ % 2 == 1) passed_ += look;
    return base::ManualClock::MonotonicNanos() + passed_;
  }
  int64_t look = 10 * kMillisecond;
  bool looks = false;

 private:
  mutable int asked_ = 0;
  mutable int64_t passed_ = 0;
};

class OverheadTest : public RecorderTest {
 protected:
  void StartLimited(plan::Plan plan = plan::Plan::Default()) {
    recorder_ = std::make_unique<Recorder>(*plan::CompiledPlan::Compile(std::move(plan)), &sink_,
                                           RecorderOptions{.clock = &clock_});
    large_ = Define("large", "weight", {kElements});
    small_ = Define("small", "weight", {4});
  }
  void Steps(int n, uint8_t unchanged = 0) {
    for (int i = 0; i < n; ++i) {
      clock_.Advance(kMillisecond);
      const Recorder::Id ids[] = {large_, small_};
      const void* const data[] = {values_.data(), values_.data()};
      const uint8_t said[] = {unchanged, 0};
      Step(ModeKey::kTrain, [&] {
        clock_.looks = true;
        recorder_->PutMany(ids, data, {},
                           says_ ? std::span<const uint8_t>(said) : std::span<const uint8_t>());
        clock_.looks = false;
      });
    }
  }
  int RowsOf(Recorder::Id id) const {
    return static_cast<int>(std::ranges::count(sink_.summaries, id, &format::SummaryRow::tensor));
  }
  format::Overhead Said() const {
    for (auto record = sink_.contexts.rbegin(); record != sink_.contexts.rend(); ++record)
      if (record->topic == format::kOverhead) return format::Overhead::FromJson(record->json);
    return {};
  }

  SlowClock clock_;
  std::vector<float> values_ = std::vector<float>(kElements, 1.0f);
  Recorder::Id large_ = 0, small_ = 0;
  bool says_ = false;
};

TEST_F(OverheadTest, ALargeTensorIsLookedAtNowAndThenAndTheRunSaysSo) {
  StartLimited();
  Steps(1024);
  EXPECT_EQ(RowsOf(small_), 1024);
  EXPECT_LT(RowsOf(large_), 16);
  EXPECT_GT(RowsOf(large_), 1);
  const format::Overhead said = Said();
  ASSERT_EQ(said.tensors.size(), 1u);
  EXPECT_EQ(said.tensors[0].name, "large");
  EXPECT_GE(said.tensors[0].every, 128) << "10 ms, of which a step has 0.05 ms";
  EXPECT_EQ(said.share, 0.05);
  EXPECT_EQ(said.every, 1);
  EXPECT_TRUE(sink_.dropped.empty());
}

TEST_F(OverheadTest, WhatDidNotChangeIsSaidAgainInEachStepAndLookedAtOnlyWhereThereIsTime) {
  says_ = true;
  StartLimited();
  Steps(40);
  const int looks = static_cast<int>(recorder_->counters().summaries - recorder_->counters().repeats) - 40;
  Steps(1, 0);  // it changes, and there is no time
  const int before = RowsOf(large_);
  Steps(20, 1);
  EXPECT_EQ(RowsOf(large_), before) << "the last row is another tensor's by now";
  EXPECT_LT(looks, 40);
  Steps(1024, 1);  // among them one at which there is time
  const uint64_t repeats = recorder_->counters().repeats;
  EXPECT_GT(repeats, 500u);
  Steps(20, Run::kWorthALook);
  EXPECT_EQ(recorder_->counters().repeats, repeats + 20) << "there is no time to make sure";
}

TEST_F(OverheadTest, ValuesThatAreDueAreKeptAllTheSame) {
  StartLimited(PlanWithRaw("weights", 100));
  Steps(901);
  EXPECT_EQ(std::ranges::count(sink_.raws, large_, &std::pair<int64_t, uint32_t>::second), 10);
}

TEST_F(OverheadTest, WhoAsksForMoreGetsIt) {
  StartLimited();
  Steps(100);
  const int before = RowsOf(large_);
  EXPECT_EQ(recorder_->CaptureMore({"weights"}, 7, false), 2u);
  Steps(20);
  EXPECT_GE(RowsOf(large_), before + 7);
  EXPECT_LE(RowsOf(large_), before + 8);
}

TEST_F(OverheadTest, WeightsAtTheEndAreLookedAtWhateverThatTakes) {
  StartLimited();
  Steps(100);
  const int before = RowsOf(large_);
  recorder_->BeginEnd();
  const Recorder::Id ids[] = {large_};
  const void* const data[] = {values_.data()};
  recorder_->PutMany(ids, data, {});
  recorder_->FinishEnd();
  EXPECT_EQ(RowsOf(large_), before + 1);
}

TEST_F(OverheadTest, AtOneStepInFourIsWhatWasAskedFor) {
  clock_.look = 0;
  StartLimited();
  Steps(6);
  recorder_->LookEvery(4);
  Steps(10);
  std::vector<int64_t> steps;
  for (const format::Commit& commit : sink_.commits) steps.push_back(commit.global_step);
  EXPECT_THAT(steps, ElementsAre(0, 1, 2, 3, 4, 5, 8, 12));
  EXPECT_EQ(Said().every, 4);
  EXPECT_EQ(Said().from_step, 6);
  recorder_->LookEvery(1);
  Steps(2);
  EXPECT_EQ(sink_.commits.back().global_step, 17);
  EXPECT_FALSE(Said().holds());
}

TEST_F(OverheadTest, StepsAtWhichValuesAreDueHaveTheirStatistics) {
  clock_.look = 0;
  StartLimited(PlanWithRaw("weights", 5));
  recorder_->LookEvery(64);
  Steps(12);
  std::vector<int64_t> steps;
  for (const format::Commit& commit : sink_.commits) steps.push_back(commit.global_step);
  EXPECT_THAT(steps, ElementsAre(0, 5, 10));
  EXPECT_EQ(RowsOf(small_), 3);
}

TEST_F(OverheadTest, OfASparseTensorTheNumbersAreThoseOfTheDenseOne) {
  Start(plan::Plan::Default());
  std::vector<float> dense(1000, 0.0f);
  std::vector<float> some(7);
  std::iota(some.begin(), some.end(), -3.0f);  // with a 0 in it
  std::ranges::copy(some, dense.begin() + 100);
  const auto a = Define("a", "gradient", {1000}), b = Define("b", "gradient", {1000});
  const int64_t seven[] = {7};
  Step(ModeKey::kTrain, [&] {
    PutFloats(a, dense);
    recorder_->PutSparse(b, {some.data(), DType::kFloat32, seven, {}}, 1000, {});
  });
  ASSERT_EQ(sink_.summaries.size(), 2u);
  const format::SummaryRow &of_dense = sink_.summaries[0], &of_sparse = sink_.summaries[1];
  EXPECT_EQ(of_sparse.count, 1000u);
  EXPECT_EQ(of_sparse.zero_count, 994u);
  EXPECT_EQ(of_sparse.min, -3);
  EXPECT_EQ(of_sparse.max, 3);
  EXPECT_EQ(of_sparse.abs_min, of_dense.abs_min);
  EXPECT_NEAR(of_sparse.mean, of_dense.mean, 1e-9);
  EXPECT_NEAR(of_sparse.variance, of_dense.variance, 1e-9);
  EXPECT_NEAR(of_sparse.m4, of_dense.m4, 1e-6);
  EXPECT_NEAR(of_sparse.l1, of_dense.l1, 1e-9);
  EXPECT_NEAR(of_sparse.l2, of_dense.l2, 1e-9);
  EXPECT_EQ(sink_.histogram_of[1], sink_.histogram_of[0]);
}

TEST_F(OverheadTest, OfASparseTensorWithoutValuesAllIsZero) {
  Start(plan::Plan::Default());
  const auto id = Define("a", "gradient", {1000});
  const int64_t none[] = {0};
  Step(ModeKey::kTrain, [&] { recorder_->PutSparse(id, {nullptr, DType::kFloat32, none, {}}, 1000, {}); });
  ASSERT_EQ(sink_.summaries.size(), 1u);
  EXPECT_EQ(sink_.summaries[0].zero_count, 1000u);
  EXPECT_EQ(sink_.summaries[0].max, 0);
  EXPECT_EQ(sink_.summaries[0].l2, 0);
}

}  // namespace
}  // namespace tdbg::capture
