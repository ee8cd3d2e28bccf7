// What a trial keeps of each step of a run that it follows. This program's operator new counts bytes.
#include <gmock/gmock.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "format/run_files.h"
#include "store/reader/testing.h"
#include "trial/access.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // those bring their own

namespace {
std::atomic<int64_t> live_bytes{0};
}  // namespace

// Not inlined: the compiler takes free() beside a `new` for a mistake.
[[gnu::noinline]] void* operator new(size_t bytes) {
  void* const block = std::malloc(bytes);
  if (block == nullptr) throw std::bad_alloc();
  live_bytes += static_cast<int64_t>(::malloc_usable_size(block));
  return block;
}
[[gnu::noinline]] void operator delete(void* block) noexcept {
  if (block != nullptr) live_bytes -= static_cast<int64_t>(::malloc_usable_size(block));
  std::free(block);
}
void operator delete(void* block, size_t) noexcept { operator delete(block); }

namespace tdbg {
namespace {

using store::WorkerFixture;

/// Bytes that a trial holds which followed a run of so many steps as a watcher does, up to its end.
int64_t BytesAfterFollowing(const std::string& path, int64_t steps) {
  format::RunInfo run;
  run.id = "0123456789abcdef0123456789abcdef";
  std::filesystem::create_directories(path + "/0");
  base::Spill(path + "/run.json", run.ToJson());
  base::Spill(path + "/0/attempt.json", format::AttemptInfo().ToJson());
  const int64_t before = live_bytes;
  std::unique_ptr<Trial> trial;
  {
    WorkerFixture worker(path + "/0/worker_0", {.tensors = 1, .raw_elements = 0, .histograms_every = 0});
    worker.Steps(0, 1);
    auto opened = Trial::Open(path);
    TDBG_EXPECT_OK(opened);
    if (!opened.ok()) return 0;
    trial = *std::move(opened);
    const TensorIndex tensor = *TrialAccess(*trial).Find("tensor/0");
    size_t judged = 0;
    std::vector<TrialAccess::Scalar> scalars;
    const auto look = [&] {
      TDBG_EXPECT_OK(trial->Refresh());
      const TrialAccess access(*trial);
      for (; judged < access.complete_count(); ++judged) {
        EXPECT_EQ(access.RowSpansOf(judged).size(), 1u);
        scalars.clear();
        access.ScalarsOf(judged, &scalars);
        EXPECT_EQ(scalars.size(), 1u);
      }
      EXPECT_TRUE(access.RowAt(tensor, judged - 1));
    };
    for (int64_t s = 1; s < steps; s += 500) {
      worker.Steps(s, std::min(s + 500, steps));
      look();
    }
    worker.End();
    worker.Close();
    look();
    EXPECT_EQ(judged, static_cast<size_t>(steps));
  }
  return live_bytes - before;
}

// A million steps are an evening of a small model's training, and somebody watches all of it.
TEST(StepMemory, AStepCostsItsWatcherLessThanAHundredBytes) {
  const base::ScratchDirectory scratch;
  const int64_t few = BytesAfterFollowing(scratch / "few", 4'000);
  const int64_t many = BytesAfterFollowing(scratch / "many", 20'000);
  const double bytes_per_step = static_cast<double>(many - few) / 16'000;
  EXPECT_GT(bytes_per_step, 8) << "they are not counted";
  EXPECT_LT(bytes_per_step, 100);
  RecordProperty("bytes_per_step", std::to_string(bytes_per_step));
}

// Who follows a training of quick steps sees them come one by one. What waits in the journal for its segment
// is held in memory, so that it must not cost much more there.
TEST(StepMemory, WhatIsNotSealedYetCostsHardlyMoreThanInTheJournal) {
  const base::ScratchDirectory scratch;
  const std::string path = scratch / "run";
  format::RunInfo run;
  run.id = "0123456789abcdef0123456789abcdef";
  std::filesystem::create_directories(path + "/0");
  base::Spill(path + "/run.json", run.ToJson());
  base::Spill(path + "/0/attempt.json", format::AttemptInfo().ToJson());
  constexpr int64_t kSteps = 6000;
  WorkerFixture worker(path + "/0/worker_0", {.raw_elements = 16, .journal_bytes = 64 << 20});
  worker.Steps(0, 1);
  auto trial = Trial::Open(path);
  TDBG_ASSERT_OK(trial);
  const TensorIndex tensor = *TrialAccess(**trial).Find("tensor/1");
  const int64_t before = live_bytes;
  for (int64_t step = 1; step < kSteps; ++step) {
    worker.Steps(step, step + 1);
    TDBG_ASSERT_OK((*trial)->Refresh());
    const TrialAccess access(**trial);
    EXPECT_EQ(access.RowSpansOf(access.complete_count() - 1).size(), 1u);
    EXPECT_TRUE(access.RowAt(tensor, access.complete_count() - 1));
  }
  const double held = static_cast<double>(live_bytes - before) / kSteps;
  const double in_journal = static_cast<double>((*trial)->bytes_on_disk()) / kSteps;
  EXPECT_LT(held, in_journal);
  RecordProperty("bytes_per_step", std::to_string(held));

  // What was put together is what was read.
  auto again = Trial::Open(path);
  TDBG_ASSERT_OK(again);
  for (const int64_t step : {int64_t{0}, int64_t{255}, int64_t{256}, kSteps / 2, kSteps - 1}) {
    EXPECT_EQ((*trial)->summary("t1", step)->mean, (*again)->summary("t1", step)->mean) << step;
    EXPECT_EQ(*(*trial)->histogram("t2", step), *(*again)->histogram("t2", step));
    EXPECT_EQ(*(*trial)->histogram("t2", step), WorkerFixture::HistogramAt(2, step));
    EXPECT_EQ(*(*trial)->shape("t1", step), *(*again)->shape("t1", step));
    EXPECT_EQ(*(*trial)->scalar("lr", step), WorkerFixture::Rate(step));
    const auto value = (*trial)->value("t1", step);
    TDBG_ASSERT_OK(value);
    EXPECT_EQ(*static_cast<const float*>(value->data), WorkerFixture::Element(1, step, 0));
  }
  EXPECT_EQ((*trial)->steps(), (*again)->steps());
  EXPECT_EQ((*trial)->series("t1", "mean")->values, (*again)->series("t1", "mean")->values);
}

}  // namespace
}  // namespace tdbg

#endif
