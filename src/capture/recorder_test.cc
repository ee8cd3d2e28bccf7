#include "capture/recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "capture/openmp_team.h"
#include "capture/testing.h"

namespace tdbg::capture {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

TEST_F(RecorderTest, AFewRowsReachTheSinkInOneCallAndBecomeVisibleTogether) {
  Start(plan::Plan::Default());
  const auto w = Define("w", "weight", {4});
  const auto b = Define("b", "bias", {2});
  Step(ModeKey::kTrain, [&] {
    PutFloats(w, {1, 2, 3, 4});
    PutFloats(b, {0, -1});
  });
  EXPECT_THAT(sink_.log, ElementsAre("summaries", "commit"));
  ASSERT_EQ(sink_.summaries.size(), 2u);
  EXPECT_EQ(sink_.summaries[0].mean, 2.5);
  EXPECT_EQ(sink_.summaries[1].zero_count, 1u);
  EXPECT_EQ(sink_.commits[0].global_step, 0);
  EXPECT_EQ(sink_.commits[0].mode, 1);
}

TEST_F(RecorderTest, WhatADeviceComputedIsTakenAsItIs) {
  Start(PlanWithStatistics({"count_above(0)"}));
  const auto y = recorder_->Define(
      {.name = "y", .kind = "output", .dtype = DType::kFloat32, .shape = {2, 3}, .unit_axis = 1});
  const std::vector<Statistic> due = recorder_->Statistics(y);
  ASSERT_EQ(due.size(), 1u);
  Step(ModeKey::kTrain, [&] {
    recorder_->PutStatistic(y, due[0], {2, 2, {0, 1, 2}}, {});
    recorder_->PutStatistic(y, *Statistic::FromId("sums(0)"), {2, 2, {0, 1}}, {});  // nobody asked for it
  });
  ASSERT_EQ(sink_.statistics.size(), 1u);
  EXPECT_THAT(sink_.statistics[0].value.values, ElementsAre(0, 1, 2));
}

TEST_F(RecorderTest, BytesThatADeviceBringsBesideItsStatisticsAreKeptWhereTheyAreDue) {
  Start(PlanWithRaw("weights", 2));
  const auto w = Define("w", "weight", {2});
  const float values[] = {1, 2};
  const int64_t shape[] = {2};
  for (int i = 0; i < 3; ++i) {
    Step(ModeKey::kTrain, [&] {
      Summary summary;
      summary.count = 2;
      recorder_->PutSummary(w, summary, {}, {});
      recorder_->PutRaw(w, {values, DType::kFloat32, shape, {}}, {});
      recorder_->PutRaw(77, {values, DType::kFloat32, shape, {}}, {});  // nobody's
    });
  }
  EXPECT_THAT(sink_.raws, ElementsAre(std::pair(0, w), std::pair(2, w)));
  EXPECT_EQ(std::memcmp(sink_.raw_bytes[1].data(), values, sizeof values), 0);
  EXPECT_THAT(sink_.summaries, SizeIs(3));
}

TEST_F(RecorderTest, ModesCountForThemselvesAndGlobalStepsCountAll) {
  Start(plan::Plan::Default());
  for (const ModeKey mode : {ModeKey::kTrain, ModeKey::kTrain, ModeKey::kEval, ModeKey::kTrain}) Step(mode);
  std::vector<int64_t> mode_steps;
  for (const format::Commit& c : sink_.commits) mode_steps.push_back(c.mode_step);
  EXPECT_THAT(mode_steps, ElementsAre(0, 1, 0, 2));
  EXPECT_EQ(recorder_->global_step(), 3);
  EXPECT_EQ(recorder_->mode_step(ModeKey::kTrain), 2);
  EXPECT_EQ(recorder_->mode_step(ModeKey::kPredict), -1);
  EXPECT_EQ(recorder_->mode_step(ModeKey::kGlobal), 3);
}

TEST_F(RecorderTest, ABatchSaysWhetherAnythingInItIsNotFinite) {
  Start(plan::Plan::Default());
  const auto a = Define("a", "weight", {3}), b = Define("b", "gradient", {2});
  const std::vector<float> finite = {1, 2, 3}, infinite = {1, INFINITY}, nan = {NAN, 0, 0}, fine = {0, -1};
  const std::vector<Recorder::Id> ids = {a, b};
  const auto put = [&](const std::vector<float>& x, const std::vector<float>& y) {
    bool said = false;
    Step(ModeKey::kTrain, [&] {
      const std::vector<const void*> data = {x.data(), y.data()};
      said = recorder_->PutMany(ids, data, {});
    });
    return said;
  };
  EXPECT_FALSE(put(finite, fine));
  EXPECT_TRUE(put(finite, infinite));
  EXPECT_TRUE(put(nan, fine));
  EXPECT_FALSE(put(finite, fine));
}

TEST_F(RecorderTest, AContinuedTrainingCountsOn) {
  Start(plan::Plan::Default(), {.first_step = 100});
  Step(ModeKey::kTrain);
  Step(ModeKey::kEval);
  EXPECT_EQ(sink_.commits[0].global_step, 100);
  EXPECT_EQ(sink_.commits[0].mode_step, 100);
  EXPECT_EQ(sink_.commits[1].mode_step, 0);
}

TEST_F(RecorderTest, WhereNothingIsDueOnlyTheHeartbeatSaysThatAStepPassed) {
  plan::Plan plan = plan::Plan::Default();
  plan.summaries_every = 3;
  Start(plan);
  const auto w = Define("w", "weight", {1});
  for (int i = 0; i < 4; ++i) Step(ModeKey::kTrain, [&] { PutFloats(w, {1}); });
  EXPECT_THAT(sink_.heartbeats, ElementsAre(1, 2));
  EXPECT_EQ(sink_.summaries.size(), 2u);
  EXPECT_EQ(sink_.commits[1].global_step, 3);
}

TEST_F(RecorderTest, AScalarMakesAStepOfTheRun) {
  plan::Plan plan = plan::Plan::Default();
  plan.summaries_every = 0;
  Start(plan);
  const auto lr = recorder_->DefineScalar("lr", "");
  EXPECT_THAT(sink_.defs[0].collections, ElementsAre("context"));
  EXPECT_FALSE(recorder_->BeginStep(ModeKey::kTrain)) << "no tensor is due";
  recorder_->PutScalar(lr, 0.1, {});
  recorder_->EndStep(true);
  ASSERT_EQ(sink_.commits.size(), 1u);
  EXPECT_EQ(sink_.commits[0].flags, format::kCommitSkipped);
  EXPECT_EQ(sink_.scalars[0].value, 0.1);
}

TEST_F(RecorderTest, ContextOffMeansNoContextButAUsersMetricsStay) {
  plan::Plan plan = plan::Plan::Default();
  plan.context = false;
  plan.summaries_every = 0;
  Start(plan);
  EXPECT_EQ(recorder_->DefineScalar("lr", ""), Run::kNotWanted);
  EXPECT_NE(recorder_->DefineScalar("accuracy", "metrics"), Run::kNotWanted);
  recorder_->PutContext("optimizer", "{}");
  Step(ModeKey::kTrain);
  EXPECT_THAT(sink_.commits, IsEmpty());
}

TEST_F(RecorderTest, RawTensorsComeAfterTheStatisticsAndOnlyWhenDue) {
  Start(PlanWithRaw("weights", 2));
  const auto w = Define("w", "weight", {2});
  const auto g = Define("g", "gradient", {2});
  const float values[] = {1, 2};
  const void* data[] = {values, values};
  const Recorder::Id ids[] = {w, g};
  for (int i = 0; i < 3; ++i) Step(ModeKey::kTrain, [&] { recorder_->PutMany(ids, data, {}); });
  EXPECT_THAT(sink_.raws, ElementsAre(std::pair(0, w), std::pair(2, w)));
  EXPECT_THAT(sink_.log,
              ElementsAre("summaries", "raw", "commit", "summaries", "commit", "summaries", "raw", "commit"));
  EXPECT_EQ(recorder_->counters().raws, 2u);
}

TEST_F(RecorderTest, AScriptsOwnTensorIsKeptWheneverItIsPut) {
  Start(plan::Plan{});
  const auto mine =
      recorder_->Define({.name = "mine", .dtype = DType::kFloat32, .shape = {2}, .always = true});
  EXPECT_EQ(Define("other", "weight", {2}), Run::kNotWanted);
  PutFloats(mine, {1, 2});  // before the first step: belongs to it
  Step(ModeKey::kTrain);
  Step(ModeKey::kTrain);
  Step(ModeKey::kTrain, [&] { PutFloats(mine, {5, 6}); });
  const float values[] = {3, 4};
  const void* data[] = {values};
  Step(ModeKey::kTrain, [&] { recorder_->PutMany(std::span(&mine, 1), data, {}); });
  EXPECT_THAT(sink_.raws, ElementsAre(std::pair(0, mine), std::pair(2, mine), std::pair(3, mine)));
  EXPECT_THAT(sink_.summaries, IsEmpty());
}

TEST_F(RecorderTest, WhatIsAlwaysKeptIsATensorOfItsOwnAlthoughItsNameHasAnother) {
  Start(PlanWithRaw("weights", 2));
  const auto w = Define("w", "weight", {2});
  const TensorSpec spec = {
      .name = "w", .kind = "weight", .dtype = DType::kFloat32, .shape = {2}, .always = true};
  const auto always = recorder_->Define(spec);
  EXPECT_NE(w, always);
  EXPECT_EQ(recorder_->Define(spec), always);
  Step(ModeKey::kTrain, [&] { PutFloats(w, {1, 2}); });
  Step(ModeKey::kTrain, [&] { PutFloats(w, {1, 2}); });
  Step(ModeKey::kTrain, [&] { PutFloats(always, {3, 4}); });
  EXPECT_THAT(sink_.raws, ElementsAre(std::pair(0, w), std::pair(2, always)));
}

TEST_F(RecorderTest, StatisticsMayBeTakenAtTheSavedStepsOnlyAndWithoutValues) {
  plan::Plan plan = PlanWithRaw("weights", 2);
  for (plan::CollectionPlan& c : plan.collections) {
    c.summaries = c.raw_values = false;
    c.summaries_when_saved = true;
  }
  Start(plan);
  const auto w = Define("w", "weight", {2});
  for (int i = 0; i < 4; ++i) Step(ModeKey::kTrain, [&] { PutFloats(w, {1, 2}); });
  EXPECT_EQ(sink_.summaries.size(), 2u);
  EXPECT_THAT(sink_.raws, IsEmpty());
}

// smdebug: a step in which nothing was written does not exist.
TEST_F(RecorderTest, AnEmptyStepIsNoneWhereThePlanSaysSo) {
  plan::Plan plan = PlanWithRaw("weights", 1);
  Start(plan);
  Step(ModeKey::kTrain);
  EXPECT_EQ(sink_.commits.size(), 1u);
  plan.empty_steps = false;
  Start(plan);
  Step(ModeKey::kTrain);
  EXPECT_EQ(sink_.commits.size(), 1u);
  EXPECT_THAT(sink_.heartbeats, ElementsAre(0));
  // Nor is a tensor of which nothing was ever saved.
  const auto w = Define("w", "weight", {2});
  Define("b", "weight", {2});
  EXPECT_THAT(sink_.defs, IsEmpty());
  Step(ModeKey::kTrain, [&] { PutFloats(w, {1, 2}); });
  ASSERT_EQ(sink_.defs.size(), 1u);
  EXPECT_EQ(sink_.defs[0].name, "w");
}

TEST_F(RecorderTest, AStepIsTakenBackUnlessItHoldsSomething) {
  Start(plan::Plan::Default());
  const auto w = Define("w", "weight", {1});
  Step(ModeKey::kTrain);
  recorder_->BeginStep(ModeKey::kTrain);
  recorder_->CancelStep();
  EXPECT_EQ(sink_.commits.size(), 1u);
  EXPECT_EQ(recorder_->global_step(), 0);
  EXPECT_FALSE(recorder_->Due(w)) << "no step is open";
  recorder_->CancelStep();  // nor is there anything to take back
  Step(ModeKey::kEval);
  EXPECT_EQ(sink_.commits.back().global_step, 1);
  EXPECT_EQ(recorder_->mode_step(ModeKey::kTrain), 0);
  recorder_->BeginStep(ModeKey::kTrain);
  PutFloats(w, {1});
  recorder_->CancelStep();
  EXPECT_EQ(sink_.commits.back().global_step, 2);
  EXPECT_EQ(sink_.commits.back().mode_step, 1);
}

TEST_F(RecorderTest, AStepThatIsLeftIsNone) {
  Start(plan::Plan::Default());
  const auto w = Define("w", "weight", {1});
  Step(ModeKey::kTrain, [&] { PutFloats(w, {1}); });
  recorder_->BeginStep(ModeKey::kTrain);
  PutFloats(w, {2});
  const auto accuracy = recorder_->DefineScalar("accuracy", "");
  recorder_->PutScalar(accuracy, 0.5, {});
  recorder_->LeaveStep();
  EXPECT_EQ(sink_.commits.size(), 1u);
  EXPECT_EQ(recorder_->global_step(), 0);
  EXPECT_EQ(recorder_->mode_step(ModeKey::kTrain), 0);
  recorder_->LeaveStep();  // nor is another one open
  Step(ModeKey::kEval, [&] { PutFloats(w, {3}); });
  EXPECT_EQ(sink_.commits.back().global_step, 1);
  recorder_->BeginEnd();
  recorder_->FinishEnd();
  ASSERT_EQ(sink_.commits.size(), 3u);
  EXPECT_EQ(sink_.commits.back().flags, format::kCommitOutside);
  EXPECT_EQ(sink_.summaries.size(), 2u) << "what the step that was left put into it is in no other";
  ASSERT_EQ(sink_.scalars.size(), 1u);
  EXPECT_EQ(sink_.scalars[0].point, static_cast<uint16_t>(StepPoint::kEnd));
}

TEST_F(RecorderTest, WhatAStepThatIsLeftHasAppendedIsDiscarded) {
  Start(plan::Plan::Default());
  recorder_->BeginStep(ModeKey::kTrain);
  recorder_->LeaveStep();
  EXPECT_EQ(sink_.discards, 0) << "there was nothing";
  recorder_->BeginStep(ModeKey::kTrain);
  recorder_->PutContext("optimizer", "{}");  // is in the journal by now, as raw values would be
  recorder_->LeaveStep();
  EXPECT_EQ(sink_.discards, 1);
  EXPECT_EQ(recorder_->mode_step(ModeKey::kTrain), -1);
  recorder_->BeginEnd();
  recorder_->FinishEnd();
  ASSERT_EQ(sink_.commits.size(), 1u) << "the context is to be seen";
  EXPECT_EQ(sink_.commits[0].flags, format::kCommitOutside);
}

TEST_F(RecorderTest, TensorsThatAreAbsentOrNotWantedAreSkipped) {
  Start(plan::Plan::Default());
  const auto w = Define("w", "weight", {1});
  EXPECT_EQ(Define("o", "output", {1}), Run::kNotWanted);
  const float value = 5;
  const void* data[] = {nullptr, &value, &value, &value};
  const Recorder::Id ids[] = {w, Run::kNotWanted, 77, w};
  Step(ModeKey::kTrain, [&] { recorder_->PutMany(ids, data, {}); });
  EXPECT_EQ(sink_.summaries.size(), 1u);
}

TEST_F(RecorderTest, TheSameNameIsTheSameTensorUnlessItsTypeOrShapeChanged) {
  Start(plan::Plan::Default());
  const auto first = Define("w", "weight", {2});
  EXPECT_EQ(Define("w", "weight", {2}), first);
  const auto second = Define("w", "weight", {3});
  EXPECT_NE(second, first);
  EXPECT_EQ(Define("w", "weight", {2}), first);
  EXPECT_NE(Define("w", "weight", {2}, DType::kFloat16), first);
  EXPECT_EQ(sink_.defs.size(), 3u);
  EXPECT_NE(recorder_->DefineScalar("w", "metrics"), first);
}

TEST_F(RecorderTest, OfTextNobodyMissesStatistics) {
  Start(PlanWithRaw("weights", 1));
  const auto w = Define("w", "weight", {2}, DType::kText);
  const uint32_t letters[2] = {'a', 'b'};
  const void* data[] = {letters};
  const Recorder::Id ids[] = {w};
  Step(ModeKey::kTrain, [&] { recorder_->PutMany(ids, data, {}); });
  EXPECT_THAT(sink_.dropped, IsEmpty());
  EXPECT_THAT(sink_.summaries, IsEmpty());
  EXPECT_EQ(sink_.raws.size(), 1u);
}

TEST_F(RecorderTest, ATypeWithoutStatisticsIsCountedOnce) {
  Start(PlanWithRaw("weights", 1));
  const auto w = Define("w", "weight", {2}, DType::kFloat8E5M2);
  const uint8_t values[2] = {};
  const void* data[] = {values};
  const Recorder::Id ids[] = {w};
  for (int i = 0; i < 3; ++i) Step(ModeKey::kTrain, [&] { recorder_->PutMany(ids, data, {}); });
  EXPECT_THAT(sink_.dropped, ElementsAre(format::DropCause::kUnsupported));
  EXPECT_THAT(sink_.summaries, IsEmpty());
  EXPECT_EQ(sink_.raws.size(), 3u);
}

TEST_F(RecorderTest, StatisticsOfComplexNumbersAreThoseOfTheirMagnitudes) {
  plan::Plan plan = PlanWithRaw("weights", 1);
  plan.histograms_every = 1;
  Start(plan);
  const auto w = Define("w", "weight", {300}, DType::kComplex64);
  const auto y = Define("y", "weight", {2}, DType::kComplex128);
  std::vector<float> values;
  for (int i = 0; i < 300; ++i) values.insert(values.end(), {3, i == 7 ? HUGE_VALF : -4.0f});
  const double other[] = {0, 0, 0, -2};
  const void* data[] = {values.data()};
  const Recorder::Id ids[] = {w};
  const uint8_t no[] = {0}, yes[] = {1};
  const int64_t shape[] = {2};
  Step(ModeKey::kTrain, [&] {
    recorder_->PutMany(ids, data, {}, no);
    recorder_->Put(y, {other, DType::kComplex128, shape, {}}, {});
  });
  Step(ModeKey::kTrain, [&] { recorder_->PutMany(ids, data, {.sub = 1}, yes); });
  EXPECT_THAT(sink_.dropped, IsEmpty());
  ASSERT_EQ(sink_.summaries.size(), 3u);
  const format::SummaryRow& row = sink_.summaries[0];
  EXPECT_EQ(row.count, 300u);
  EXPECT_EQ(row.pos_inf_count, 1u);
  EXPECT_EQ(row.min, 5);
  EXPECT_EQ(row.max, 5);
  EXPECT_EQ(row.l1, 5 * 299);
  EXPECT_THAT(sink_.histogram_of[0], ElementsAre(HistogramBucket{BucketOf(5.0), 299}));
  EXPECT_EQ(sink_.summaries[1].zero_count, 1u);
  EXPECT_EQ(sink_.summaries[1].mean, 1);
  EXPECT_EQ(recorder_->counters().repeats, 1u);
  EXPECT_EQ(sink_.summaries[2].mean, 5);
  EXPECT_THAT(sink_.raw_bytes, SizeIs(3)) << "the numbers themselves, as they are";
  EXPECT_THAT(sink_.raw_bytes[0], SizeIs(300 * 8));
  EXPECT_NE(sink_.defs[0].ToJson().find(R"("statistics_of":"magnitude")"), std::string::npos);
}

TEST_F(RecorderTest, HistogramsBelongToTheirRows) {
  Start(plan::Plan::Default());
  const auto small = Define("s", "weight", {255});
  const auto large = Define("l", "weight", {256});
  const auto other = Define("o", "bias", {300});
  Step(ModeKey::kTrain, [&] {
    PutFloats(large, std::vector<float>(256, 2.0f));
    PutFloats(small, std::vector<float>(255, 1.0f));
    PutFloats(other, std::vector<float>(300, -3.0f));
  });
  ASSERT_EQ(sink_.histogram_of.size(), 3u);
  EXPECT_THAT(sink_.histogram_of[0], ElementsAre(HistogramBucket{BucketOf(2.0), 256}));
  EXPECT_THAT(sink_.histogram_of[1], IsEmpty());
  EXPECT_THAT(sink_.histogram_of[2], ElementsAre(HistogramBucket{BucketOf(-3.0), 300}));
}

TEST_F(RecorderTest, ManyRowsReachTheSinkInPiecesWithTheirHistograms) {
  Start(plan::Plan::Default());
  constexpr size_t kCount = 600;
  std::vector<std::vector<float>> values;
  std::vector<Recorder::Id> ids;
  std::vector<const void*> data;
  for (size_t i = 0; i < kCount; ++i) {
    values.emplace_back(i % 2 == 0 ? 300 : 3, static_cast<float>(i + 1));
    ids.push_back(Define("w" + std::to_string(i), "weight", {static_cast<int64_t>(values[i].size())}));
  }
  for (const auto& v : values) data.push_back(v.data());
  const auto check = [&](size_t first) {
    ASSERT_EQ(sink_.summaries.size(), first + kCount);
    for (size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(sink_.summaries[first + i].tensor, ids[i]);
      ASSERT_EQ(sink_.summaries[first + i].mean, i + 1.0);
      const Histogram expected = i % 2 == 0 ? Histogram{{BucketOf(i + 1.0), 300}} : Histogram{};
      ASSERT_EQ(sink_.histogram_of[first + i], expected);
    }
  };
  Step(ModeKey::kTrain, [&] { recorder_->PutMany(ids, data, {}); });
  EXPECT_THAT(sink_.log, ElementsAre("summaries", "summaries", "summaries", "commit"));
  check(0);

  // Between steps there is no step that they could belong to: they wait, however many they are.
  sink_.log.clear();
  recorder_->PutMany(ids, data, {});
  EXPECT_THAT(sink_.log, IsEmpty());
  Step(ModeKey::kTrain);
  EXPECT_THAT(sink_.log, ElementsAre("summaries", "commit"));
  check(kCount);
  EXPECT_EQ(recorder_->counters().summaries, 2 * kCount);
}

TEST_F(RecorderTest, ATeamMakesTheSameRowsInTheSameOrder) {
  if (!OpenMpTeam::Available()) GTEST_SKIP() << "no libgomp in this process";
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> tensors;
  for (int i = 0; i < 200; ++i) {
    tensors.emplace_back(1 + random() % 5000);
    for (float& x : tensors.back()) x = normal(random);
  }
  const auto record = [&](int threads) {
    sink_ = FakeSink();
    Start(plan::Plan::Default(), {.parallel_from_bytes = 0});
    recorder_->ShareThreads(threads);
    std::vector<Recorder::Id> ids;
    std::vector<const void*> data;
    for (size_t i = 0; i < tensors.size(); ++i) {
      ids.push_back(Define("w" + std::to_string(i), "weight", {static_cast<int64_t>(tensors[i].size())}));
      data.push_back(tensors[i].data());
    }
    for (int step = 0; step < 20; ++step) Step(ModeKey::kTrain, [&] { recorder_->PutMany(ids, data, {}); });
    return std::pair(sink_.summaries, sink_.histogram_of);
  };
  const auto alone = record(1);
  for (const int threads : {2, 4}) {
    const auto shared = record(threads);
    ASSERT_EQ(shared.first.size(), alone.first.size());
    EXPECT_EQ(shared.second, alone.second);
    for (size_t i = 0; i < alone.first.size(); ++i) {
      ASSERT_EQ(shared.first[i].tensor, alone.first[i].tensor);
      ASSERT_EQ(shared.first[i].variance, alone.first[i].variance);
    }
  }
}

TEST_F(RecorderTest, ATeamCutsLargeTensorsAndItsSizeIsOfNoConsequence) {
  if (!OpenMpTeam::Available()) GTEST_SKIP() << "no libgomp in this process";
  std::mt19937 random(11);
  std::normal_distribution<float> normal(0.5f, 1);
  std::vector<float> large(700'001), small(300, 2.0f), inf_at_the_end(200'000, 1.0f);
  for (float& x : large) x = std::max(normal(random), 0.0f);
  inf_at_the_end.back() = std::numeric_limits<float>::infinity();
  std::vector<double> wide(300'000, 1e100);
  wide.back() = -1e100;
  const auto record = [&](int threads) {
    sink_ = FakeSink();
    Start(plan::Plan::Default(), {.parallel_from_bytes = 1});
    recorder_->ShareThreads(threads);
    const auto a = Define("a", "weight", {700'001}), b = Define("b", "weight", {300});
    const auto c = Define("c", "weight", {200'000}), d = Define("d", "weight", {700'001});
    const auto e = Define("e", "weight", {300'000}, DType::kFloat64);
    Step(ModeKey::kTrain, [&] {
      const std::vector<Recorder::Id> ids{a, b, c};
      const std::vector<const void*> data{large.data(), small.data(), inf_at_the_end.data()};
      recorder_->PutMany(ids, data, {});
      PutFloats(d, large);
      const int64_t elements = 300'000;
      recorder_->Put(e, {wide.data(), DType::kFloat64, {&elements, 1}, {}}, {});
    });
    return std::pair(sink_.summaries, sink_.histogram_of);
  };
  const auto alone = record(1), two = record(2), four = record(4);
  ASSERT_EQ(alone.first.size(), 5u);
  ASSERT_EQ(two.first.size(), 5u);
  EXPECT_EQ(two.second, alone.second) << "histograms are exact";
  EXPECT_EQ(four.second, alone.second);
  for (size_t i = 0; i < 5; ++i) {
    SCOPED_TRACE(i);
    const format::SummaryRow &x = alone.first[i], &y = two.first[i], &z = four.first[i];
    EXPECT_EQ(y.tensor, x.tensor);
    EXPECT_EQ(y.count, x.count);
    EXPECT_EQ(y.zero_count, x.zero_count);
    EXPECT_EQ(y.pos_inf_count, x.pos_inf_count);
    EXPECT_EQ(y.min, x.min);
    EXPECT_EQ(y.max, x.max);
    EXPECT_EQ(y.abs_min, x.abs_min);
    EXPECT_NEAR(y.mean, x.mean, 1e-7 * std::abs(x.mean));
    EXPECT_NEAR(y.variance, x.variance, 1e-6 * x.variance);
    EXPECT_NEAR(y.l2, x.l2, 1e-7 * x.l2);
    EXPECT_TRUE(y.m4 == x.m4 || std::abs(y.m4 - x.m4) < 1e-6 * x.m4) << y.m4 << " for " << x.m4;
    EXPECT_EQ(z.mean, y.mean);
    EXPECT_EQ(z.variance, y.variance);
    EXPECT_EQ(z.m4, y.m4);
    EXPECT_EQ(z.l1, y.l1);
  }
  EXPECT_EQ(two.first[2].pos_inf_count, 1u);
  EXPECT_EQ(two.first[4].variance, alone.first[4].variance) << "float64 is left whole";
  EXPECT_EQ(two.first[4].m4, alone.first[4].m4);
}

TEST_F(RecorderTest, WhatIsPutBetweenStepsBelongsToTheNext) {
  Start(PlanWithRaw("losses", 2));
  const auto loss = Define("loss", "loss", {1});
  PutFloats(loss, {1});
  Step(ModeKey::kTrain);
  PutFloats(loss, {2});
  Step(ModeKey::kTrain);
  EXPECT_EQ(sink_.summaries.size(), 2u);
  EXPECT_THAT(sink_.raws, ElementsAre(std::pair(0, loss))) << "not due at step 1";
  float kept = 0;
  std::memcpy(&kept, sink_.raw_bytes[0].data(), 4);
  EXPECT_EQ(kept, 1);
}

TEST_F(RecorderTest, FinalValuesLieOutsideTheSteps) {
  Start(PlanWithRaw("weights", 100));
  const auto w = Define("w", "weight", {1});
  Step(ModeKey::kTrain, [&] { PutFloats(w, {1}); });
  Step(ModeKey::kTrain, [&] { PutFloats(w, {2}); });
  recorder_->BeginEnd();
  PutFloats(w, {3});
  recorder_->FinishEnd();
  ASSERT_EQ(sink_.commits.size(), 3u);
  EXPECT_EQ(sink_.commits[2].flags, format::kCommitOutside);
  EXPECT_EQ(sink_.commits[2].global_step, 1);
  EXPECT_EQ(sink_.summaries[2].point, 1);
  EXPECT_THAT(sink_.raws, ElementsAre(std::pair(0, w), std::pair(1, w)))
      << "kept raw at all, so at the end too";
  EXPECT_FALSE(recorder_->BeginStep(ModeKey::kTrain));
}

TEST_F(RecorderTest, ContextIsWrittenWhenItChanges) {
  Start(plan::Plan::Default());
  Step(ModeKey::kTrain, [&] { recorder_->PutContext("optimizer", "{\"lr\":1}"); });
  Step(ModeKey::kTrain, [&] { recorder_->PutContext("optimizer", "{\"lr\":1}"); });
  Step(ModeKey::kTrain, [&] { recorder_->PutContext("optimizer", "{\"lr\":2}"); });
  ASSERT_EQ(sink_.contexts.size(), 2u);
  EXPECT_EQ(sink_.contexts[1].global_step, 2);
}

TEST_F(RecorderTest, AWorkerThatIsNotAmongThoseThatCaptureOnlyCountsSteps) {
  Start(plan::Plan::Default(), {.inert = true});
  EXPECT_EQ(Define("w", "weight", {1}), Run::kNotWanted);
  EXPECT_FALSE(recorder_->BeginStep(ModeKey::kTrain));
  recorder_->EndStep(false);
  EXPECT_THAT(sink_.heartbeats, ElementsAre(0));
}

TEST_F(RecorderTest, ANameThatIsNoUtf8IsMadeOne) {
  Start(plan::Plan::Default());
  Define("w\xff", "weight", {1});
  EXPECT_EQ(sink_.defs[0].name, "w\xef\xbf\xbd");
}

}  // namespace
}  // namespace tdbg::capture
