// When a tensor's histogram is taken with its statistics, and that nothing else depends on it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "capture/openmp_team.h"
#include "capture/testing.h"

namespace tdbg::capture {
namespace {

using testing::ElementsAre;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

plan::Plan PlanWithHistograms(int64_t every) {
  plan::Plan plan = plan::Plan::Default();
  plan.histograms_every = every;
  return plan;
}

class HistogramsTest : public RecorderTest {
 protected:
  // Steps of a weight's rows that have a histogram. Each of the others says that there are some.
  std::vector<int64_t> StepsWithHistogram() {
    std::vector<int64_t> steps;
    for (size_t i = 0; i < sink_.summaries.size(); ++i) {
      const bool there = sink_.summaries[i].histogram_bytes != 0;
      EXPECT_EQ(sink_.summaries[i].flags, there ? 0u : format::kRowHistogramNotDue) << i;
      if (there) steps.push_back(static_cast<int64_t>(i));
    }
    return steps;
  }
  // 30 steps of one weight: as it always is, but for one of its values at some steps.
  std::vector<int64_t> WithAt(const std::vector<std::pair<int, std::vector<float>>>& instead) {
    sink_ = FakeSink();
    Start(PlanWithHistograms(10));
    const auto w = Define("w", "weight", {512});
    std::vector<float> usual(512);
    for (size_t i = 0; i < usual.size(); ++i)
      usual[i] = (i % 2 == 0 ? 1 : -1) * (1 + 0.001f * static_cast<float>(i));
    for (int step = 0; step < 30; ++step) {
      std::vector<float> now = usual;
      for (const auto& [at, values] : instead) {
        if (at == step) std::copy(values.begin(), values.end(), now.begin());
      }
      Step(ModeKey::kTrain, [&] { PutFloats(w, now); });
    }
    return StepsWithHistogram();
  }
};

TEST_F(HistogramsTest, ComeAtTheirIntervalAndAtOnceWhereATensorLeavesItsRecentRange) {
  EXPECT_THAT(WithAt({}), ElementsAre(0, 10, 20));
  EXPECT_THAT(WithAt({{13, {kNaN}}}), ElementsAre(0, 10, 13, 20));
  EXPECT_THAT(WithAt({{13, {kInf}}, {14, {kNaN}}}), ElementsAre(0, 10, 13, 20)) << "one as before";
  EXPECT_THAT(WithAt({{13, {kInf}}, {14, {kNaN, kNaN, kNaN}}}), ElementsAre(0, 10, 13, 14, 20));
  EXPECT_THAT(WithAt({{14, {4}}}), ElementsAre(0, 10, 14, 20)) << "twice the largest, and more";
  EXPECT_THAT(WithAt({{14, {-4}}}), ElementsAre(0, 10, 14, 20));
  EXPECT_THAT(WithAt({{14, {2}}}), ElementsAre(0, 10, 20)) << "within a factor of two";
  EXPECT_THAT(WithAt({{14, {4}}, {16, {4}}}), ElementsAre(0, 10, 14, 20)) << "seen two steps ago";
  EXPECT_THAT(WithAt({{11, {4}}, {19, {4}}, {22, {4}}}), ElementsAre(0, 10, 11, 20));
  EXPECT_THAT(WithAt({{1, {4}}, {29, {4}}}), ElementsAre(0, 1, 10, 20, 29)) << "not lately";
  EXPECT_THAT(WithAt({{14, std::vector<float>(5, 0.0f)}}), ElementsAre(0, 10, 20)) << "under 1/64 of it";
  EXPECT_THAT(WithAt({{14, std::vector<float>(9, 0.0f)}}), ElementsAre(0, 10, 14, 20));
  EXPECT_THAT(WithAt({{14, std::vector<float>(512, 0.25f)}}), ElementsAre(0, 10, 14, 20)) << "collapsed";
  EXPECT_THAT(WithAt({{14, std::vector<float>(512, kNaN)}, {15, std::vector<float>(512, kNaN)}}),
              ElementsAre(0, 10, 14, 20));
}

TEST_F(HistogramsTest, ATensorThatComesLateHasOneAtOnce) {
  Start(PlanWithHistograms(10));
  const std::vector<float> values(300, 1.0f);
  for (int step = 0; step < 3; ++step) Step(ModeKey::kTrain);
  const auto w = Define("w", "weight", {300});
  for (int step = 3; step < 12; ++step) Step(ModeKey::kTrain, [&] { PutFloats(w, values); });
  EXPECT_THAT(StepsWithHistogram(), ElementsAre(0, 7)) << "rows of the steps 3 and 10";
}

TEST_F(HistogramsTest, AnEvaluationDoesNotMakeWhatIsTrainedNews) {
  Start(PlanWithHistograms(10));
  const auto w = Define("w", "weight", {300});
  const std::vector<float> values(300, 1.0f), others(300, 50.0f);
  const auto steps = [&](ModeKey mode, int count, const std::vector<float>& put) {
    for (int i = 0; i < count; ++i) Step(mode, [&] { PutFloats(w, put); });
  };
  steps(ModeKey::kTrain, 15, values);
  steps(ModeKey::kEval, 25, others);
  steps(ModeKey::kTrain, 10, values);
  EXPECT_THAT(StepsWithHistogram(), ElementsAre(0, 10, 15 + 0, 15 + 10, 15 + 20, 25 + 20))
      << "each mode's at its own steps 0, 10 and 20";
}

// Another rank sees another part of it, and would leave its range at another step: no step would have the
// whole.
TEST_F(HistogramsTest, OfAPartOnlyTheStepDecides) {
  Start(PlanWithHistograms(10));
  const auto part = recorder_->Define({.name = "w",
                                       .kind = "weight",
                                       .dtype = DType::kFloat32,
                                       .shape = {300},
                                       .whole_shape = {600},
                                       .part_begin = {300}});
  for (int step = 0; step < 12; ++step) {
    Step(ModeKey::kTrain, [&] { PutFloats(part, std::vector<float>(300, step == 5 ? kNaN : 1.0f)); });
  }
  EXPECT_THAT(StepsWithHistogram(), ElementsAre(0, 10));
}

// On eight workers a part has an eighth of the elements, and the last worker's may have fewer or none: the
// whole has its histogram or not, and all its parts with it.
TEST_F(HistogramsTest, OfAPartTheSizeOfTheWholeDecides) {
  Start(PlanWithHistograms(10));
  const auto part = [&](const std::string& name, int64_t elements, int64_t whole) {
    return recorder_->Define({.name = name,
                              .kind = "weight",
                              .dtype = DType::kFloat32,
                              .shape = {elements},
                              .whole_shape = {whole},
                              .part_begin = {0}});
  };
  const auto large = part("large", 1, 256), small = part("small", 128, 255);
  Step(ModeKey::kTrain, [&] {
    PutFloats(large, std::vector<float>(1, 1.0f));
    PutFloats(small, std::vector<float>(128, 1.0f));
    const std::vector<float> values(128, 1.0f);
    const Recorder::Id ids[] = {large, small};
    const void* const data[] = {values.data(), values.data()};
    recorder_->PutMany(ids, data, {.sub = 1});
  });
  std::vector<bool> has;
  for (const format::SummaryRow& row : sink_.summaries) has.push_back(row.histogram_bytes != 0);
  EXPECT_THAT(has, ElementsAre(true, false, true, false));
}

TEST_F(HistogramsTest, OfAShapeThatVariesEachValueDecides) {
  Start(PlanWithHistograms(1));
  const auto w = recorder_->Define(
      {.name = "w", .kind = "weight", .dtype = DType::kFloat32, .shape = {1}, .variable_shape = true});
  for (const size_t elements : {255, 256, 1}) {
    Step(ModeKey::kTrain, [&] { PutFloats(w, std::vector<float>(elements, 1.0f)); });
  }
  std::vector<bool> has;
  for (const format::SummaryRow& row : sink_.summaries) has.push_back(row.histogram_bytes != 0);
  EXPECT_THAT(has, ElementsAre(false, true, false));
}

TEST_F(HistogramsTest, AreKeptWhereARequestHolds) {
  Start(PlanWithHistograms(10));
  const auto w = Define("w", "weight", {300});
  const std::vector<float> values(300, 1.0f);
  for (int step = 0; step < 8; ++step) {
    if (step == 3) {
      EXPECT_EQ(recorder_->CaptureMore({"weights"}, 2, false), 1u);
    }
    Step(ModeKey::kTrain, [&] { PutFloats(w, values); });
  }
  EXPECT_THAT(StepsWithHistogram(), ElementsAre(0, 3, 4));
}

TEST_F(HistogramsTest, OfADeviceAreKeptWhereThoseOfTheHostAre) {
  // Due at 0, 4, 8; at 6 the tensor leaves its recent range; from 7 on all of it is 0.
  const auto values_at = [](int step) {
    return std::vector<float>(300, step == 6  ? 1e6f
                                   : step > 6 ? 0.0f
                                              : 1.0f + 0.01f * static_cast<float>(step));
  };
  std::vector<std::pair<uint32_t, bool>> host, device;  // flags, has a histogram
  for (auto* rows : {&host, &device}) {
    Start(PlanWithHistograms(4));
    sink_.summaries.clear();
    const auto w = Define("w", "weight", {300});
    for (int step = 0; step < 10; ++step) {
      const std::vector<float> values = values_at(step);
      Step(ModeKey::kTrain, [&] {
        if (rows == &host) return PutFloats(w, values);
        const int64_t n = 300;
        Summary summary;
        Histogram histogram;
        histogram.reserve(1);  // of zeros only it is empty, and still one
        ASSERT_TRUE(
            Summarizer().Summarize({values.data(), DType::kFloat32, {&n, 1}, {}}, &summary, &histogram).ok());
        recorder_->PutSummary(w, summary, histogram, {});
      });
    }
    for (const format::SummaryRow& row : sink_.summaries)
      rows->emplace_back(row.flags, row.histogram_bytes != 0);
  }
  ASSERT_EQ(host.size(), 10u);
  EXPECT_TRUE(host[6].second && host[8].second && !host[5].second);
  EXPECT_EQ(device, host);
}

TEST_F(HistogramsTest, OfADeviceThatTookNoneThereIsNone) {
  Start(PlanWithHistograms(1));
  const auto w = Define("w", "weight", {300});
  Step(ModeKey::kTrain, [&] { recorder_->PutSummary(w, Summary{}, {}, {}); });
  EXPECT_EQ(sink_.summaries.back().histogram_bytes | sink_.summaries.back().flags, 0u);
}

TEST_F(HistogramsTest, OfWhatNeverHasOneNothingIsSaid) {
  Start(PlanWithHistograms(10));
  const auto small = Define("s", "weight", {255}), loss = Define("l", "loss", {300});
  for (int step = 0; step < 2; ++step) {
    Step(ModeKey::kTrain, [&] {
      PutFloats(small, std::vector<float>(255, 1.0f));
      PutFloats(loss, std::vector<float>(300, 1.0f));
    });
  }
  for (const format::SummaryRow& row : sink_.summaries) EXPECT_EQ(row.flags | row.histogram_bytes, 0u);
}

// Everything of a row but where its histogram lies.
format::SummaryRow Statistics(format::SummaryRow row) {
  row.histogram_offset = row.histogram_bytes = row.flags = 0;
  return row;
}

class AnyInterval : public RecorderTest, public testing::WithParamInterface<int> {};

TEST_P(AnyInterval, LeavesStatisticsAndTheHistogramsThatAreThereAsTheyAreWithHistogramsAtEveryStep) {
  if (!OpenMpTeam::Available() && GetParam() > 1) GTEST_SKIP() << "no libgomp in this process";
  struct Tensor {
    DType dtype;
    int64_t elements;
  };
  const std::vector<Tensor> tensors = {
      {DType::kFloat32, 255},     {DType::kFloat32, 256},     {DType::kFloat32, 5000},
      {DType::kFloat32, 140'001}, {DType::kBFloat16, 40'000}, {DType::kFloat16, 3000},
      {DType::kFloat64, 3000},    {DType::kInt32, 1000},      {DType::kInt8, 70'000}};
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> pool(4099);
  for (float& x : pool) x = random() % 64 == 0 ? 0.0f : normal(random);
  const auto record = [&](int64_t every) {
    sink_ = FakeSink();
    Start(PlanWithHistograms(every), {.parallel_from_bytes = 1});
    recorder_->ShareThreads(GetParam());
    std::vector<Recorder::Id> ids;
    std::vector<std::vector<std::byte>> bytes;
    std::vector<const void*> data;
    for (size_t i = 0; i < tensors.size(); ++i) {
      ids.push_back(Define("w" + std::to_string(i), "weight", {tensors[i].elements}, tensors[i].dtype));
      bytes.emplace_back(static_cast<size_t>(tensors[i].elements) * ItemSize(tensors[i].dtype));
      data.push_back(bytes.back().data());
    }
    std::mt19937 draws(3);
    for (int step = 0; step < 24; ++step) {
      for (size_t i = 0; i < tensors.size(); ++i) {
        const float scale = draws() % 8 == 0 ? 100.0f : 1.0f;
        const size_t item = ItemSize(tensors[i].dtype), from = draws() % pool.size();
        for (size_t k = 0; k < static_cast<size_t>(tensors[i].elements); ++k) {
          const float x = scale * pool[(from + k) % pool.size()];
          const double wide = x;
          // Of the other types any bits are values.
          const void* const value =
              item == 4 && tensors[i].dtype == DType::kFloat32 ? static_cast<const void*>(&x) : &wide;
          std::memcpy(bytes[i].data() + k * item, value, item);
        }
      }
      Step(ModeKey::kTrain, [&] {
        recorder_->PutMany(ids, data, {});
        for (size_t i = 1; i < 4; ++i)
          recorder_->Put(ids[i], {data[i], tensors[i].dtype, {&tensors[i].elements, 1}, {}}, {.sub = 1});
      });
    }
    return std::pair(sink_.summaries, sink_.histogram_of);
  };
  const auto all = record(1);
  ASSERT_EQ(all.first.size(), 24u * 12);
  for (const int64_t every : {2, 7, 10}) {
    const auto some = record(every);
    ASSERT_EQ(some.first.size(), all.first.size());
    size_t there = 0;
    for (size_t i = 0; i < all.first.size(); ++i) {
      SCOPED_TRACE(std::to_string(every) + ", row " + std::to_string(i));
      const format::SummaryRow a = Statistics(all.first[i]), b = Statistics(some.first[i]);
      ASSERT_EQ(std::memcmp(&a, &b, sizeof a), 0) << "mean " << a.mean << " and " << b.mean;
      if (all.first[i].histogram_bytes == 0) continue;
      const auto step = static_cast<int64_t>(i / 12);
      ASSERT_TRUE(some.first[i].histogram_bytes != 0 || step % every != 0);
      if (some.first[i].histogram_bytes == 0) continue;
      ++there;
      ASSERT_EQ(some.second[i], all.second[i]);
    }
    const auto due = static_cast<size_t>((24 + every - 1) / every) * 11;
    EXPECT_GT(there, due) << "some left their range";
    EXPECT_LT(there, due + 24 * 11 / 3);
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, AnyInterval, testing::Values(1, 2));

}  // namespace
}  // namespace tdbg::capture
