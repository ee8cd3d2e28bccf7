// What is asked of a run beyond single values: steps by kind and state, workers, parts of values, frames,
// reductions.
#include <gmock/gmock.h>

#include <cmath>
#include <thread>

#include "format/run_files.h"
#include "plan/plan.h"
#include "store/reader/testing.h"
#include "tdbg/trial.h"
#include "trial/step_name.h"

namespace tdbg {
namespace {

using store::WorkerFixture;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class QuestionsTest : public testing::Test {
 protected:
  QuestionsTest() {
    std::filesystem::create_directories(path_ + "/0");
    format::RunInfo run;
    run.id = "0123456789abcdef0123456789abcdef";
    base::Spill(path_ + "/run.json", run.ToJson());
    World(1);
  }
  void World(int64_t size) {
    format::AttemptInfo info;
    info.world_size = size;
    base::Spill(path_ + "/0/attempt.json", info.ToJson());
  }
  /// Weights' raw values at every third TRAIN step are what a SaveConfig asks for, and two reductions of
  /// nothing.
  void Configure(int64_t interval, std::vector<std::string> reductions = {}, bool raw_values = true) {
    plan::Plan plan;
    plan::CollectionPlan weights;
    weights.name = "weights";
    weights.keep = true;
    weights.reductions = std::move(reductions);
    weights.raw_values = raw_values;
    if (interval > 0) weights.raw[1] = plan::Schedule{.interval = interval};
    plan.collections.push_back(weights);
    base::Spill(path_ + "/plan.json", plan.ToJson());
  }
  std::unique_ptr<WorkerFixture> Worker(int64_t rank = 0, WorkerFixture::Options options = {}) {
    options.worker = "worker_" + std::to_string(rank);
    options.rank = rank;
    return std::make_unique<WorkerFixture>(path_ + "/0/" + options.worker, options);
  }
  std::unique_ptr<Trial> Open() {
    auto trial = Trial::Open(path_);
    EXPECT_TRUE(trial.ok()) << trial.status().ToString();
    return trial.ok() ? *std::move(trial) : nullptr;
  }

  base::ScratchDirectory scratch_;
  const std::string path_ = scratch_ / "mine";
};

TEST_F(QuestionsTest, AStepWithStatisticsOnlyIsNoneThatASaveConfigMadeDue) {
  Configure(3);
  auto worker = Worker(0, {.raw_elements = 0});
  const uint32_t derived = worker->DefineStatistic(1, "count_above(0)");
  for (int64_t step = 0; step < 5; ++step) {
    // Stored like a raw value, and none.
    if (step == 4) worker->AppendStatistic(step, derived, "count_above(0)", {100, 4, {7}});
    if (step % 3 == 0) {
      const float values[4] = {1, 2, 3, 4};
      const int64_t shape[] = {4};
      worker->writer->AppendRaw(step, 1, {}, {values, DType::kFloat32, shape, {}});
    }
    worker->Step(step);
  }
  const auto trial = Open();
  EXPECT_THAT(trial->steps(), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(trial->steps({.kind = StepKind::kRaw}), ElementsAre(0, 3));
  EXPECT_THAT(trial->steps({.kind = StepKind::kSaved}), ElementsAre(0, 3));
  EXPECT_THAT(trial->steps({.kind = StepKind::kSaved, .begin = 1, .end = 3}), IsEmpty());
  EXPECT_THAT(trial->steps({.mode = ModeKey::kTrain, .begin = 3}), ElementsAre(3, 4));
  EXPECT_EQ(trial->step(3)->raw_values, 1u);
  EXPECT_EQ(trial->step(4)->raw_values, 0u);
  EXPECT_EQ(trial->step(4)->summaries, 5u) << "three rows, a number, and a derived statistic";
  EXPECT_THAT(*trial->tensor_steps("t1", {.kind = StepKind::kSaved}), ElementsAre(0, 3));
  EXPECT_THAT(*trial->tensor_steps("t2", {.kind = StepKind::kSaved}), IsEmpty());
  EXPECT_TRUE(*trial->is_kept("t1", 3, StepKind::kRaw));
  EXPECT_FALSE(*trial->is_kept("t2", 3, StepKind::kRaw));
  EXPECT_TRUE(*trial->is_kept("t2", 3, StepKind::kSummary));
  EXPECT_FALSE(*trial->is_kept("t2", 99, StepKind::kAny));
  EXPECT_THAT(*trial->tensor_names({.global_step = 3, .steps = {.kind = StepKind::kRaw}}),
              ElementsAre("tensor/1"));
  EXPECT_THAT(*trial->tensor_names({.collection = "weights", .steps = {.mode = ModeKey::kEval}}), IsEmpty());
}

TEST_F(QuestionsTest, AStepIsNamedAsTheScriptCounts) {
  const std::vector<int64_t> asked = {0, 1, 2, 7};
  EXPECT_EQ(StepNames().Of(7), "step 7");
  auto worker = Worker(0, {.raw_elements = 0});
  worker->Steps(0, 2);
  StepNames names(*Open(), asked);
  EXPECT_EQ(names.Of(1), "step 1");
  EXPECT_EQ(names.Of(7), "step 7");
  const auto commit = [&](format::Mode mode, int64_t step, int64_t mode_step) {
    worker->Append(step);
    format::Commit c;
    c.global_step = step;
    c.mode_step = mode_step;
    c.mode = static_cast<uint16_t>(mode);
    worker->writer->Commit(c);
  };
  commit(format::Mode::kEval, 2, 0);
  commit(format::Mode::kTrain, 3, 2);
  const auto trial = Open();
  names = StepNames(*trial, asked);
  EXPECT_EQ(names.Of(0), "TRAIN step 0");
  EXPECT_EQ(names.Of(2), "EVAL step 0 (global 2)");
  EXPECT_EQ(names.Of(3), "global step 3") << "which it was not told of";
  EXPECT_EQ(names.Find(2)->mode, ModeKey::kEval);
  EXPECT_FALSE(names.Find(7));
  names = StepNames(*trial, trial->steps());
  EXPECT_EQ(names.Of(3), "TRAIN step 2 (global 3)");
}

TEST_F(QuestionsTest, WithoutASaveConfigNothingIsHidden) {
  Configure(0);
  auto worker = Worker(0, {.raw_elements = 0});
  worker->Steps(0, 3);
  EXPECT_THAT(Open()->steps({.kind = StepKind::kSaved}), ElementsAre(0, 1, 2));
}

TEST_F(QuestionsTest, AStepWithoutAHistogramSaysAtWhichThereAreSome) {
  auto worker = Worker(0, {.raw_elements = 0, .histograms_every = 3});
  worker->Steps(0, 8);
  const auto check = [](const Trial& trial) {
    EXPECT_THAT(*trial.tensor_steps("t1", StepKind::kHistogram), ElementsAre(0, 3, 6));
    EXPECT_THAT(*trial.tensor_steps("t1", StepKind::kSummary), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
    EXPECT_TRUE(*trial.is_kept("t1", 3, StepKind::kHistogram));
    EXPECT_FALSE(*trial.is_kept("t1", 4, StepKind::kHistogram));
    EXPECT_THAT(trial.steps({.kind = StepKind::kHistogram}), ElementsAre(0, 3, 6));
    EXPECT_THAT(*trial.tensor_steps("lr", StepKind::kHistogram), IsEmpty());
    EXPECT_TRUE(trial.histogram("t1", 6).ok());
    const Status none = trial.histogram("t1", 4).status();
    EXPECT_EQ(none.code(), Code::kNotFound);
    EXPECT_THAT(none.message(), HasSubstr("not at this step; histograms are kept at steps: 0, 3, 6"));
  };
  check(*Open());
  worker->End();
  check(*Open());
}

TEST_F(QuestionsTest, HistogramsForARuleAreNoSaveConfig) {
  Configure(0);
  plan::Plan plan = *plan::Plan::FromJson(base::Slurp(path_ + "/plan.json"));
  plan::CollectionPlan own;
  own.name = "rule:Mine:histograms";
  own.keep = own.summaries_when_saved = true;
  own.raw_values = false;
  own.raw[1] = plan::Schedule{.interval = 2};
  plan.collections.push_back(own);
  base::Spill(path_ + "/plan.json", plan.ToJson());
  auto worker = Worker(0, {.raw_elements = 0});
  worker->Steps(0, 3);
  EXPECT_THAT(Open()->steps({.kind = StepKind::kSaved}), ElementsAre(0, 1, 2));
}

TEST_F(QuestionsTest, OfSeveralGradientsOfAForwardTheLastIsTheSteps) {
  auto worker = Worker(0, {.raw_elements = 0});
  format::TensorDef def = WorkerFixture::Definition(1);
  def.id = 4;  // behind three tensors and the learning rate
  def.name = def.short_name = "gradient/w";
  def.kind = "gradient";
  worker->writer->AppendTensorDef(def);
  for (const uint16_t sub : {0, 2, 3}) {
    const format::SummaryRow row = format::ToRow(4, {sub}, WorkerFixture::SummaryAt(0, sub));
    worker->writer->AppendSummaries(0, {&row, 1}, {});
    const float value = sub;
    const int64_t shape[] = {1};
    worker->writer->AppendRaw(0, 4, {sub}, {&value, DType::kFloat32, shape, {}});
  }
  worker->Step(0);
  worker->End();
  for (const auto& [step_by, counts] : {std::pair("optimizer", 0), std::pair("forward", 3)}) {
    plan::Plan plan;
    plan.step_by = step_by;
    base::Spill(path_ + "/plan.json", plan.ToJson());
    const auto trial = Open();
    const auto value = trial->value("gradient/w", 0);
    TDBG_ASSERT_OK(value);
    EXPECT_EQ(*static_cast<const float*>(value->data), counts) << step_by;
    EXPECT_EQ(trial->summary("gradient/w", 0)->mean, WorkerFixture::Mean(0, counts)) << step_by;
    const auto series = trial->series("gradient/w", "mean");
    TDBG_ASSERT_OK(series);
    EXPECT_THAT(series->values, ElementsAre(WorkerFixture::Mean(0, counts))) << step_by;
  }
}

TEST_F(QuestionsTest, ReductionsAreDueWhereStatisticsAre) {
  Configure(0, {"mean", "abs_l1"});
  auto worker = Worker(0, {.raw_elements = 0});
  worker->Steps(0, 2);
  const auto trial = Open();
  EXPECT_THAT(trial->steps({.kind = StepKind::kSaved}), ElementsAre(0, 1));
  const auto saved = trial->saved_reductions("t1", 1);
  TDBG_ASSERT_OK(saved);
  ASSERT_EQ(saved->size(), 2u);
  EXPECT_EQ((*saved)[0].name, "mean");
  EXPECT_TRUE(std::isnan(*static_cast<const double*>((*saved)[0].value.data))) << "step 1 holds a NaN";
  EXPECT_EQ(*static_cast<const double*>(trial->reduction("t1", 0, "sum")->data),
            16.0 * WorkerFixture::Mean(1, 0));
  EXPECT_THAT(*trial->saved_reductions("t0", 1), IsEmpty()) << "not of that collection";
  EXPECT_EQ(trial->reduction("t1", 0, "prod").status().code(), Code::kNotFound);
  EXPECT_THAT(trial->reduction("t1", 0, "maen").status().message(), HasSubstr("did you mean 'mean'"));
  EXPECT_THAT(trial->collections().back().reductions, ElementsAre("mean", "abs_l1"));
}

TEST_F(QuestionsTest, ReductionsWithASaveConfigAreDueAtItsSteps) {
  Configure(3, {"mean"}, false);
  auto worker = Worker(0, {.raw_elements = 0});
  worker->Steps(0, 5);
  const auto trial = Open();
  EXPECT_THAT(trial->steps({.kind = StepKind::kSaved}), ElementsAre(0, 3));
  EXPECT_THAT(*trial->tensor_steps("t1", StepFilter{.kind = StepKind::kSaved}), ElementsAre(0, 3));
  EXPECT_THAT(*trial->tensor_steps("t0", StepFilter{.kind = StepKind::kSaved}), IsEmpty())
      << "of another collection";
  EXPECT_TRUE(*trial->is_kept("t1", 3, StepKind::kSaved));
  EXPECT_FALSE(*trial->is_kept("t1", 2, StepKind::kSaved));
  EXPECT_EQ(trial->saved_reductions("t1", 3)->size(), 1u);
  EXPECT_THAT(*trial->saved_reductions("t1", 2), IsEmpty());
  EXPECT_FALSE(trial->collections().back().save_raw);
}

TEST_F(QuestionsTest, AStepMayStillComeUntilALaterOneIsCompleteOrTheRunIsOver) {
  World(2);
  auto a = Worker(0), b = Worker(1);
  for (const int64_t step : {0, 1, 4, 5}) a->Step(step);
  for (const int64_t step : {0, 1, 4}) b->Step(step);
  const auto trial = Open();
  EXPECT_EQ(trial->last_complete_step(), 4);
  EXPECT_EQ(trial->step_state(1), StepState::kAvailable);
  EXPECT_EQ(trial->step_state(3), StepState::kUnavailable);
  EXPECT_EQ(trial->step_state(5), StepState::kNotYetAvailable);
  EXPECT_EQ(trial->step_state(6), StepState::kNotYetAvailable);
  EXPECT_EQ(trial->step_state(0, {.mode = ModeKey::kEval}), StepState::kNotYetAvailable);
  EXPECT_EQ(trial->step_state(1, {.begin = 2}), StepState::kUnavailable);
  EXPECT_THAT(trial->steps({.incomplete = true}), ElementsAre(0, 1, 4, 5));
  EXPECT_THAT(trial->step_workers(5), ElementsAre("worker_0"));
  EXPECT_THAT(trial->missing_workers(5), ElementsAre("worker_1"));
  EXPECT_THAT(trial->missing_workers(4), IsEmpty());
  EXPECT_THAT(*trial->tensor_workers("t0", 5), ElementsAre("worker_0"));
  EXPECT_THAT(*trial->tensor_workers("t0", 4), ElementsAre("worker_0", "worker_1"));
  EXPECT_EQ(trial->world_size(), 2);
  EXPECT_EQ(trial->WaitForStep(5, {}, 0).status().code(), Code::kDeadlineExceeded);
  std::thread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    b->Step(5);
  });
  EXPECT_EQ(*trial->WaitForStep(5, {}, 10'000), StepState::kAvailable);
  late.join();
  for (auto* worker : {a.get(), b.get()}) {
    worker->End();
    worker->Close();
  }
  EXPECT_EQ(*trial->WaitForStep(6, {}, 10'000), StepState::kUnavailable);
}

TEST_F(QuestionsTest, ASliceIsAViewOfThePartThatWasAskedFor) {
  auto worker = Worker(0, {.raw_elements = 0});
  float values[2 * 3 * 4];
  for (int i = 0; i < 24; ++i) values[i] = static_cast<float>(i);
  const int64_t shape[] = {2, 3, 4};
  worker->writer->AppendRaw(0, 1, {}, {values, DType::kFloat32, shape, {}});
  worker->Step(0);
  for (const bool sealed : {false, true}) {
    if (sealed) worker->End();
    const auto trial = Open();
    const AxisRange ranges[] = {{1, 1}, {2, 2, -2}, {1, 2, 2}};
    const auto part = trial->slice("t1", 0, ranges);
    TDBG_ASSERT_OK(part);
    EXPECT_THAT(part->shape, ElementsAre(1, 2, 2));
    float got[4];
    CopyContiguous(part->view, reinterpret_cast<std::byte*>(got));
    EXPECT_THAT(got, ElementsAre(21, 23, 13, 15));
    EXPECT_THAT(trial->slice("t1", 0, {})->shape, ElementsAre(2, 3, 4));
    EXPECT_THAT(trial->slice("t1", 0, std::vector<AxisRange>{{0, 0}})->shape, ElementsAre(0, 3, 4));
    EXPECT_THAT(*trial->shape("t1", 0), ElementsAre(2, 3, 4));
    for (const AxisRange& wrong : {AxisRange{2, 1}, AxisRange{0, 3}, AxisRange{-1, 1}, AxisRange{0, 2, 2},
                                   AxisRange{0, -1}, AxisRange{0, 2, 0}, AxisRange{1, 2, INT64_MAX}}) {
      EXPECT_EQ(trial->slice("t1", 0, std::vector<AxisRange>{wrong}).status().code(), Code::kInvalidArgument);
    }
    EXPECT_EQ(trial->slice("t1", 0, std::vector<AxisRange>(4)).status().code(), Code::kInvalidArgument);
    EXPECT_EQ(trial->slice("t2", 0, {}).status().code(), Code::kNotFound);
  }
}

TEST_F(QuestionsTest, AFrameHoldsTheSeriesOfAllItsTensorsAndWorkers) {
  World(2);
  auto a = Worker(0), b = Worker(1);
  a->Steps(0, 3);
  b->Steps(0, 2);
  b->End();
  b->Close();
  const auto trial = Open();
  const std::string fields[] = {"mean", "nan_count"};
  const auto frame = trial->frame({.collection = "weights"}, fields, "*");
  TDBG_ASSERT_OK(frame);
  EXPECT_THAT(frame->names, ElementsAre("tensor/1", "tensor/2"));
  EXPECT_THAT(frame->workers, ElementsAre("worker_0", "worker_1"));
  EXPECT_THAT(frame->step, ElementsAre(0, 0, 1, 1, 2, 0, 0, 1, 1, 2));
  EXPECT_THAT(frame->tensor, ElementsAre(0, 0, 0, 0, 0, 1, 1, 1, 1, 1));
  EXPECT_THAT(frame->worker, ElementsAre(0, 1, 0, 1, 0, 0, 1, 0, 1, 0));
  EXPECT_THAT(frame->values[0], ElementsAre(1, 1, 11, 11, 21, 2, 2, 12, 12, 22));
  EXPECT_THAT(frame->values[1], ElementsAre(0, 0, 1, 1, 2, 0, 0, 1, 1, 2));
  const std::string value[] = {"value", "mean_abs"};
  const auto numbers = trial->frame({.regex = "^lr$"}, value);
  EXPECT_THAT(numbers->values[0], ElementsAre(1, 0.5, 1.0 / 3));
  EXPECT_TRUE(std::isnan(numbers->values[1][0])) << "a plain number has no statistics";
  EXPECT_EQ(trial->frame({}, fields, "worker_7").status().code(), Code::kNotFound);
  EXPECT_EQ(trial->frame({.regex = "("}, fields).status().code(), Code::kInvalidArgument);
}

TEST_F(QuestionsTest, StatisticsOfRawValuesAloneAreComputed) {
  auto worker = Worker(0, {.raw_elements = 0});
  const float values[4] = {1, -2, 3, INFINITY};
  const int64_t shape[] = {2, 2};
  format::Commit commit;
  worker->writer->AppendRaw(0, 1, {}, {values, DType::kFloat32, shape, {}});
  worker->writer->Commit(commit);
  const auto trial = Open();
  EXPECT_THAT(trial->series("t1", "abs_max")->values, ElementsAre(3));
  EXPECT_THAT(trial->series("t1", "nonfinite_count")->values, ElementsAre(1));
  EXPECT_EQ(*static_cast<const double*>(trial->reduction("t1", 0, "max")->data), INFINITY);
  EXPECT_EQ(*static_cast<const double*>(trial->reduction("t1", 0, "prod")->data), -INFINITY);
}

TEST_F(QuestionsTest, ASeriesOfASealedRunHasStepsWithStatisticsAndStepsWithValuesOnly) {
  auto worker = Worker(0, {.raw_elements = 4});
  worker->Steps(0, 2);
  const float values[2] = {40, 50};
  const int64_t shape[] = {2};
  format::Commit commit;
  commit.global_step = commit.mode_step = 2;
  worker->writer->AppendRaw(2, 1, {}, {values, DType::kFloat32, shape, {}});
  worker->writer->Commit(commit);
  worker->Step(3);
  worker->Final(3);
  worker->End();
  worker->Close();
  const auto trial = Open();
  const auto series = trial->series("t1", "mean");
  EXPECT_THAT(series->steps, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(series->values, ElementsAre(1, 11, 45, 31));
  EXPECT_THAT(trial->series("t0", "mean")->steps, ElementsAre(0, 1, 3));
  const std::vector<std::string> fields = {"mean"};
  const auto frame = trial->frame({.names = {"tensor/1"}, .steps = {.begin = 1, .end = 3}}, fields);
  EXPECT_THAT(frame->step, ElementsAre(1, 2));
  EXPECT_THAT(frame->values[0], ElementsAre(11, 45));
}

// A frame takes rows by lists and a series one by one; of a step the row that counts is the same.
TEST_F(QuestionsTest, AFrameOfOneTensorIsItsSeries) {
  auto worker = Worker(0, {.raw_elements = 0, .segment_bytes = 16 << 10});
  std::vector<int64_t> odd;
  for (int64_t step = 0; step < 200; ++step) {
    for (const uint16_t micro : {1, 2, 0}) {
      if (micro != 0 ? step % 3 == 0 : step % 5 == 4) continue;  // no micro-steps; micro-steps alone
      std::vector<format::SummaryRow> rows;
      for (uint32_t t = 0; t < 3; ++t) {
        Summary summary = WorkerFixture::SummaryAt(static_cast<int>(t), step);
        summary.mean += 0.25 * micro;
        rows.push_back(format::ToRow(t, {micro}, summary));
      }
      worker->writer->AppendSummaries(step, rows, {});
    }
    format::Commit commit;
    commit.global_step = step;
    commit.mode_step = step / 2;
    commit.mode = static_cast<uint16_t>(step % 2 != 0 ? format::Mode::kEval : format::Mode::kTrain);
    if (step % 2 != 0 && (step % 3 != 0 || step % 5 != 4)) odd.push_back(step);
    worker->writer->Commit(commit);
  }
  for (const bool sealed : {false, true}) {
    if (sealed) {
      worker->End();
      worker->Close();
    }
    const auto trial = Open();
    const std::vector<std::string> fields = {"mean", "std", "mean_abs", "nonfinite_count", "zero_count"};
    const auto frame = trial->frame({.names = {"tensor/1"}}, fields);
    TDBG_ASSERT_OK(frame);
    for (size_t f = 0; f < fields.size(); ++f) {
      const auto series = trial->series("tensor/1", fields[f]);
      TDBG_ASSERT_OK(series);
      EXPECT_EQ(frame->step, series->steps) << sealed;
      EXPECT_EQ(frame->values[f], series->values) << fields[f] << sealed;
    }
    EXPECT_EQ(frame->step.size(), 200u - 13) << "of 200 steps 13 have neither";
    EXPECT_EQ(frame->mode_step[4], 2);
    const auto evaluations =
        trial->frame({.names = {"tensor/1"}, .steps = {.mode = ModeKey::kEval}}, {{fields[0]}});
    TDBG_ASSERT_OK(evaluations);
    EXPECT_EQ(evaluations->step, odd) << sealed;
  }
}

}  // namespace
}  // namespace tdbg
