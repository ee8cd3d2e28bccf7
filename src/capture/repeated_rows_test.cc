// Rows of what did not change: said again, and what is due then.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "capture/recorder.h"
#include "capture/testing.h"

namespace tdbg::capture {
namespace {

using testing::ElementsAre;

using RepeatedRowsTest = RecorderTest;

TEST_F(RepeatedRowsTest, OfWhatDidNotChangeTheLastRowIsSaidAgainAndMemoryIsNotRead) {
  plan::Plan plan = PlanWithRaw("weights", 3);
  plan.histograms_every = 1;
  Start(plan);
  const auto w = Define("w", "weight", {300});
  std::vector<float> values(300, 1.0f);
  values[7] = -2;
  const void* data[] = {values.data()};
  const Recorder::Id ids[] = {w};
  const uint8_t no[] = {0}, yes[] = {1};
  Step(ModeKey::kTrain, [&] { recorder_->PutMany(ids, data, {}, yes); });  // there is no row yet
  const std::vector<float> before = values;
  values.assign(300, 5.0f);  // what is said here is wrong, which shows that nobody looks
  Step(ModeKey::kTrain, [&] { recorder_->PutMany(ids, data, {.sub = 2}, yes); });
  EXPECT_EQ(recorder_->counters().repeats, 1u);
  EXPECT_EQ(recorder_->counters().summaries, 2u);
  EXPECT_EQ(sink_.summaries[1].mean, sink_.summaries[0].mean);
  EXPECT_EQ(sink_.summaries[1].sub, 2u);
  EXPECT_EQ(sink_.histogram_of[1], sink_.histogram_of[0]);
  Step(ModeKey::kTrain, [&] { recorder_->PutMany(ids, data, {}, no); });
  EXPECT_EQ(sink_.summaries[2].mean, 5);
  const void* nowhere[] = {nullptr};
  Step(ModeKey::kTrain, [&] { recorder_->PutMany(ids, data, {}, yes); });
  EXPECT_EQ(sink_.summaries[3].mean, 5);
  for (int i = 0; i < 3; ++i) Step(ModeKey::kTrain, [&] { recorder_->PutMany(ids, nowhere, {}, yes); });
  ASSERT_EQ(sink_.summaries.size(), 7u);
  EXPECT_EQ(sink_.summaries[6].mean, 5);
  EXPECT_THAT(sink_.raws, ElementsAre(std::pair(0, w), std::pair(3, w))) << "in step 6 nothing is there";
}

TEST_F(RepeatedRowsTest, ARowIsSaidAgainWhereAHistogramIsDueThatNobodyMade) {
  plan::Plan plan = PlanWithRaw("weights", 1000);
  plan.histograms_every = 3;
  Start(plan);
  const auto w = Define("w", "weight", {300});
  std::vector<float> values(300, 1.0f);
  const void* there[] = {values.data()};
  const void* nowhere[] = {nullptr};
  const Recorder::Id ids[] = {w};
  const auto put = [&](std::span<const void* const> data, uint8_t unchanged) {
    Step(ModeKey::kTrain, [&] { recorder_->PutMany(ids, data, {}, {&unchanged, 1}); });
  };
  put(there, 0);
  values[0] = 1.5f;
  put(there, 0);  // changed, and no histogram is due
  put(nowhere, 1);
  put(nowhere, 1);  // due, and there is nothing to make it of
  ASSERT_EQ(sink_.summaries.size(), 4u);
  EXPECT_EQ(sink_.summaries[3].max, 1.5);
  EXPECT_EQ(sink_.summaries[3].histogram_bytes, 0u);
  EXPECT_EQ(sink_.summaries[3].flags, format::kRowHistogramNotDue);
  put(there, 1);
  put(there, 1);
  put(there, 1);  // due, and it can be looked at
  EXPECT_NE(sink_.summaries[6].histogram_bytes, 0u);
  put(there, 0);  // looked at, to be sure: nothing is new
  put(nowhere, 1);
  put(nowhere, 1);  // due
  ASSERT_EQ(sink_.summaries.size(), 10u);
  EXPECT_EQ(sink_.histogram_of[9], sink_.histogram_of[6]);
}

TEST_F(RepeatedRowsTest, WhatChangedWhileItWasNotThereIsNotSaidAgain) {
  Start(PlanWithRaw("weights", 1000));
  const auto w = Define("w", "weight", {2});
  std::vector<float> values = {1, 1};
  const void* there[] = {values.data()};
  const void* nowhere[] = {nullptr};
  const Recorder::Id ids[] = {w};
  const uint8_t changed[] = {0}, unchanged[] = {1};
  Step(ModeKey::kTrain, [&] { recorder_->PutMany(ids, there, {}, changed); });
  values = {2, 2};
  Step(ModeKey::kTrain, [&] { recorder_->PutMany(ids, nowhere, {}, changed); });
  Step(ModeKey::kTrain, [&] { recorder_->PutMany(ids, there, {}, unchanged); });
  ASSERT_EQ(sink_.summaries.size(), 2u);
  EXPECT_EQ(sink_.summaries[1].max, 2);
}

TEST_F(RepeatedRowsTest, AChangeInAStepWithoutStatisticsIsNotForgotten) {
  plan::Plan plan = PlanWithRaw("weights", 1);
  plan.summaries_every = 2;
  Start(plan);
  const auto w = Define("w", "weight", {2});
  std::vector<float> values = {1, 1};
  const void* data[] = {values.data()};
  const Recorder::Id ids[] = {w};
  for (const bool changed : {true, true, false}) {  // in step 1 nothing but raw bytes is due
    if (changed) values[0] += 1;
    const uint8_t unchanged[] = {!changed};
    Step(ModeKey::kTrain, [&] { recorder_->PutMany(ids, data, {}, unchanged); });
  }
  ASSERT_EQ(sink_.summaries.size(), 2u);
  EXPECT_EQ(sink_.summaries[1].max, 3);
}

// Two ways that agree: rows of tensors of which it is said that they did not change, and rows of the same
// tensors looked at again, whatever is due and however many there are.
TEST_F(RepeatedRowsTest, RepeatedRowsAreThoseOfASecondLook) {
  std::mt19937 random(7);
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  for (int round = 0; round < 8; ++round) {
    plan::Plan plan = PlanWithRaw("weights", 1 + static_cast<int64_t>(below(3)));
    plan.summaries_every = 1 + static_cast<int64_t>(below(3));
    plan.histograms_every = 1 + static_cast<int64_t>(below(4));
    const size_t count = 1 + below(400);  // more than rows go to the sink at once
    std::vector<std::vector<float>> values(count);
    for (auto& v : values) v.assign(1 + below(2) * 400, 0.5f);
    const size_t steps = 6;
    std::vector<std::vector<uint8_t>> unchanged(steps, std::vector<uint8_t>(count));
    std::vector<std::vector<std::vector<float>>> at(steps);
    for (size_t s = 0; s < steps; ++s) {
      for (size_t i = 0; i < count; ++i) {
        unchanged[s][i] = s != 0 && below(3) != 0;
        if (!unchanged[s][i]) values[i][below(values[i].size())] = static_cast<float>(below(1000)) - 500;
      }
      at[s] = values;
    }
    FakeSink sinks[2];
    uint64_t repeats[2];
    for (int way = 0; way < 2; ++way) {
      Recorder recorder(*plan::CompiledPlan::Compile(plan), &sinks[way],
                        {.statistics_threads = 1, .parallel_from_bytes = below(2) == 0 ? 1u : 2u << 20});
      recorder.ShareThreads(round % 2 + 1);
      std::vector<Recorder::Id> ids;
      for (size_t i = 0; i < count; ++i) {
        ids.push_back(recorder.Define({.name = "w" + std::to_string(i),
                                       .kind = "weight",
                                       .dtype = DType::kFloat32,
                                       .shape = {static_cast<int64_t>(values[i].size())}}));
      }
      for (size_t s = 0; s < steps; ++s) {
        recorder.BeginStep(ModeKey::kTrain);
        std::vector<const void*> data;
        for (const auto& v : at[s]) data.push_back(v.data());
        recorder.PutMany(ids, data, {}, way == 0 ? std::span<const uint8_t>() : unchanged[s]);
        recorder.EndStep(false);
      }
      repeats[way] = recorder.counters().repeats;
    }
    std::vector<std::string> rows[2];
    for (int way = 0; way < 2; ++way) {
      for (size_t r = 0; r < sinks[way].summaries.size(); ++r) {
        format::SummaryRow row = sinks[way].summaries[r];
        row.histogram_offset = 0;
        std::string text(reinterpret_cast<const char*>(&row), sizeof row);
        for (const HistogramBucket& b : sinks[way].histogram_of[r])
          text.append(reinterpret_cast<const char*>(&b.count), sizeof b.count);
        rows[way].push_back(std::move(text));
      }
      std::ranges::sort(rows[way]);  // within a step the repeated ones come first
    }
    EXPECT_EQ(rows[0], rows[1]);
    // Values that are due are there at every due step: a rule that compares two finds both.
    EXPECT_EQ(sinks[0].raws, sinks[1].raws);
    EXPECT_EQ(sinks[0].raw_bytes, sinks[1].raw_bytes);
    EXPECT_EQ(repeats[0], 0u);
    EXPECT_TRUE(repeats[1] > 0 || plan.summaries_every > 1 || count < 10);
  }
}

}  // namespace
}  // namespace tdbg::capture
