#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <thread>

#include "plan/plan.h"
#include "tdbg/run.h"
#include "tdbg/trial.h"

namespace tdbg {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using Writer = tdbg::Run;  // a fixture has a Run of its own

class RoundtripTest : public testing::Test {
 protected:
  RoundtripTest() {
    ::unsetenv("TDBG_RUN");
    ::unsetenv("TDBG_ATTEMPT");
    char pattern[] = "/tmp/tdbg-roundtrip-XXXXXX";
    scratch_ = ::mkdtemp(pattern);
    plan_ = plan::Plan::Default();
    plan_.journal_bytes = 2u << 20;
  }
  ~RoundtripTest() override { std::filesystem::remove_all(scratch_); }

  void KeepRaw(const std::string& collection, plan::Schedule schedule) {
    for (plan::CollectionPlan& c : plan_.collections) {
      if (c.name != collection) continue;
      c.keep = true;
      for (int m = 1; m < plan::kModes; ++m) c.raw[m] = schedule;
    }
  }
  std::unique_ptr<Writer> Write(int64_t step_base = 0, int64_t rank = 0, int64_t world_size = 1) {
    RunOptions options;
    options.directory = scratch_ + "/run";
    options.plan_json = plan_.ToJson();
    options.step_base = step_base;
    options.rank = rank;
    options.world_size = world_size;
    auto run = Writer::Open(options);
    EXPECT_TRUE(run.ok()) << run.status().ToString();
    return *std::move(run);
  }
  std::unique_ptr<Trial> Read() {
    auto trial = Trial::Open(scratch_ + "/run");
    EXPECT_TRUE(trial.ok()) << trial.status().ToString();
    EXPECT_TRUE((*trial)->Refresh().ok());
    return *std::move(trial);
  }
  static Writer::Id Weight(Writer* run, const std::string& name, int64_t n, DType dtype = DType::kFloat32) {
    return run->Define({.name = name, .kind = "weight", .dtype = dtype, .shape = {n}});
  }

  std::string scratch_;
  plan::Plan plan_;
};

TEST_F(RoundtripTest, ALivingRunIsReadWhileItTrains) {
  KeepRaw("weights", {.interval = 2});
  auto run = Write();
  const auto w = Weight(run.get(), "Net_fc.weight", 3);
  const auto lr = run->DefineScalar("lr");
  for (int step = 0; step < 3; ++step) {
    const float values[] = {1.0f * static_cast<float>(step), 2, std::nanf("")};
    const void* data[] = {values};
    ASSERT_TRUE(run->BeginStep(ModeKey::kTrain));
    run->PutMany(std::span(&w, 1), data);
    run->PutScalar(lr, 0.5 / (step + 1));
    run->PutContext("optimizer", step < 2 ? R"({"name":"SGD"})" : R"({"name":"Adam"})");
    EXPECT_EQ(run->EndStep(step == 1), step);
  }
  const auto trial = Read();
  EXPECT_EQ(trial->state(), RunState::kRunning);
  EXPECT_GT(trial->bytes_on_disk(), 0u);
  EXPECT_LT(trial->bytes_on_disk(), 100'000u) << "the journal's empty room is not something that was kept";
  EXPECT_THAT(trial->steps(), ElementsAre(0, 1, 2));
  EXPECT_TRUE(trial->step(1)->skipped);
  EXPECT_THAT(*trial->tensor_steps("Net_fc.weight", StepKind::kRaw), ElementsAre(0, 2));
  const auto summary = *trial->summary("Net_fc.weight", 2);
  EXPECT_EQ(summary.mean, 2);
  EXPECT_EQ(summary.nan_count, 1u);
  const auto value = trial->value("Net_fc.weight", 2);
  ASSERT_TRUE(value.ok()) << value.status().ToString();
  EXPECT_EQ(static_cast<const float*>(value->data)[1], 2.0f);
  EXPECT_FALSE(trial->value("Net_fc.weight", 1).ok());
  EXPECT_EQ(*trial->scalar("lr", 1), 0.25);
  EXPECT_EQ(trial->context("optimizer", 1), R"({"name":"SGD"})");
  EXPECT_EQ(trial->context("optimizer", 2), R"({"name":"Adam"})");
  EXPECT_THAT(trial->tensor("Net_fc.weight")->collections, ElementsAre("all", "weights"));
}

TEST_F(RoundtripTest, AnEndedRunHasItsFinalWeightsOutsideItsSteps) {
  {
    auto run = Write();
    const auto w = Weight(run.get(), "w", 1);
    const int64_t shape[] = {1};
    float value = 1;
    run->BeginStep(ModeKey::kTrain);
    run->Put(w, {&value, DType::kFloat32, shape, {}});
    run->EndStep();
    run->BeginEnd();
    value = 7;
    run->Put(w, {&value, DType::kFloat32, shape, {}});
    run->End("completed");
  }
  const auto trial = Read();
  EXPECT_EQ(trial->state(), RunState::kEnded);
  EXPECT_THAT(trial->steps(), ElementsAre(0));
  EXPECT_EQ(trial->summary("w", 0)->mean, 1);
  const auto end = trial->final_summary("w");
  ASSERT_TRUE(end.ok()) << end.status().ToString();
  EXPECT_EQ(end->mean, 7);
  EXPECT_THAT(trial->dropped(), IsEmpty());
  EXPECT_THAT(trial->damage(), IsEmpty());
}

TEST_F(RoundtripTest, ModesKeepTheirOwnCount) {
  auto run = Write();
  for (const ModeKey mode : {ModeKey::kTrain, ModeKey::kTrain, ModeKey::kEval, ModeKey::kTrain}) {
    run->BeginStep(mode);
    run->EndStep();
  }
  const auto trial = Read();
  EXPECT_THAT(trial->steps(ModeKey::kTrain), ElementsAre(0, 1, 2));
  EXPECT_EQ(trial->global_step(ModeKey::kEval, 0), 2);
}

TEST_F(RoundtripTest, NothingHappenedAndNotLookedAreDifferent) {
  plan_.summaries_every = 10;
  plan_.context = false;
  auto run = Write();
  for (int i = 0; i < 5; ++i) {
    run->BeginStep(ModeKey::kTrain);
    run->EndStep();
  }
  const auto trial = Read();
  EXPECT_THAT(trial->steps(), ElementsAre(0));
  EXPECT_EQ(trial->last_seen_step(), 4);
}

TEST_F(RoundtripTest, AContinuedTrainingOverlaysTheStepsItRepeats) {
  for (const int64_t base : {0, 3}) {
    auto run = Write(base);
    const auto w = Weight(run.get(), "w", 1);
    for (int i = 0; i < 5; ++i) {
      const float value = static_cast<float>(base);
      const void* data[] = {&value};
      run->BeginStep(ModeKey::kTrain);
      run->PutMany(std::span(&w, 1), data);
      run->EndStep();
    }
    run->End("signal");
  }
  const auto trial = Read();
  EXPECT_THAT(trial->attempts(), ElementsAre(0, 1));
  EXPECT_THAT(trial->steps(ModeKey::kTrain), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_EQ(trial->summary("w", 2)->mean, 0);
  EXPECT_EQ(trial->summary("w", 3)->mean, 3);
}

// Attempts of which nobody says where they go on: ended or killed, with and without a step, of one worker and
// of two, training and evaluating. Every step of every attempt is there, in the order in which they happened.
TEST_F(RoundtripTest, AnAttemptWhoseBeginningNobodyStatesHidesNothing) {
  std::mt19937 chance(31);
  const auto below = [&](unsigned n) { return static_cast<int64_t>(chance() % n); };
  for (int world = 0; world < 24; ++world) {
    SCOPED_TRACE(world);
    std::filesystem::remove_all(scratch_ + "/run");
    const int64_t workers = 1 + below(2), attempts = 2 + below(3);
    std::vector<std::pair<int64_t, ModeKey>> written;  // attempt and mode of each step
    for (int64_t attempt = 0; attempt < attempts; ++attempt) {
      std::vector<ModeKey> modes;
      for (int64_t i = below(6); i > 0; --i)
        modes.push_back(below(3) == 0 ? ModeKey::kEval : ModeKey::kTrain);
      const bool killed = below(2) == 0;
      const pid_t child = ::fork();
      if (child == 0) {
        std::vector<std::unique_ptr<Writer>> ranks;
        for (int64_t rank = 0; rank < workers; ++rank) ranks.push_back(Write(0, rank, workers));
        for (const ModeKey mode : modes) {
          for (const auto& rank : ranks) {
            const auto w = Weight(rank.get(), "w", 1);
            const auto value = static_cast<float>(attempt);
            const void* data[] = {&value};
            rank->BeginStep(mode);
            rank->PutMany(std::span(&w, 1), data);
            rank->EndStep();
          }
        }
        if (killed) ::raise(SIGKILL);
        for (const auto& rank : ranks) rank->End("signal");
        ::_exit(0);
      }
      int status = 0;
      ::waitpid(child, &status, 0);
      ASSERT_EQ(killed ? WIFSIGNALED(status) : WIFEXITED(status), true);
      for (const ModeKey mode : modes) written.emplace_back(attempt, mode);
    }
    const auto trial = Read();
    std::vector<int64_t> all(written.size());
    std::iota(all.begin(), all.end(), int64_t{0});
    ASSERT_EQ(trial->steps(), all);
    std::map<ModeKey, int64_t> last = {{ModeKey::kTrain, -1}, {ModeKey::kEval, -1}};
    for (const int64_t step : all) {
      const auto& [attempt, mode] = written[static_cast<size_t>(step)];
      const auto info = trial->step(step);
      ASSERT_TRUE(info);
      EXPECT_EQ(info->mode, mode);
      EXPECT_GT(info->mode_step, last[mode]) << "step " << step;
      last[mode] = info->mode_step;
      const auto summary = trial->summary("w", step);
      ASSERT_TRUE(summary.ok()) << summary.status().ToString();
      EXPECT_EQ(summary->mean, static_cast<double>(attempt));
    }
  }
}

TEST_F(RoundtripTest, AStepIsCompleteWhenEveryRankCommittedIt) {
  auto first = Write(0, 0, 2);
  auto second = Write(0, 1, 2);
  first->BeginStep(ModeKey::kTrain);
  first->EndStep();
  EXPECT_THAT(Read()->steps(), IsEmpty());
  second->BeginStep(ModeKey::kTrain);
  second->EndStep();
  EXPECT_THAT(Read()->steps(), ElementsAre(0));
  EXPECT_THAT(Read()->workers(), ElementsAre("worker_0", "worker_1"));
}

TEST_F(RoundtripTest, ASmallJournalIsSealedBehindALongTrainingAndNothingIsLost) {
  plan_.journal_bytes = 1u << 20;
  plan_.histograms_every = 1;
  plan_.when_full = "block";
  plan_.budget_bytes = 0;
  KeepRaw("weights", {.interval = 1});
  constexpr int kSteps = 300;
  std::mt19937 random(3);
  {
    auto run = Write();
    const auto w = Weight(run.get(), "w", 4096);
    std::vector<float> values(4096);
    for (int step = 0; step < kSteps; ++step) {
      for (float& v : values) v = static_cast<float>(random() % 1000);
      values[0] = static_cast<float>(step);
      const void* data[] = {values.data()};
      run->BeginStep(ModeKey::kTrain);
      run->PutMany(std::span(&w, 1), data);
      run->EndStep();
    }
    run->End("completed");
    EXPECT_THAT(run->dropped(), IsEmpty());
  }
  const auto trial = Read();
  ASSERT_THAT(trial->steps(), SizeIs(kSteps));
  for (const int64_t step : {0, 1, 150, kSteps - 1}) {
    const auto value = trial->value("w", step);
    ASSERT_TRUE(value.ok()) << value.status().ToString();
    EXPECT_EQ(static_cast<const float*>(value->data)[0], static_cast<float>(step));
    EXPECT_TRUE(trial->histogram("w", step).ok());
  }
}

TEST_F(RoundtripTest, SeveralThreadsMayCall) {
  auto run = Write();
  std::vector<Writer::Id> ids;
  for (int i = 0; i < 4; ++i) ids.push_back(Weight(run.get(), "w" + std::to_string(i), 500));
  std::vector<float> values(500, 1.5f);
  for (int step = 0; step < 50; ++step) {
    run->BeginStep(ModeKey::kTrain);
    std::vector<std::thread> threads;
    for (const auto id : ids) {
      threads.emplace_back([&, id] {
        const void* data[] = {values.data()};
        run->PutMany(std::span(&id, 1), data);
      });
    }
    for (std::thread& t : threads) t.join();
    run->EndStep();
  }
  const auto trial = Read();
  for (int i = 0; i < 4; ++i) EXPECT_THAT(*trial->tensor_steps("w" + std::to_string(i)), SizeIs(50));
}

TEST_F(RoundtripTest, EveryTypeIsKeptAsItIs) {
  KeepRaw("weights", {.interval = 1});
  auto run = Write();
  run->BeginStep(ModeKey::kTrain);
  std::vector<unsigned char> bytes(16);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(i);
  for (int d = 1; d <= static_cast<int>(DType::kText); ++d) {
    const auto dtype = static_cast<DType>(d);
    const auto id = Weight(run.get(), "t" + std::to_string(d), 1, dtype);
    const void* data[] = {bytes.data()};
    run->PutMany(std::span(&id, 1), data);
  }
  run->EndStep();
  const auto trial = Read();
  for (int d = 1; d <= static_cast<int>(DType::kText); ++d) {
    const auto value = trial->value("t" + std::to_string(d), 0);
    ASSERT_TRUE(value.ok()) << value.status().ToString();
    EXPECT_EQ(value->dtype, static_cast<DType>(d));
    EXPECT_EQ(std::memcmp(value->data, bytes.data(), ItemSize(value->dtype)), 0);
  }
}

TEST_F(RoundtripTest, AWholeOfSmallPartsHasItsHistogram) {
  constexpr int64_t kParts = 8, kEach = 100, kSteps = 12;
  std::vector<float> whole(kParts * kEach);
  for (size_t i = 0; i < whole.size(); ++i) whole[i] = std::sin(static_cast<float>(i));
  std::vector<std::unique_ptr<Writer>> runs;
  std::vector<Writer::Id> ids;
  for (int64_t rank = 0; rank < kParts; ++rank) {
    runs.push_back(Write(0, rank, kParts));
    ids.push_back(runs.back()->Define({.name = "w",
                                       .kind = "weight",
                                       .dtype = DType::kFloat32,
                                       .shape = {kEach},
                                       .whole_shape = {kParts * kEach},
                                       .part_begin = {rank * kEach}}));
  }
  for (int64_t step = 0; step < kSteps; ++step) {
    if (step == 5) whole[321] = 1e6f;  // one worker sees it: not worth a part of a histogram at this step
    for (size_t rank = 0; rank < kParts; ++rank) {
      const int64_t shape[] = {kEach};
      ASSERT_TRUE(runs[rank]->BeginStep(ModeKey::kTrain));
      runs[rank]->Put(ids[rank], {whole.data() + rank * kEach, DType::kFloat32, shape, {}});
      runs[rank]->EndStep();
    }
  }
  for (auto& run : runs) run->End("completed");
  Summary summary;
  Histogram want;
  const int64_t shape[] = {kParts * kEach};
  ASSERT_TRUE(Summarizer().Summarize({whole.data(), DType::kFloat32, shape, {}}, &summary, &want).ok());
  const auto trial = Read();
  for (int64_t step = 0; step < kSteps; ++step) {
    const auto histogram = trial->histogram("w", step);
    EXPECT_EQ(histogram.ok(), step % 10 == 0) << step << ": " << histogram.status().ToString();
  }
  EXPECT_EQ(*trial->histogram("w", 10), want);
}

}  // namespace
}  // namespace tdbg
