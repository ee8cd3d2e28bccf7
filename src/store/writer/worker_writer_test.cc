#include "store/writer/worker_writer.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <random>
#include <thread>

#include "store/writer/worker_writer_fixture.h"

namespace tdbg::store {
namespace {

TEST_F(WorkerWriterTest, WhatWasCommittedIsReadBackAndTheOpenStepIsNot) {
  Open();
  Define(0, "gradient/w");
  Row(0, 0, "hist");
  Raw(0, 0, Values(0, 0, 100));
  Commit(0);
  Row(1, 0);
  const Decoded before = Read();
  ASSERT_EQ(before.steps.size(), 1u);
  EXPECT_EQ(before.steps[0].rows[0].histogram, "hist");
  EXPECT_EQ(before.raws.at("gradient/w@0"), Values(0, 0, 100));
  EXPECT_EQ(before.segments, 0u);
  writer_.reset();
  const Decoded after = Read();
  EXPECT_EQ(after.segments, 1u);
  ASSERT_EQ(after.steps.size(), 1u);
  EXPECT_EQ(after.steps[0].rows[0].histogram, "hist");
  EXPECT_EQ(after.steps[0].rows[0].row.mean, 0.5);
  EXPECT_EQ(after.raws.at("gradient/w@0"), Values(0, 0, 100));
}

TEST_F(WorkerWriterTest, OfADiscardedStepOnlyDefinitionsAndContextAreLeft) {
  Open();
  Define(0, "gradient/w");
  Row(0, 0);
  Commit(0);
  Define(1, "output");
  Row(1, 0);
  Raw(1, 1, Values(1, 1, 100));
  writer_->AppendContext({1, "nan_origin", R"({"sentence":"x"})"});
  writer_->Discard();
  writer_->Discard();  // nothing is open
  Raw(1, 1, Values(1, 7, 50));
  Commit(1);
  const auto check = [this] {
    const Decoded read = Read();
    ASSERT_EQ(read.steps.size(), 2u);
    EXPECT_TRUE(read.steps[1].rows.empty());
    EXPECT_EQ(read.raws.at("output@1"), Values(1, 7, 50));
    EXPECT_EQ(read.raws.size(), 1u);
    ASSERT_EQ(read.contexts.size(), 1u);
    EXPECT_NE(read.contexts[0].find("nan_origin"), std::string::npos);
  };
  check();
  writer_.reset();
  check();
}

TEST_F(WorkerWriterTest, AKeyThatIsGivenTwiceHasACauseOfItsOwn) {
  options_.seal_interval_nanos = 1'000'000;
  Open();
  Define(0, "w");
  Raw(0, 0, Values(0, 0, 100));
  Raw(0, 0, Values(0, 1, 100));
  Commit(0);
  EXPECT_TRUE(
      Eventually([&] { return Lost(writer_->dropped(), DropCause::kRepeatedKey, DropKind::kRaw) == 1; }));
  EXPECT_EQ(Lost(writer_->dropped(), DropCause::kUnsupported, DropKind::kRaw), 0u);
  EXPECT_EQ(Read().raws.at("w@0"), Values(0, 1, 100));
}

TEST_F(WorkerWriterTest, BlockingLosesNothingOverManyLapsOfASmallJournal) {
  Open();
  std::mt19937 random(7);
  struct Step {
    std::vector<std::pair<uint32_t, std::string>> raws;
    std::vector<std::pair<uint32_t, std::string>> rows;
    std::vector<double> scalars;
  };
  std::vector<Step> written;
  uint32_t tensors = 0;
  for (int64_t s = 0; s < 400; ++s) {
    Step step;
    if (tensors == 0 || random() % 20 == 0) {
      Define(tensors, "t" + std::to_string(tensors) + "@odd.name");
      ++tensors;
    }
    for (size_t n = random() % 4; n > 0; --n) {
      const uint32_t tensor = random() % tensors;
      step.rows.emplace_back(tensor, std::string(random() % 300, static_cast<char>('a' + n)));
      Row(s, tensor, step.rows.back().second);
    }
    std::vector<format::ScalarRow> scalars(random() % 3);
    for (auto& row : scalars) {
      row.tensor = 0;
      row.value = static_cast<double>(random());
      step.scalars.push_back(row.value);
    }
    writer_->AppendScalars(s, scalars);
    for (uint32_t tensor = 0; tensor < tensors; ++tensor) {
      if (random() % 3 != 0) continue;
      const size_t count = random() % 10 == 0 ? random() % 60'000 : random() % 500;
      std::string values = Values(tensor, s, count);
      if (Raw(s, tensor, values)) step.raws.emplace_back(tensor, std::move(values));
    }
    Commit(s);
    written.push_back(std::move(step));
    if (s % 100 == 57) {
      const Decoded live = Read();
      EXPECT_EQ(live.steps.size(), written.size());
    }
  }
  EXPECT_THAT(writer_->dropped(), testing::Each(testing::Field(
                                      &format::Drop::cause, static_cast<uint8_t>(DropCause::kStepTooLarge))));
  writer_->End("{\"reason\":\"done\"}", 10'000'000'000);
  writer_.reset();
  const Decoded read = Read();
  EXPECT_GT(read.segments, 5u);
  EXPECT_EQ(read.end, "{\"reason\":\"done\"}");
  ASSERT_EQ(read.steps.size(), written.size() + 1);  // the end's own commit
  EXPECT_EQ(read.steps.back().commit.flags, format::kCommitOutside);
  size_t raws = 0;
  for (size_t s = 0; s < written.size(); ++s) {
    const Decoded::Step& step = read.steps[s];
    EXPECT_EQ(step.commit.global_step, static_cast<int64_t>(s));
    ASSERT_EQ(step.rows.size(), written[s].rows.size());
    for (size_t i = 0; i < step.rows.size(); ++i) {
      EXPECT_EQ(step.rows[i].row.tensor, written[s].rows[i].first);
      EXPECT_EQ(step.rows[i].histogram, written[s].rows[i].second);
      EXPECT_EQ(step.rows[i].step, static_cast<int64_t>(s));
    }
    ASSERT_EQ(step.scalars.size(), written[s].scalars.size());
    for (size_t i = 0; i < step.scalars.size(); ++i) EXPECT_EQ(step.scalars[i].value, written[s].scalars[i]);
    for (const auto& [tensor, bytes] : written[s].raws) {
      const std::string key = "t" + std::to_string(tensor) + "@odd.name@" + std::to_string(s);
      ASSERT_TRUE(read.raws.count(key)) << key;
      EXPECT_EQ(read.raws.at(key), bytes);
      ++raws;
    }
  }
  EXPECT_EQ(read.raws.size(), raws);
}

TEST_F(WorkerWriterTest, EveryDTypeShapeAndStrideIsKept) {
  Open();
  Define(0, "x");
  const std::vector<int32_t> grid = {0, 1, 2, 3, 4, 5};
  const int64_t transposed_shape[] = {3, 2};
  const int64_t transposed_strides[] = {1, 3};
  const int64_t empty_shape[] = {2, 0};
  int64_t step = 0;
  for (int d = 1; d <= 19; ++d, ++step) {
    const double value[4] = {1, 2, 3, 4};
    ASSERT_TRUE(writer_->AppendRaw(step, 0, {}, {value, static_cast<DType>(d), {}, {}}));
    Commit(step);
  }
  ASSERT_TRUE(
      writer_->AppendRaw(step, 0, {}, {grid.data(), DType::kInt32, transposed_shape, transposed_strides}));
  ASSERT_TRUE(writer_->AppendRaw(step, 0, {2, format::Point::kAfterClip},
                                 {nullptr, DType::kFloat64, empty_shape, {}}));
  Commit(step);
  EXPECT_FALSE(writer_->AppendRaw(step, 0, {}, {grid.data(), DType::kInvalid, empty_shape, {}}));
  EXPECT_EQ(Lost(writer_->dropped(), DropCause::kUnsupported, DropKind::kRaw), 1u);
  writer_.reset();
  const Decoded read = Read();
  EXPECT_EQ(read.raws.at("x@14").size(), 16u);  // complex128
  const std::vector<int32_t> expected = {0, 3, 1, 4, 2, 5};
  EXPECT_EQ(read.raws.at("x@19"), std::string(reinterpret_cast<const char*>(expected.data()), 24));
  EXPECT_EQ(read.raws.at("x@19.1.after_clip"), "");
}

TEST_F(WorkerWriterTest, WithoutBlockingRawGoesFirstAndStatisticsStay) {
  options_.when_full = WhenFull::kDropRaw;
  options_.files = &faulty_;
  Open();
  faulty_.fail = Code::kResourceExhausted;
  Define(0, "w");
  const std::string values = Values(0, 0, 20'000);
  for (int64_t s = 0; s < 100; ++s) {
    Raw(s, 0, values);
    Row(s, 0, "h");
    Commit(s);
    if (s == 30) {
      ASSERT_TRUE(Eventually([this] { return faulty_.failures > 0; }));
    }
  }
  EXPECT_GT(Lost(writer_->dropped(), DropCause::kDiskFull, DropKind::kRaw), 50u);
  EXPECT_EQ(Lost(writer_->dropped(), DropCause::kDiskFull, DropKind::kSummary), 0u);
  EXPECT_FALSE(writer_->last_error().ok());
  faulty_.fail = Code::kOk;  // somebody frees the disk
  int64_t s = 100;
  ASSERT_TRUE(Eventually([&] {
    const bool kept = Raw(s, 0, values);
    Commit(s++);
    return kept;
  }));
  writer_.reset();
  const Decoded read = Read();
  EXPECT_EQ(read.steps.size(), static_cast<size_t>(s));
  EXPECT_TRUE(read.raws.count("w@" + std::to_string(s - 1)));
}

TEST_F(WorkerWriterTest, AFullDiskDoesNotHangABlockingTraining) {
  options_.files = &faulty_;
  faulty_.fail_midway = true;
  Open();
  faulty_.fail = Code::kResourceExhausted;
  Define(0, "w");
  const std::string values = Values(0, 0, 50'000);
  const auto start = std::chrono::steady_clock::now();
  for (int64_t s = 0; s < 2000; ++s) {
    Raw(s, 0, values);
    Row(s, 0, "h");
    Commit(s);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  const auto dropped = writer_->dropped();
  EXPECT_GT(Lost(dropped, DropCause::kDiskFull, DropKind::kRaw), 1000u);
  EXPECT_GT(Lost(dropped, DropCause::kDiskFull, DropKind::kHistogram) +
                Lost(dropped, DropCause::kDiskFull, DropKind::kSummary),
            0u);
  const uint64_t lost_steps = Lost(dropped, DropCause::kDiskFull, DropKind::kStep);
  faulty_.fail = Code::kOk;
  writer_.reset();
  EXPECT_EQ(Read().steps.size(), 2000 - lost_steps);
  EXPECT_THAT(base::LocalFileSystem().List(scratch_ / "segments")->at(0).name,
              testing::Not(testing::StartsWith(".")));
}

TEST_F(WorkerWriterTest, TheEndDoesNotWaitForADiskThatRefuses) {
  options_.files = &faulty_;
  Open();
  faulty_.fail = Code::kResourceExhausted;
  Define(0, "w");
  Raw(0, 0, Values(0, 0, 100));
  Commit(0);
  const auto start = std::chrono::steady_clock::now();
  writer_->End("{}", 3'600'000'000'000);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::minutes(1));
  writer_->Close();  // unsealed: the drain goes on trying
  faulty_.fail = Code::kOk;
  writer_.reset();
  EXPECT_EQ(Read().steps.size(), 2u);
}

TEST_F(WorkerWriterTest, AStepLargerThanTheJournalIsCountedAndNeverWaitedFor) {
  Open();
  Define(0, "w");
  Define(1, "v");
  Define(2, "u");
  const std::string large = Values(0, 0, 90'000);  // two fill what raw tensors may of 1 MiB
  EXPECT_TRUE(Raw(0, 0, large));
  EXPECT_TRUE(Raw(0, 1, large));
  EXPECT_FALSE(Raw(0, 2, large));
  Row(0, 0, "still");
  Commit(0);
  const std::string huge(2 << 20, 'x');
  EXPECT_FALSE(Raw(1, 0, huge));
  Commit(1);
  EXPECT_EQ(Lost(writer_->dropped(), DropCause::kStepTooLarge, DropKind::kRaw), 2u);
  writer_.reset();
  const Decoded read = Read();
  ASSERT_EQ(read.steps.size(), 2u);
  EXPECT_EQ(read.steps[0].commit.shed, 1u);
  EXPECT_EQ(read.steps[0].rows.size(), 1u);
  EXPECT_EQ(read.raws.size(), 2u);
}

TEST_F(WorkerWriterTest, ManyRowsOfOneStepAreSplitAndKeepTheirHistograms) {
  Open();
  std::vector<format::SummaryRow> rows(3000);
  std::string histograms;
  for (size_t i = 0; i < rows.size(); ++i) {
    Define(static_cast<uint32_t>(i), "t" + std::to_string(i));
    const std::string h = "h" + std::to_string(i);
    rows[i].tensor = static_cast<uint32_t>(i);
    rows[i].histogram_offset = static_cast<uint32_t>(histograms.size());
    rows[i].histogram_bytes = static_cast<uint32_t>(h.size());
    histograms += h;
  }
  Commit(0);
  writer_->AppendSummaries(1, rows, {reinterpret_cast<const uint8_t*>(histograms.data()), histograms.size()});
  Commit(1);
  EXPECT_THAT(writer_->dropped(), testing::IsEmpty());
  writer_.reset();
  const Decoded read = Read();
  ASSERT_EQ(read.steps[1].rows.size(), rows.size());
  for (size_t i = 0; i < rows.size(); ++i)
    EXPECT_EQ(read.steps[1].rows[i].histogram, "h" + std::to_string(i));
}

TEST_F(WorkerWriterTest, TheBudgetStopsRawThenHistogramsThenRowsAndSaysSo) {
  UseUpTheBudget();
  const auto dropped = writer_->dropped();
  EXPECT_GT(Lost(dropped, DropCause::kBudget, DropKind::kRaw), 1800u);
  EXPECT_GT(Lost(dropped, DropCause::kBudget, DropKind::kHistogram), 100u);
  EXPECT_EQ(dropped.size(), Lost(dropped, DropCause::kBudget, DropKind::kSummary) > 0 ? 3u : 2u);
  EXPECT_THAT(writer_->last_error().message(), testing::HasSubstr("budget"));
  EXPECT_FALSE(writer_->RoomForRaw(1));
  writer_.reset();
  EXPECT_EQ(Read().steps.size(), 2000u);
}

TEST_F(WorkerWriterTest, WhatACompactorFreedIsUsedWithoutWaitingForTheNextSegment) {
  options_.segment_bytes = 64 << 10;  // otherwise all of it waits in the journal
  UseUpTheBudget();
  // Until nothing is left that would be sealed, and counted with it.
  ASSERT_TRUE(Eventually([this] {
    const uint64_t before = writer_->bytes_sealed();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    return writer_->bytes_sealed() == before;
  }));
  ASSERT_FALSE(writer_->RoomForRaw(1));
  std::filesystem::create_directory(options_.worker_directory + "/levels");
  for (const auto& segment : std::filesystem::directory_iterator(options_.worker_directory + "/segments"))
    std::filesystem::resize_file(segment.path(), 1);
  EXPECT_TRUE(Eventually([this] { return writer_->RoomForRaw(1); }));
}

TEST_F(WorkerWriterTest, TensorsThatAreStatisticsStayAsLongAsStatisticsDo) {
  options_.when_full = WhenFull::kDropRaw;
  options_.files = &faulty_;
  Open();
  faulty_.fail = Code::kResourceExhausted;
  Define(0, "w");
  Define(1, "statistic/count_above(0)/w");
  const std::string values = Values(0, 0, 20'000);
  const int32_t counts[] = {100, 4, 0, 7};
  const int64_t shape[] = {4};
  for (int64_t s = 0; s < 100; ++s) {
    Raw(s, 0, values);
    EXPECT_TRUE(writer_->AppendRaw(s, 1, {}, {counts, DType::kInt32, shape, {}}, DropKind::kSummary));
    Commit(s);
    if (s == 30) {
      ASSERT_TRUE(Eventually([this] { return faulty_.failures > 0; }));
    }
  }
  EXPECT_GT(Lost(writer_->dropped(), DropCause::kDiskFull, DropKind::kRaw), 50u);
  int64_t s = 100;
  ASSERT_TRUE(Eventually([&] {  // until there is no room for statistics either
    const bool kept = writer_->AppendRaw(s, 1, {}, {counts, DType::kInt32, shape, {}}, DropKind::kSummary);
    Commit(s++);
    return !kept;
  }));
  EXPECT_EQ(Lost(writer_->dropped(), DropCause::kDiskFull, DropKind::kSummary), 1u);
  faulty_.fail = Code::kOk;
}

TEST_F(WorkerWriterTest, ADirectoryThatVanishesIsCountedAndOneThatReturnsIsUsed) {
  options_.journal_path = scratch_ / "elsewhere";
  options_.worker_directory = scratch_ / "w";
  ASSERT_TRUE(base::LocalFileSystem().CreateDirectories(options_.worker_directory).ok());
  Open();
  std::filesystem::rename(options_.worker_directory, scratch_ / "moved");
  const int64_t steps = CommitUntilDirectoryGone();
  EXPECT_FALSE(base::LocalFileSystem().Exists(options_.worker_directory));
  std::filesystem::rename(scratch_ / "moved", options_.worker_directory);
  writer_.reset();
  EXPECT_EQ(Read().steps.size(), static_cast<size_t>(steps));
}

TEST_F(WorkerWriterTest, ASlowDiskIsWaitedForWhenBlocking) {
  options_.files = &faulty_;
  faulty_.stall_millis = 30;
  Open();
  Define(0, "w");
  for (int64_t s = 0; s < 20; ++s) {
    EXPECT_TRUE(Raw(s, 0, Values(0, s, 50'000)));
    Commit(s);
  }
  EXPECT_THAT(writer_->dropped(), testing::IsEmpty());
  writer_.reset();
  EXPECT_EQ(Read().raws.size(), 20u);
}

TEST_F(WorkerWriterTest, TheJournalShrinksUntilItFits) {
  options_.files = &faulty_;
  options_.journal_bytes = 64 << 20;
  faulty_.largest_mapping = 5 << 20;
  Open();
  EXPECT_EQ(std::filesystem::file_size(options_.journal_path), 4u << 20);
  writer_.reset();
  faulty_.largest_mapping = 0;
  EXPECT_EQ(WorkerWriter::Open(options_).status().code(), Code::kResourceExhausted);
}

TEST_F(WorkerWriterTest, AHeldLockIsRefused) {
  Open();
  EXPECT_EQ(WorkerWriter::Open(options_).status().code(), Code::kFailedPrecondition);
}

TEST_F(WorkerWriterTest, ASecondWriterContinuesTheDirectoryOfTheFirst) {
  Open();
  Define(0, "a");
  Raw(0, 0, Values(0, 0, 10));
  Commit(0);
  writer_->End("{}", 1'000'000'000);
  writer_.reset();
  Open();
  Define(0, "b");
  Row(1, 0);
  Raw(1, 0, Values(1, 1, 10));
  Commit(1);
  const Decoded live = Read();
  EXPECT_EQ(live.raws.at("b@1"), Values(1, 1, 10));
  EXPECT_EQ(live.steps.back().rows[0].row.tensor, 1u);
  writer_.reset();
  const Decoded read = Read();
  EXPECT_EQ(read.raws.at("a@0"), Values(0, 0, 10));
  EXPECT_EQ(read.raws.at("b@1"), Values(1, 1, 10));
  EXPECT_EQ(read.tensors, (std::map<uint32_t, std::string>{{0, "a"}, {1, "b"}}));
}

TEST_F(WorkerWriterTest, TheDoorbellCarriesTheLastSequence) {
  Open();
  Commit(0);
  Commit(1);
  EXPECT_TRUE(Eventually([&] {
    const std::string bell = base::Slurp(scratch_ / "doorbell");
    return bell.size() == 8 && base::Load<uint64_t>(bell.data()) == 2;
  }));
}

TEST_F(WorkerWriterTest, AFinishedRunGivesTheRingBack) {
  options_.journal_bytes = 8 << 20;
  Open();
  Define(0, "w");
  Raw(0, 0, Values(0, 0, 500'000));
  Commit(0);
  writer_->End("{}", 5'000'000'000);
  EXPECT_EQ(Read().segments, 1u);
  writer_.reset();
  struct stat info;
  ASSERT_EQ(::stat(options_.journal_path.c_str(), &info), 0);
  EXPECT_EQ(info.st_size, 8 << 20);
  EXPECT_LT(info.st_blocks * 512, 64 << 10);
  EXPECT_EQ(Read().steps.size(), 2u);
}

TEST_F(WorkerWriterTest, AFileSizeLimitIsALossAndNotASignal) {
  Open();
  const std::string values = Values(0, 0, 100'000);
  rlimit before;
  ::getrlimit(RLIMIT_FSIZE, &before);
  rlimit limit = before;
  limit.rlim_cur = 200 << 10;
  ::setrlimit(RLIMIT_FSIZE, &limit);
  const base::ScratchDirectory other;
  WriterOptions too_large = options_;
  too_large.worker_directory = other.path();
  too_large.journal_path = other / "journal";
  EXPECT_EQ(WorkerWriter::Open(too_large).status().code(), Code::kResourceExhausted);
  Define(0, "w");
  for (int64_t s = 0; s < 20; ++s) {
    Raw(s, 0, values);
    Commit(s);
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_GT(Lost(writer_->dropped(), DropCause::kDiskFull, DropKind::kRaw), 0u);
  writer_.reset();
  EXPECT_EQ(Read().steps.size(), 20u);
}

TEST_F(WorkerWriterTest, AfterForkTheChildForgetsAndTheParentGoesOn) {
  Open();
  Define(0, "w");
  Raw(0, 0, Values(0, 0, 10));
  Commit(0);
  const pid_t child = ::fork();
  if (child == 0) {
    writer_->Abandon();
    Row(9, 0);
    Commit(9);
    writer_.reset();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(base::LocalFileSystem().IsLocked(scratch_ / "lock"));
  Row(1, 0);
  Commit(1);
  writer_.reset();
  EXPECT_EQ(Read().steps.size(), 2u);
}

}  // namespace
}  // namespace tdbg::store
