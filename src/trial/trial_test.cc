#include "tdbg/trial.h"

#include <gmock/gmock.h>

#include <chrono>
#include <thread>

#include "format/run_files.h"
#include "store/reader/testing.h"
#include "trial/access.h"

namespace tdbg {
namespace {

using format::Mode;
using store::WorkerFixture;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class TrialTest : public testing::Test {
 protected:
  TrialTest() {
    std::filesystem::create_directories(path_);
    format::RunInfo run;
    run.id = "0123456789abcdef0123456789abcdef";
    run.name = "mine";
    base::Spill(path_ + "/run.json", run.ToJson());
  }
  void Attempt(int64_t number, int64_t step_base = 0, int64_t world_size = 1) {
    format::AttemptInfo info;
    info.attempt = number;
    info.step_base = step_base;
    info.world_size = world_size;
    const std::string directory = path_ + "/" + std::to_string(number);
    std::filesystem::create_directories(directory);
    base::Spill(directory + "/attempt.json", info.ToJson());
  }
  std::unique_ptr<WorkerFixture> Worker(int64_t attempt, int64_t rank, WorkerFixture::Options options = {}) {
    options.worker = "worker_" + std::to_string(rank);
    options.rank = rank;
    return std::make_unique<WorkerFixture>(path_ + "/" + std::to_string(attempt) + "/" + options.worker,
                                           options);
  }
  std::unique_ptr<Trial> Open(TrialOptions options = {}) {
    auto trial = Trial::Open(path_, options);
    EXPECT_TRUE(trial.ok()) << trial.status().ToString();
    return trial.ok() ? *std::move(trial) : nullptr;
  }
  static void Refresh(Trial& trial) { TDBG_EXPECT_OK(trial.Refresh()); }

  base::ScratchDirectory scratch_;
  const std::string path_ = scratch_ / "mine";
};

TEST_F(TrialTest, StepsValuesSummariesAndSeriesAreWhatWasWritten) {
  Attempt(0);
  auto worker = Worker(0, 0);
  worker->Steps(0, 5);
  const auto trial = Open();
  EXPECT_EQ(trial->name(), "mine");
  EXPECT_EQ(trial->state(), RunState::kRunning);
  EXPECT_THAT(trial->steps(), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(trial->workers(), ElementsAre("worker_0"));
  EXPECT_THAT(*trial->tensor_names(), ElementsAre("lr", "tensor/0", "tensor/1", "tensor/2"));
  EXPECT_THAT(*trial->tensor_names("[12]$"), ElementsAre("tensor/1", "tensor/2"));
  EXPECT_THAT(*trial->tensor_names("", "losses"), ElementsAre("tensor/0"));
  const auto value = trial->value("t1", 3);
  TDBG_ASSERT_OK(value);
  EXPECT_EQ(static_cast<const float*>(value->data)[2], WorkerFixture::Element(1, 3, 2));
  EXPECT_EQ(trial->summary("tensor/2", 4)->mean, WorkerFixture::Mean(2, 4));
  EXPECT_EQ(*trial->histogram("tensor/2", 4), WorkerFixture::HistogramAt(2, 4));
  EXPECT_EQ(*trial->scalar("lr", 2), WorkerFixture::Rate(2));
  const auto series = trial->series("tensor/1", "mean");
  EXPECT_THAT(series->steps, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(series->values, ElementsAre(1, 11, 21, 31, 41));
  EXPECT_EQ(trial->series("lr", "value")->values[1], 0.5);
  worker->Step(5);
  EXPECT_THAT(trial->steps(), ElementsAre(0, 1, 2, 3, 4)) << "a view moved without a Refresh";
  Refresh(*trial);
  EXPECT_EQ(trial->steps().size(), 6u);
  worker->End();
  worker->Close();
  Refresh(*trial);
  EXPECT_EQ(trial->state(), RunState::kEnded);
  EXPECT_EQ(trial->value("t1", 5)->shape, std::vector<int64_t>{16});
}

TEST_F(TrialTest, DerivedStatisticsAreReadOfTheirTensorAndListedOnlyOnRequest) {
  Attempt(0);
  auto worker = Worker(0, 0, {.raw_elements = 0});
  const uint32_t above = worker->DefineStatistic(1, "count_above(0)");
  const uint32_t within = worker->DefineStatistic(1, "count_within(-1,1)");
  worker->AppendStatistic(0, above, "count_above(0)", {100, 4, {0, 7}});
  worker->AppendStatistic(0, above, "count_above(0)", {50, 2, {0, 9}}, {3, format::Point::kNone});
  worker->AppendStatistic(0, within, "count_within(-1,1)", {100, 4, {1, 2}});
  worker->Step(0);
  worker->Step(1);
  for (const bool sealed : {false, true}) {
    if (sealed) worker->End();
    const auto trial = Open();
    EXPECT_THAT(*trial->tensor_names(), ElementsAre("lr", "tensor/0", "tensor/1", "tensor/2"));
    EXPECT_THAT(*trial->tensor_names("above"), IsEmpty());
    EXPECT_THAT(*trial->tensor_names("", "all"), testing::SizeIs(4));
    EXPECT_THAT(*trial->tensor_names("", "statistics"),
                ElementsAre("statistic/count_above(0)/tensor/1", "statistic/count_within(-1,1)/tensor/1"));
    EXPECT_THAT(*trial->statistics("t1"), ElementsAre("count_above(0)", "count_within(-1,1)"));
    EXPECT_THAT(*trial->statistics("tensor/2"), IsEmpty());
    EXPECT_EQ(*trial->statistic("t1", "count_above(0.0)", 0), (StatisticValue{100, 4, {0, 7}}));
    EXPECT_EQ(trial->value("statistic/count_above(0)/tensor/1", 0)->dtype, DType::kInt32);
    EXPECT_THAT(trial->statistic("t1", "count_above(1)", 0).status().message(),
                HasSubstr("kept of it: count_above(0) count_within(-1,1)"));
    EXPECT_EQ(trial->statistic("t1", "count_above(0)", 1).status().code(), Code::kNotFound);
    EXPECT_EQ(trial->statistic("t1", "medians(0)", 0).status().code(), Code::kInvalidArgument);
    EXPECT_EQ(trial->statistic("nobody", "count_above(0)", 0).status().code(), Code::kNotFound);
    const TrialAccess access(*trial);
    std::vector<TrialAccess::Raw> raws;
    access.RawsAt(*access.StatisticOf(*access.Find("tensor/1"), "count_above(0)"), 0, &raws);
    ASSERT_EQ(raws.size(), 2u);
    EXPECT_EQ(raws[1].ref.sub.sub, 3);
    EXPECT_FALSE(access.StatisticOf(*access.Find("tensor/2"), "count_above(0)"));
  }
}

TEST_F(TrialTest, ErrorsSayWhatThereIs) {
  Attempt(0);
  auto worker = Worker(0, 0);
  worker->Steps(0, 3);
  const auto trial = Open();
  EXPECT_THAT(trial->value("tensr/1", 0).status().message(), HasSubstr("did you mean 'tensor/1'"));
  EXPECT_THAT(trial->value("tensor/1", 9).status().message(), HasSubstr("the last is 2"));
  EXPECT_THAT(trial->series("tensor/1", "abs_mx").status().message(), HasSubstr("abs_max"));
  EXPECT_THAT(trial->value("tensor/1", 1, "worker_9").status().message(), HasSubstr("worker_0"));
  EXPECT_EQ(trial->tensor_names("(").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Trial::Open(scratch_ / "nothing").status().code(), Code::kNotFound);
  EXPECT_THAT(Trial::Open(scratch_.path()).status().message(), HasSubstr("it holds the runs mine"));
  EXPECT_EQ(Trial::Open(scratch_ / "nothing", {.attempt = -1, .wait_millis = 20}).status().code(),
            Code::kDeadlineExceeded);
}

TEST_F(TrialTest, ModesCountTheirOwnSteps) {
  Attempt(0);
  auto worker = Worker(0, 0);
  for (int64_t s = 0; s < 6; ++s) {
    worker->Append(s);
    format::Commit commit;
    commit.global_step = s;
    commit.mode_step = s / 2;
    commit.mode = static_cast<uint16_t>(s % 2 == 0 ? Mode::kTrain : Mode::kEval);
    worker->writer->Commit(commit);
  }
  const auto trial = Open();
  EXPECT_THAT(trial->modes(), ElementsAre(ModeKey::kTrain, ModeKey::kEval));
  EXPECT_THAT(trial->steps(ModeKey::kEval), ElementsAre(0, 1, 2));
  EXPECT_EQ(trial->global_step(ModeKey::kEval, 2), 5);
  EXPECT_THAT(*trial->tensor_steps("tensor/0", StepKind::kRaw, ModeKey::kEval), ElementsAre(0, 1, 2));
  EXPECT_THAT(*trial->tensor_steps("tensor/0"), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST_F(TrialTest, AStepIsCompleteWhenEveryWorkerCommittedItOrIsGone) {
  Attempt(0, 0, 3);
  auto a = Worker(0, 0), b = Worker(0, 1);
  a->Steps(0, 5);
  b->Steps(0, 3);
  const auto trial = Open();
  EXPECT_THAT(trial->steps(), IsEmpty()) << "rank 2 is still to come";
  auto c = Worker(0, 2);
  c->Steps(0, 4);
  Refresh(*trial);
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  Refresh(*trial);
  EXPECT_THAT(trial->steps(), ElementsAre(0, 1, 2));
  const TrialAccess access(*trial);
  EXPECT_THAT(trial->missing_workers(4), ElementsAre("worker_1", "worker_2"));
  EXPECT_FALSE(access.CommittedBy(4, 1));
  b->Close();  // dies
  Refresh(*trial);
  EXPECT_THAT(trial->steps(), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(trial->state(), RunState::kRunning);
  EXPECT_EQ(trial->value("t0", 2, "worker_1")->shape.size(), 1u);
  EXPECT_EQ(trial->value("t0", 4, "worker_1").status().code(), Code::kNotFound);
  EXPECT_EQ(trial->series("tensor/0", "mean", "worker_1")->steps.size(), 3u);
  a->Close();
  c->End();
  c->Close();
  Refresh(*trial);
  EXPECT_EQ(trial->state(), RunState::kCrashed);
  EXPECT_THAT(trial->steps(), ElementsAre(0, 1, 2, 3, 4));
}

TEST_F(TrialTest, WhatALauncherDoesNotKnowIsLearntOfItsWorkers) {
  for (const bool old : {false, true}) {
    std::filesystem::remove_all(path_ + "/0");
    format::AttemptInfo launchers;
    if (old) launchers.world_size = 1;  // as 0.1.0 said it, for want of knowledge
    std::filesystem::create_directories(path_ + "/0");
    base::Spill(path_ + "/0/attempt.json", launchers.ToJson());
    const auto trial = Open();
    EXPECT_EQ(trial->state(), RunState::kWaiting);
    EXPECT_EQ(trial->world_size(), old ? 1 : 0);
    if (old) {
      launchers.world_size = 2;
      base::Spill(path_ + "/0/attempt.json", launchers.ToJson());
    }
    const std::optional<int64_t> world = old ? std::nullopt : std::optional<int64_t>(2);
    auto a = Worker(0, 0, {.world_size = world});
    a->Steps(0, 5);
    Refresh(*trial);
    EXPECT_EQ(trial->world_size(), 2);
    EXPECT_THAT(trial->steps(), IsEmpty()) << "rank 1 is still to come";
    EXPECT_THAT(trial->missing_workers(0), ElementsAre("rank 1"));
    auto b = Worker(0, 1, {.world_size = world});
    b->Steps(0, 3);
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    Refresh(*trial);
    EXPECT_THAT(trial->workers(), ElementsAre("worker_0", "worker_1"));
    EXPECT_THAT(trial->steps(), ElementsAre(0, 1, 2));
    a->End();
    b->End();
  }
}

TEST_F(TrialTest, AStepBaseThatOnlyTheWorkersKnowLeavesEarlierStepsInPlace) {
  format::AttemptInfo launchers;
  std::filesystem::create_directories(path_ + "/1");
  Attempt(0);
  auto first = Worker(0, 0);
  first->Steps(0, 6);
  first->End();
  first->Close();
  launchers.attempt = 1;
  base::Spill(path_ + "/1/attempt.json", launchers.ToJson());
  const auto trial = Open();
  EXPECT_THAT(trial->steps(), ElementsAre(0, 1, 2, 3, 4, 5));
  auto again = Worker(1, 0, {.world_size = 1, .step_base = 4});
  again->Step(5);  // of step 4 nothing was due
  Refresh(*trial);
  EXPECT_THAT(trial->steps(), ElementsAre(0, 1, 2, 3, 5));
}

TEST_F(TrialTest, AWorkerThatNobodyExpectedMovesTheOverlayFromItsFirstStep) {
  Attempt(0);
  auto a = Worker(0, 0, {.world_size = 1});
  a->Steps(0, 5);
  const auto trial = Open();
  const TrialAccess access(*trial);
  EXPECT_EQ(access.complete_count(), 5u);
  const uint64_t before = access.overlay_generation();
  auto b = Worker(0, 1, {.world_size = 2});
  b->Steps(2, 4);
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  Refresh(*trial);
  EXPECT_EQ(access.overlay_generation(), before + 1);
  EXPECT_EQ(access.overlay_base(), 2);
  EXPECT_EQ(trial->world_size(), 2);
}

TEST_F(TrialTest, WhileTheLauncherIsThereAnAbsentRankMayStillCome) {
  base::FileSystem& files = base::LocalFileSystem();
  auto launcher = files.Lock(path_ + "/launcher.lock");
  TDBG_ASSERT_OK(launcher);
  Attempt(0);
  auto a = Worker(0, 0, {.world_size = 2});
  a->Steps(0, 3);
  a->End();
  a->Close();
  const auto trial = Open();
  EXPECT_EQ(trial->state(), RunState::kRunning);
  EXPECT_THAT(trial->steps(), IsEmpty());
  // It has said that the job is over, and sums up.
  TDBG_ASSERT_OK(
      files.AppendLine(path_ + "/events.jsonl", R"({"kind": "job_ended", "attempt": 0, "exit_code": 0})"));
  Refresh(*trial);
  EXPECT_EQ(trial->state(), RunState::kEnded);
  EXPECT_THAT(trial->steps(), ElementsAre(0, 1, 2));
  std::filesystem::remove(path_ + "/events.jsonl");
  EXPECT_EQ(Open()->state(), RunState::kRunning);
  launcher->reset();
  EXPECT_EQ(Open()->state(), RunState::kEnded) << "killed";
}

TEST_F(TrialTest, TheLatestAttemptWinsFromItsStepBaseOn) {
  Attempt(0);
  Worker(0, 0)->Steps(0, 6);
  const auto trial = Open();
  EXPECT_EQ(trial->steps().size(), 6u);
  EXPECT_EQ(trial->state(), RunState::kCrashed);
  Attempt(1, 4);
  auto second = Worker(1, 0, {.tensors = 2});
  Refresh(*trial);
  EXPECT_EQ(trial->steps().size(), 6u) << "an attempt without steps hides nothing";
  const uint64_t before = TrialAccess(*trial).overlay_generation();
  second->Steps(4, 5);
  Refresh(*trial);
  EXPECT_THAT(trial->steps(), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_GT(TrialAccess(*trial).overlay_generation(), before);
  EXPECT_EQ(TrialAccess(*trial).overlay_base(), 4);
  EXPECT_EQ(TrialAccess(*trial).steps()[4].attempt, 1);
  EXPECT_EQ(trial->value("tensor/2", 3)->shape.size(), 1u);
  EXPECT_EQ(trial->value("tensor/2", 4).status().code(), Code::kNotFound);
  EXPECT_THAT(trial->series("tensor/1", "mean")->steps, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(trial->attempts(), ElementsAre(0, 1));
  EXPECT_THAT(Open({.attempt = 0, .wait_millis = 0})->steps(), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(Open()->steps(), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(Trial::Open(path_, {.attempt = 7, .wait_millis = 0}).status().code(), Code::kNotFound);
}

TEST_F(TrialTest, AWorkerSaysHowItEndedOrIsGoneWithoutAWord) {
  Attempt(0, 0, 3);
  auto raises = Worker(0, 0), dies = Worker(0, 1), trains = Worker(0, 2);
  for (auto* worker : {raises.get(), dies.get(), trains.get()}) worker->Steps(0, 5);
  EXPECT_TRUE(Open()->worker_ends().empty());
  raises->Step(5);
  raises->writer->End(R"({"reason":"exception","message":"ValueError: unhappy"})", 10'000'000'000);
  dies->Close();
  const auto trial = Open();
  const std::vector<WorkerEnd> ends = trial->worker_ends();
  ASSERT_EQ(ends.size(), 2u);
  EXPECT_EQ(ends[0].worker + " " + ends[0].reason + " " + ends[0].message,
            "worker_0 exception ValueError: unhappy");
  EXPECT_EQ(ends[0].last_step, 5);
  EXPECT_EQ(ends[1].worker + ends[1].reason + ends[1].message, "worker_1");
  EXPECT_EQ(ends[1].last_step, 4);
  trains->writer->End(R"({"reason":7})", 10'000'000'000);
  EXPECT_EQ(Open()->worker_ends()[2].reason, "closed") << "damaged words";
}

TEST_F(TrialTest, StepsBetweenCompleteOnesMoveTheOverlayFromTheFirstOfThem) {
  Attempt(0, 0, 2);
  {
    auto first = Worker(0, 0);
    for (const int64_t step : {0, 2, 4, 5}) first->Step(step);
    first->End();
  }
  const auto trial = Open();
  const TrialAccess access(*trial);
  EXPECT_EQ(access.complete_count(), 4u) << "there is nobody left to wait for";
  const uint64_t before = access.overlay_generation();
  auto second = Worker(0, 1);
  second->Steps(0, 4);
  Refresh(*trial);
  EXPECT_EQ(access.overlay_generation(), before + 1);
  EXPECT_EQ(access.overlay_base(), 0) << "which was judged without the second one's part";
  EXPECT_THAT(trial->steps(), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(trial->steps({.incomplete = true}), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ(trial->step(2)->raw_values, 6u);
  EXPECT_EQ(trial->step(1)->raw_values, 3u);
  second->Steps(4, 6);
  Refresh(*trial);
  EXPECT_EQ(access.overlay_generation(), before + 1) << "steps behind the complete ones move nothing";
  EXPECT_THAT(trial->steps(), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ(access.FindStep(3), 3u);
  EXPECT_EQ(access.FindStep(6), std::nullopt);
  size_t rows = 0;
  access.ForEachSummary(4, [&](const TrialAccess::Row& row) { rows += row.global_step() == 4; });
  EXPECT_EQ(rows, 6u);
}

TEST_F(TrialTest, FinalValuesAreOutsideSteps) {
  Attempt(0);
  auto worker = Worker(0, 0);
  worker->Steps(0, 3);
  worker->Final(2);
  worker->End();
  const auto trial = Open();
  EXPECT_THAT(trial->steps(), ElementsAre(0, 1, 2));
  EXPECT_THAT(*trial->tensor_steps("tensor/0", StepKind::kRaw), ElementsAre(0, 1, 2));
  TDBG_EXPECT_OK(trial->final_value("tensor/0"));
  EXPECT_EQ(trial->final_summary("tensor/0")->mean, WorkerFixture::Mean(0, 2));
  EXPECT_EQ(trial->series("tensor/0", "mean")->steps.size(), 3u);
  size_t rows = 0, final_rows = 0;
  const TrialAccess access(*trial);
  access.ForEachSummary(2, [&](const TrialAccess::Row&) { ++rows; });
  access.ForEachFinalSummary([&](const TrialAccess::Row&) { ++final_rows; });
  EXPECT_EQ(rows, 3u);
  EXPECT_EQ(final_rows, 3u);
}

TEST_F(TrialTest, ATensorOfOneElementIsAnsweredFromItsSummaryExactly) {
  Attempt(0);
  auto worker = Worker(0, 0, {.tensors = 0, .raw_elements = 0});
  const DType dtypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kInt64, DType::kBool};
  for (uint32_t t = 0; t < 5; ++t) {
    format::TensorDef def;
    def.id = t + 1;
    def.name = std::string("one/") + std::string(DTypeName(dtypes[t]));
    def.dtype = dtypes[t];
    worker->writer->AppendTensorDef(def);
  }
  const double values[] = {0.1f, -65504, 1.0 / 128, -7, 1};
  const auto row = [&](int64_t step, uint32_t t, auto fill) {
    Summary s;
    s.count = 1;
    fill(&s);
    const format::SummaryRow r = format::ToRow(t, {}, s);
    worker->writer->AppendSummaries(step, {&r, 1}, {});
  };
  for (uint32_t t = 0; t < 5; ++t) row(0, t + 1, [&](Summary* s) { s->min = s->max = s->mean = values[t]; });
  worker->writer->Commit({.global_step = 0});
  row(1, 1, [](Summary* s) { s->nan_count = 1; });
  row(1, 2, [](Summary* s) { s->neg_inf_count = 1; });
  worker->writer->Commit({.global_step = 1});
  const auto trial = Open();
  for (int t = 0; t < 5; ++t) {
    const std::string name = std::string("one/") + std::string(DTypeName(dtypes[t]));
    EXPECT_EQ(*trial->scalar(name, 0), values[t]) << name;
    const auto value = trial->value(name, 0);
    TDBG_ASSERT_OK(value);
    EXPECT_EQ(value->dtype, dtypes[t]);
    EXPECT_THAT(value->shape, IsEmpty());
  }
  EXPECT_EQ(*static_cast<const float*>(trial->value("one/float32", 0)->data), 0.1f);
  EXPECT_EQ(*static_cast<const uint16_t*>(trial->value("one/float16", 0)->data), 0xfbff);
  EXPECT_EQ(*static_cast<const uint16_t*>(trial->value("one/bfloat16", 0)->data), 0x3c00);
  EXPECT_EQ(*static_cast<const int64_t*>(trial->value("one/int64", 0)->data), -7);
  EXPECT_TRUE(std::isnan(*trial->scalar("one/float32", 1)));
  EXPECT_EQ(*trial->scalar("one/float16", 1), -std::numeric_limits<double>::infinity());
}

TEST_F(TrialTest, ACursorWaitsForStepsAndEndsWithTheRun) {
  Attempt(0);
  auto worker = Worker(0, 0);
  const auto trial = Open();
  Cursor cursor = trial->cursor();
  EXPECT_EQ(cursor.Next(0).status().code(), Code::kUnavailable);
  std::thread writer([&] {
    for (int64_t s = 0; s < 20; ++s) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      worker->Step(s);
    }
    worker->End();
    worker->Close();
  });
  for (int64_t s = 0; s < 20; ++s) {
    const auto step = cursor.Next(5000);
    ASSERT_TRUE(step.ok()) << step.status().ToString();
    EXPECT_EQ(step->global_step, s);
    EXPECT_TRUE(step->complete);
  }
  EXPECT_EQ(cursor.Next(5000).status().code(), Code::kFailedPrecondition);
  writer.join();
}

TEST_F(TrialTest, ARunThatNoWorkerWroteIsOverWhenItsJobIs) {
  std::string events;
  const auto tell = [&](const std::string& line) {
    base::Spill(path_ + "/events.jsonl", events += line + "\n");
  };
  Attempt(0);
  const auto trial = Open();
  EXPECT_EQ(trial->state(), RunState::kWaiting);
  tell(R"({"kind": "job_started", "attempt": 0})");
  Refresh(*trial);
  EXPECT_EQ(trial->state(), RunState::kWaiting);
  tell(R"({"kind": "job_ended", "attempt": 0, "exit_code": 0, "stop": "none"})");
  Cursor cursor = trial->cursor();
  EXPECT_EQ(cursor.Next(5000).status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(trial->state(), RunState::kEnded);

  Attempt(1);  // somebody starts it again; its launcher has not said so yet
  Refresh(*trial);
  EXPECT_EQ(trial->state(), RunState::kWaiting);
  tell(R"({"kind": "job_ended", "attempt": 1, "exit_code": 2, "stop": "none"})");
  Refresh(*trial);
  EXPECT_EQ(trial->state(), RunState::kCrashed);
  TrialOptions first;
  first.attempt = 0;
  EXPECT_EQ(Open(first)->state(), RunState::kEnded);

  Attempt(2);
  auto worker = Worker(2, 0);
  Refresh(*trial);
  EXPECT_EQ(trial->state(), RunState::kRunning);
}

TEST_F(TrialTest, BetweenTwoAttemptsAllStepsAreNotLoaded) {
  base::FileSystem& files = base::LocalFileSystem();
  auto launcher = files.Lock(path_ + "/launcher.lock");
  TDBG_ASSERT_OK(launcher);
  const auto tell = [&](const std::string& line) {
    TDBG_ASSERT_OK(files.AppendLine(path_ + "/events.jsonl", line));
  };
  Attempt(0);
  auto first = Worker(0, 0);
  first->Steps(0, 3);
  const auto trial = Open();
  tell(R"({"kind": "job_started", "attempt": 0, "restarts": true})");
  first->End();
  first->Close();
  Refresh(*trial);
  EXPECT_FALSE(trial->loaded_all_steps()) << "its launcher has not said yet how the command ended";
  tell(R"({"kind": "job_ended", "attempt": 0, "exit_code": 75, "stop": "none", "restarts": true})");
  Refresh(*trial);
  EXPECT_FALSE(trial->loaded_all_steps());
  EXPECT_EQ(Open()->state(), RunState::kEnded) << "that attempt";
  // Stopped while it waited for the next one.
  tell(R"({"kind": "job_ended", "attempt": 0, "exit_code": 75, "stop": "requested"})");
  Refresh(*trial);
  EXPECT_TRUE(trial->loaded_all_steps());
  tell(R"({"kind": "job_ended", "attempt": 0, "exit_code": 75, "stop": "none", "restarts": true})");
  EXPECT_FALSE(Open()->loaded_all_steps());
  launcher->reset();
  EXPECT_TRUE(Open()->loaded_all_steps()) << "a launcher that was killed starts nothing";
}

TEST_F(TrialTest, AJobThatIsNotStartedAgainIsOverWithItsWorkers) {
  auto launcher = base::LocalFileSystem().Lock(path_ + "/launcher.lock");
  TDBG_ASSERT_OK(launcher);
  Attempt(0);
  auto worker = Worker(0, 0);
  worker->Steps(0, 3);
  base::Spill(path_ + "/events.jsonl", "{\"kind\": \"job_started\", \"attempt\": 0}\n");
  worker->End();
  worker->Close();
  EXPECT_TRUE(Open()->loaded_all_steps());
}

TEST_F(TrialTest, AJobWhoseOnlyWorkerCannotBeReadIsOverToo) {
  Attempt(0);
  Worker(0, 0)->Close();
  base::Spill(path_ + "/0/worker_0/worker.json", "{");
  base::Spill(path_ + "/events.jsonl", "{\"kind\": \"job_ended\", \"attempt\": 0, \"exit_code\": 0}\n");
  const auto trial = Open();
  EXPECT_EQ(trial->state(), RunState::kEnded);
  ASSERT_EQ(trial->damage().size(), 1u);
  EXPECT_EQ(trial->scalar("loss", 0).status().code(), Code::kDataLoss);
}

TEST_F(TrialTest, ContextIsWhatHeldAtAStep) {
  Attempt(0);
  auto worker = Worker(0, 0);
  worker->writer->AppendContext({0, "optimizer", R"({"lr":1})"});
  worker->Steps(0, 3);
  worker->writer->AppendContext({3, "optimizer", R"({"lr":2})"});
  worker->Steps(3, 5);
  const auto trial = Open();
  EXPECT_EQ(trial->context("optimizer", 2), R"({"lr":1})");
  EXPECT_EQ(trial->context("optimizer", 3), R"({"lr":2})");
  EXPECT_EQ(trial->context("nothing", 3), std::nullopt);
}

// What the rule engine does: every row of every step.
TEST_F(TrialTest, AMillionRowsAreOpenedAndWalkedQuickly) {
  Attempt(0);
  constexpr int kTensors = 100;
  constexpr int64_t kSteps = 10000;
  {
    auto worker = Worker(
        0, 0, {.tensors = kTensors, .raw_elements = 0, .histograms_every = 0, .journal_bytes = 64 << 20});
    worker->Steps(0, kSteps);
    worker->End();
  }
  const auto now = [] { return std::chrono::steady_clock::now(); };
  const auto millis = [](auto d) { return std::chrono::duration<double, std::milli>(d).count(); };
  for (int i = 0; i < 3; ++i) {
    const auto begin = now();
    const auto trial = Open();
    const auto opened = now();
    TrialAccess access(*trial);
    ASSERT_EQ(access.complete_count(), static_cast<size_t>(kSteps));
    double sum = 0;
    size_t rows = 0;
    for (size_t s = 0; s < access.complete_count(); ++s) {
      access.ForEachSummary(s, [&](const TrialAccess::Row& row) {
        const Summary summary = row.summary();
        sum += summary.abs_max;
        ++rows;
      });
    }
    const auto walked = now();
    ASSERT_EQ(rows, static_cast<size_t>(kTensors * kSteps));
    EXPECT_GT(sum, 0);
    const auto series = trial->series("tensor/7", "mean");
    ASSERT_EQ(series->steps.size(), static_cast<size_t>(kSteps));
    const auto done = now();
    printf("open %.1f ms, walk 1,000,000 rows %.1f ms, first series %.1f ms\n", millis(opened - begin),
           millis(walked - opened), millis(done - walked));
    EXPECT_LT(millis(walked - begin), 5000);
  }
}

}  // namespace
}  // namespace tdbg
