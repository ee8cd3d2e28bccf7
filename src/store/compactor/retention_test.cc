// What is dropped when a budget is full, and what never is.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

#include "base/testing.h"
#include "format/level.h"
#include "store/compactor/compactor.h"
#include "store/compactor/testing.h"
#include "store/reader/level_reader.h"
#include "store/reader/testing.h"

namespace tdbg::store {
namespace {

namespace fs = std::filesystem;

/// What stays: 50 steps at either end and 20 around step 700.
CompactOptions Thinning(uint64_t budget_bytes) {
  CompactOptions options;
  options.retention.budget_bytes = budget_bytes;
  options.retention.newest = options.retention.first = 50;
  options.retention.kept = {{690, 709}};
  return options;
}
bool Stays(int64_t step) { return step < 50 || step >= 1950 || (step >= 690 && step <= 709); }

class RetentionTest : public testing::Test {
 protected:
  RetentionTest() {
    options_.raw_elements = 8;
    options_.histograms_every = 10;
    options_.segment_bytes = 100'000;
    WorkerFixture fixture(worker_, options_);
    fixture.Steps(0, 2000);
    fixture.Final(1999);
    fixture.End();
    fixture.Close();
  }
  uint64_t SegmentBytes() const {
    uint64_t bytes = 0;
    for (const std::string& segment : SegmentsOf(worker_)) bytes += fs::file_size(segment);
    return bytes;
  }
  std::unique_ptr<WorkerReader> Open() const {
    auto reader = WorkerReader::Open(worker_);
    EXPECT_TRUE(reader.ok());
    return *std::move(reader);
  }

  base::ScratchDirectory directory_;
  const std::string worker_ = directory_.path() + "/worker_0";
  WorkerFixture::Options options_;
};

TEST_F(RetentionTest, WhatCoarseRowsTellOfGoesAndWhatIsKeptStaysAsItWas) {
  const uint64_t before = SegmentBytes();
  const Checked all = CheckEverything(*Open(), options_);
  const auto result = CompactWorker(worker_, Thinning(1));
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_GT(result->over_bytes, 0u);  // a budget of one byte is none that can be met
  EXPECT_LT(SegmentBytes(), before / 3);
  const auto reader = Open();
  EXPECT_TRUE(reader->damage().empty());
  // Every row, histogram and value that is left is checked.
  const Checked left = CheckEverything(*reader, options_);
  EXPECT_EQ(left.refused, 0u);
  EXPECT_EQ(left.commits, all.commits);
  EXPECT_EQ(left.scalars, all.scalars);
  LevelReader levels(worker_);
  levels.Refresh();
  const int64_t covered = levels.CoveredUntil(2);
  size_t stay = 0, thinned = 0;
  const CommitList commits = reader->commits();
  for (const format::Commit& commit : commits) {
    if ((commit.flags & format::kCommitOutside) != 0) {
      EXPECT_EQ(commit.flags, format::kCommitOutside);
      stay += commit.summary_rows / 3;
      continue;
    }
    const bool stays = Stays(commit.global_step) || commit.global_step > covered;
    stay += stays;
    EXPECT_EQ((commit.flags & format::kCommitThinned) == 0, stays) << commit.global_step;
    EXPECT_EQ(commit.summary_rows, stays ? 3u : 0u);
    EXPECT_EQ(commit.raw_tensors, stays ? 3u : 0u);
    EXPECT_EQ(commit.shed, stays ? 0u : 6u);
    thinned += !stays;
  }
  EXPECT_EQ(result->thinned_steps, thinned);
  EXPECT_EQ(left.summaries, 3 * stay);
  EXPECT_EQ(left.raws, 3 * stay);
  EXPECT_EQ(result->dropped_rows, 3 * thinned);
  // A second time there is nothing left to drop, and nothing is written again.
  const auto again = CompactWorker(worker_, Thinning(1));
  EXPECT_EQ(again->thinned_steps, 0u);
  EXPECT_EQ(again->files, 0u);
}

TEST_F(RetentionTest, TheOldestGoFirstAndNoMoreThanNeeded) {
  ASSERT_TRUE(CompactWorker(worker_).ok());
  const uint64_t budget = SegmentBytes() * 2 / 3;
  const auto result = CompactWorker(worker_, Thinning(budget));
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->over_bytes, 0u);
  EXPECT_LE(result->segment_bytes + result->level_bytes, budget);
  EXPECT_GT(result->segment_bytes + result->level_bytes, budget / 2);
  int64_t last = -1;
  const auto reader = Open();
  for (const format::Commit& commit : reader->commits()) {
    if ((commit.flags & format::kCommitThinned) != 0) last = commit.global_step;
  }
  ASSERT_GT(last, 50);
  EXPECT_LT(last, 1500);
  for (const format::Commit& commit : reader->commits()) {
    if (commit.global_step < last) {
      EXPECT_EQ((commit.flags & format::kCommitThinned) == 0, Stays(commit.global_step));
    }
  }
}

TEST(RetentionOfALivingWorkerTest, FewTensorsOfLargeValuesGoBeforeTheirCoarseRowsFillAFile) {
  const base::ScratchDirectory directory;
  const std::string worker = directory.path() + "/worker_0";
  WorkerFixture::Options options;
  options.raw_elements = 500;
  options.segment_bytes = 100'000;
  WorkerFixture fixture(worker, options);
  constexpr int64_t kSteps = 850;  // three groups of level 2, and of the rest is sealed what fills a segment
  fixture.Steps(0, kSteps);
  const auto patience = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while ((*WorkerReader::Open(worker))->commits().sealed() < 800) {
    ASSERT_LT(std::chrono::steady_clock::now(), patience);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(CompactWorker(worker)->files, 0u) << "without a budget they wait";
  const auto result = CompactWorker(worker, Thinning(1));
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_GE(result->thinned_steps, 3u * 256 - 50 - 20);
  EXPECT_GT(result->over_bytes, 0u);
  EXPECT_EQ(CompactWorker(worker, Thinning(1))->files, 0u) << "not a file for each look";
  const auto reader = WorkerReader::Open(worker);
  ASSERT_TRUE(reader.ok());
  EXPECT_TRUE((*reader)->damage().empty());
  for (const format::Commit& commit : (*reader)->commits()) {
    const bool stays = commit.global_step < 50 || commit.global_step >= kSteps - 50;
    EXPECT_FALSE(stays && (commit.flags & format::kCommitThinned) != 0) << commit.global_step;
  }
  fixture.Steps(kSteps, kSteps + 100);
  fixture.Final(kSteps + 99);
  fixture.End();
  fixture.Close();
}

TEST_F(RetentionTest, ADamagedSegmentIsLeftAsItIs) {
  const std::string segment = SegmentsOf(worker_)[1];
  std::string bytes = base::Slurp(segment);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 4);
  base::Spill(segment, bytes);
  ASSERT_TRUE(CompactWorker(worker_, Thinning(1)).ok());
  EXPECT_TRUE(base::Slurp(segment) == bytes);
}

TEST_F(RetentionTest, AReaderThatHasItOpenLetsGoOfWhatWasReplaced) {
  // Without its journal a worker's segments are looked at by every Refresh.
  fs::remove(worker_ + "/journal");
  const auto reader = Open();
  (void)CheckEverything(*reader, options_);
  const uint64_t bytes = reader->bytes_on_disk(), rewrites = reader->rewrites();
  ASSERT_TRUE(CompactWorker(worker_, Thinning(1)).ok());
  ASSERT_TRUE(reader->Refresh().ok());
  EXPECT_LT(reader->bytes_on_disk(), bytes / 3);
  EXPECT_GT(reader->rewrites(), rewrites);
  const Checked now = CheckEverything(*reader, options_), fresh = CheckEverything(*Open(), options_);
  EXPECT_EQ(now.summaries, fresh.summaries);
  EXPECT_EQ(now.raws, fresh.raws);
  EXPECT_EQ(now.histograms, fresh.histograms);
}

TEST_F(RetentionTest, KilledWhileItDropsItLosesNothingThatStays) {
  const std::string origin = directory_.path() + "/origin";
  fs::copy(worker_, origin, fs::copy_options::recursive);
  int deaths = 0;
  for (int lives = 4;; lives += 7) {
    fs::remove_all(worker_);
    fs::copy(origin, worker_, fs::copy_options::recursive);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      MortalFileSystem files(lives);
      CompactOptions options = Thinning(1);
      options.files = &files;
      ::_exit(CompactWorker(worker_, options).ok() ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    ASSERT_NE(WEXITSTATUS(status), 1);
    const auto reader = Open();
    EXPECT_TRUE(reader->damage().empty());
    EXPECT_EQ(CheckEverything(*reader, options_).refused, 0u);
    LevelReader levels(worker_);
    levels.Refresh();
    for (const format::Commit& commit : reader->commits()) {
      if (commit.raw_tensors == 3 || (commit.flags & format::kCommitOutside) != 0) continue;
      ASSERT_FALSE(Stays(commit.global_step));
      const LevelReader::Group* const group = levels.At(1, commit.global_step);
      ASSERT_TRUE(group != nullptr && group->step_first <= commit.global_step) << commit.global_step;
    }
    if (WEXITSTATUS(status) == 0) break;
    ++deaths;
  }
  EXPECT_GT(deaths, 3);
}

}  // namespace
}  // namespace tdbg::store
