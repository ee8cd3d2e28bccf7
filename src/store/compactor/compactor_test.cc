#include "store/compactor/compactor.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/testing.h"
#include "format/level.h"
#include "store/compactor/testing.h"
#include "store/reader/level_reader.h"
#include "store/reader/testing.h"
#include "tdbg/tensor.h"

namespace tdbg::store {
namespace {

namespace fs = std::filesystem;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Names and contents of the files of levels/, but for the lock.
std::map<std::string, std::string> LevelsOf(const std::string& worker) {
  std::map<std::string, std::string> out;
  for (const auto& entry : fs::directory_iterator(worker + "/levels")) {
    const std::string name = entry.path().filename().string();
    if (name == format::kLevelsLockFile) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    out[name] = {std::istreambuf_iterator<char>(file), {}};
  }
  return out;
}

CompactOptions SmallFiles() {
  CompactOptions options;
  options.file_bytes = 20'000;
  return options;
}

/// A worker of values: each row is the statistics of a tensor of 64 values that the test keeps.
class Values {
 public:
  explicit Values(const std::string& directory, uint64_t seed = 1) : random_(seed) {
    WorkerFixture::Options options;
    options.tensors = kTensors;
    options.raw_elements = 0;
    options.journal_bytes = 1 << 20;
    options.segment_bytes = 100'000;
    fixture_ = std::make_unique<WorkerFixture>(directory, options);
  }
  static constexpr int kTensors = 3;

  /// Now and then a tensor is not there, or holds what is not finite, or nothing but zeros.
  void Step(int64_t step, format::Mode mode = format::Mode::kTrain) {
    std::vector<format::SummaryRow> rows;
    std::vector<uint8_t> histograms;
    for (uint32_t t = 0; t < kTensors; ++t) {
      if (random_() % 11 == 0) continue;
      std::vector<double> x(64);
      const double scale = std::pow(10.0, static_cast<double>(random_() % 5));
      for (double& value : x)
        value = scale * (static_cast<double>(random_() % 20'001) / 10'000 - 1) + static_cast<double>(t);
      if (random_() % 9 == 0) x[random_() % x.size()] = std::numeric_limits<double>::quiet_NaN();
      if (random_() % 9 == 0) x[random_() % x.size()] = random_() % 2 == 0 ? kInfinity : -kInfinity;
      if (random_() % 13 == 0) x.assign(x.size(), 0.0);
      if (random_() % 17 == 0) x.assign(x.size(), std::numeric_limits<double>::quiet_NaN());
      Summary summary;
      Histogram histogram;
      const int64_t shape[] = {static_cast<int64_t>(x.size())};
      EXPECT_TRUE(summarizer_.Summarize({x.data(), DType::kFloat64, shape, {}}, &summary, &histogram).ok());
      rows.push_back(format::ToRow(t, {}, summary));
      if (step % 10 == 0 && !histogram.empty()) {
        rows.back().histogram_offset = static_cast<uint32_t>(histograms.size());
        EncodeHistogram(histogram, &histograms);
        rows.back().histogram_bytes = static_cast<uint32_t>(histograms.size()) - rows.back().histogram_offset;
      }
      values[{t, mode}][step] = std::move(x);
      singles[{t, mode}][step] = summary;
    }
    fixture_->writer->AppendSummaries(step, rows, histograms);
    format::Commit commit;
    commit.global_step = commit.mode_step = step;
    commit.mode = static_cast<uint16_t>(mode);
    commit.wall_nanos = 1'000 + step;
    fixture_->writer->Commit(commit);
    steps.push_back(step);
  }
  void Seal() {
    fixture_->End();
    fixture_->Close();
  }

  std::map<std::pair<uint32_t, format::Mode>, std::map<int64_t, std::vector<double>>> values;
  std::map<std::pair<uint32_t, format::Mode>, std::map<int64_t, Summary>> singles;
  std::vector<int64_t> steps;

 private:
  std::mt19937_64 random_;
  Summarizer summarizer_;
  std::unique_ptr<WorkerFixture> fixture_;
};

/// A worker that has ended, compacted into small files.
void MakeTwoGroupsOfLevelTwo(const std::string& worker) {
  Values written(worker);
  for (int64_t i = 0; i < 16 * 16 * 2; ++i) written.Step(i);
  written.Seal();
  ASSERT_TRUE(CompactWorker(worker, SmallFiles()).ok());
}

void ExpectNear(double got, double want, double scale) {
  if (std::isnan(want)) {
    EXPECT_TRUE(std::isnan(got)) << got;
  } else {
    EXPECT_NEAR(got, want, 1e-9 * scale + 1e-12);
  }
}

TEST(CompactorTest, ACoarseRowIsTheStatisticsOfAllItsSteps) {
  const base::ScratchDirectory directory;
  const std::string worker = directory.path() + "/worker_0";
  Values written(worker);
  // Steps with gaps between them, evaluations among them, and some left over that make no whole group.
  for (int64_t i = 0; i < 16 * 16 * 2 + 16 * 3 + 5; ++i)
    written.Step(i * 3, i % 40 > 35 ? format::Mode::kEval : format::Mode::kTrain);
  written.Seal();
  const auto result = CompactWorker(worker, SmallFiles());
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(result->groups, 35u + 2u);
  EXPECT_GT(result->files, 3u);
  EXPECT_EQ(result->damaged_rows, 0u);
  EXPECT_EQ(result->covered_until, (16 * 16 * 2 + 16 * 3 - 1) * 3);

  LevelReader reader(worker);
  ASSERT_TRUE(reader.Refresh());
  EXPECT_TRUE(reader.damage().empty());
  ASSERT_EQ(reader.highest_level(), 2u);
  Summarizer summarizer;
  size_t rows_seen = 0, histograms = 0;
  for (const uint32_t level : {1u, 2u}) {
    size_t at = 0;
    for (const LevelReader::Group& group : reader.GroupsOf(level)) {
      const format::LevelGroup said = group.file->GroupAt(group.group);
      EXPECT_EQ(said.steps, level == 1 ? 16u : 256u);
      EXPECT_EQ(said.step_first, written.steps[at]);
      EXPECT_EQ(said.step_last, written.steps[at + said.steps - 1]);
      EXPECT_EQ(said.wall_first, 1'000 + said.step_first);
      EXPECT_EQ(said.wall_last, 1'000 + said.step_last);
      at += said.steps;
      const LevelRows& rows = **group.file->Rows();
      size_t expected_rows = 0;
      for (const auto& [key, series] : written.singles)
        expected_rows += series.lower_bound(said.step_first) != series.upper_bound(said.step_last);
      EXPECT_EQ(said.rows, expected_rows);
      for (size_t row = group.file->FirstRow(group.group); row < group.file->FirstRow(group.group + 1);
           ++row) {
        ++rows_seen;
        const std::pair key{rows.summaries.tensor[row], static_cast<format::Mode>(rows.over.mode[row])};
        std::vector<double> all;
        uint32_t count = 0, nan = 0, infinite = 0, zero = 0;
        int64_t nan_first = -1, none_first = -1, finite_first = -1, finite_last = -1;
        Histogram merged;
        struct {
          double least = kInfinity, greatest = -kInfinity, first = 0, last = 0;
          int64_t least_at = -1, greatest_at = -1;
        } drawn[format::kDrawnStatistics];
        for (auto it = written.singles[key].lower_bound(said.step_first);
             it != written.singles[key].end() && it->first <= said.step_last; ++it) {
          const auto& [step, single] = *it;
          const std::vector<double>& x = written.values[key][step];
          all.insert(all.end(), x.begin(), x.end());
          ++count;
          nan += single.nan_count != 0;
          infinite += single.pos_inf_count + single.neg_inf_count != 0;
          zero += single.zero_count == single.count;
          if (single.nan_count != 0 && nan_first < 0) nan_first = step;
          if (single.finite_count() == 0 && none_first < 0) none_first = step;
          if (single.finite_count() != 0) finite_last = step;
          for (size_t d = 0; d < format::kDrawnStatistics; ++d) {
            const double value = format::DrawnValue(static_cast<format::DrawnStatistic>(d), single);
            if (single.finite_count() != 0) {
              if (finite_first < 0) drawn[d].first = value;
              drawn[d].last = value;
            }
            if (std::isfinite(value) && value < drawn[d].least) {
              drawn[d].least = value;
              drawn[d].least_at = step;
            }
            if (std::isfinite(value) && value > drawn[d].greatest) {
              drawn[d].greatest = value;
              drawn[d].greatest_at = step;
            }
          }
          if (single.finite_count() != 0 && finite_first < 0) finite_first = step;
          if (step % 10 == 0) {
            Histogram one;
            Summary ignored;
            const int64_t shape[] = {static_cast<int64_t>(x.size())};
            ASSERT_TRUE(summarizer.Summarize({x.data(), DType::kFloat64, shape, {}}, &ignored, &one).ok());
            merged = MergeHistograms(merged, one);
          }
        }
        Summary want;
        const int64_t shape[] = {static_cast<int64_t>(all.size())};
        ASSERT_TRUE(summarizer.Summarize({all.data(), DType::kFloat64, shape, {}}, &want, nullptr).ok());
        const Summary got = rows.SummaryAt(row);
        EXPECT_EQ(got.count, want.count);
        EXPECT_EQ(got.nan_count, want.nan_count);
        EXPECT_EQ(got.pos_inf_count, want.pos_inf_count);
        EXPECT_EQ(got.neg_inf_count, want.neg_inf_count);
        EXPECT_EQ(got.zero_count, want.zero_count);
        if (want.finite_count() != 0) {
          EXPECT_EQ(got.min, want.min);
          EXPECT_EQ(got.max, want.max);
          EXPECT_EQ(got.abs_min, want.abs_min);
          EXPECT_EQ(got.abs_max, want.abs_max);
        }
        const double range = std::max(std::fabs(want.max), std::fabs(want.min));
        ExpectNear(got.mean, want.mean, range);
        ExpectNear(got.variance, want.variance, range * range);
        ExpectNear(got.m3, want.m3, std::pow(range, 3));
        ExpectNear(got.m4, want.m4, std::pow(range, 4));
        ExpectNear(got.l1, want.l1, want.l1);
        ExpectNear(got.l2, want.l2, want.l2);
        EXPECT_EQ(rows.over.rows[row], count);
        EXPECT_EQ(rows.over.nan_rows[row], nan);
        EXPECT_EQ(rows.over.infinite_rows[row], infinite);
        EXPECT_EQ(rows.over.zero_rows[row], zero);
        const auto step_of = [&](uint32_t offset) {
          return offset == format::kNowhere ? -1 : rows.summaries.step_first[row] + int64_t{offset};
        };
        EXPECT_EQ(step_of(rows.over.nan_at[row]), nan_first);
        EXPECT_EQ(step_of(rows.over.none_finite_at[row]), none_first);
        EXPECT_EQ(step_of(rows.over.first_finite_at[row]), finite_first);
        EXPECT_EQ(step_of(rows.over.last_finite_at[row]), finite_last);
        for (size_t d = 0; d < format::kDrawnStatistics; ++d) {
          const auto& of = rows.drawn[d];
          EXPECT_EQ(step_of(of.least_at[row]), drawn[d].least_at) << format::kDrawnNames[d];
          EXPECT_EQ(step_of(of.greatest_at[row]), drawn[d].greatest_at);
          if (drawn[d].least_at >= 0) {
            EXPECT_EQ(of.least[row], drawn[d].least);
            EXPECT_EQ(of.greatest[row], drawn[d].greatest);
          }
          if (finite_first >= 0) {
            EXPECT_EQ(of.first[row], drawn[d].first);
            EXPECT_EQ(of.last[row], drawn[d].last);
          }
        }
        const auto histogram = group.file->HistogramOf(row);
        if (level == 1 || merged.empty()) {
          EXPECT_EQ(histogram.status().code(), Code::kNotFound);
        } else {
          ASSERT_TRUE(histogram.ok()) << histogram.status().ToString();
          EXPECT_EQ(*histogram, merged);
          ++histograms;
        }
      }
    }
  }
  EXPECT_GT(rows_seen, 35u * 3);
  EXPECT_GE(histograms, 6u);
  // Nothing is left to do.
  EXPECT_EQ(CompactWorker(worker, SmallFiles())->files, 0u);
}

TEST(CompactorTest, KilledAtAnyOfItsWritesItLosesNothing) {
  const base::ScratchDirectory directory;
  const std::string worker = directory.path() + "/worker_0", other = directory.path() + "/worker_1";
  Values written(worker);
  for (int64_t i = 0; i < 16 * 16 * 2; ++i) written.Step(i);
  written.Seal();
  fs::copy(worker, other, fs::copy_options::recursive);
  const auto segments = SegmentsOf(worker);
  ASSERT_TRUE(CompactWorker(other, SmallFiles()).ok());
  const auto want = LevelsOf(other);
  ASSERT_GE(want.size(), 4u);
  int deaths = 0;
  for (int lives = 0;; ++lives) {
    fs::remove_all(worker + "/levels");
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      MortalFileSystem files(lives);
      CompactOptions options = SmallFiles();
      options.files = &files;
      ::_exit(CompactWorker(worker, options).ok() ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    ASSERT_NE(WEXITSTATUS(status), 1);
    if (WEXITSTATUS(status) == 0) break;
    ++deaths;
    // What was published is whole, and whoever comes next goes on from there.
    LevelReader reader(worker);
    reader.Refresh();
    EXPECT_TRUE(reader.damage().empty()) << lives;
    const auto rest = CompactWorker(worker, SmallFiles());
    ASSERT_TRUE(rest.ok()) << rest.status().ToString();
    EXPECT_TRUE(LevelsOf(worker) == want) << "killed at write " << lives;
  }
  EXPECT_GT(deaths, 10);
  EXPECT_EQ(SegmentsOf(worker), segments);
}

TEST(CompactorTest, ASecondOneIsToldSo) {
  const base::ScratchDirectory directory;
  const std::string worker = directory.path() + "/worker_0";
  Values written(worker);
  for (int64_t i = 0; i < 64; ++i) written.Step(i);
  written.Seal();
  {
    fs::create_directories(worker + "/levels");
    const auto lock = base::LocalFileSystem().Lock(worker + "/levels/lock");
    ASSERT_TRUE(lock.ok());
    const auto second = CompactWorker(worker);
    EXPECT_EQ(second.status().code(), Code::kFailedPrecondition);
    EXPECT_NE(second.status().message().find("another"), std::string::npos);
  }
  EXPECT_EQ(CompactWorker(worker)->groups, 4u);
}

TEST(CompactorTest, RowsOfADamagedSegmentAreMissingAndSaidToBe) {
  const base::ScratchDirectory directory;
  const std::string worker = directory.path() + "/worker_0";
  Values written(worker);
  for (int64_t i = 0; i < 16 * 20; ++i) written.Step(i);
  written.Seal();
  const auto segments = SegmentsOf(worker);
  ASSERT_GE(segments.size(), 2u);
  {
    // A byte in the middle of a column of statistics.
    std::fstream file(segments[0], std::ios::binary | std::ios::in | std::ios::out);
    std::string bytes{std::istreambuf_iterator<char>(file), {}};
    const auto header = format::DecodeSegmentHeader(std::as_bytes(std::span(bytes)), bytes.size());
    ASSERT_TRUE(header.ok());
    for (const format::SegmentEntry& entry : header->entries) {
      if (entry.key != "summary/mean") continue;
      const auto at = static_cast<std::streamoff>(header->data_offset + (entry.begin + entry.end) / 2);
      file.clear();
      file.seekp(at);
      file.put(static_cast<char>(bytes[static_cast<size_t>(at)] ^ 1));
    }
  }
  const auto result = CompactWorker(worker);
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_GT(result->damaged_rows, 0u);
  EXPECT_EQ(result->groups, 20u + 1u);
  LevelReader reader(worker);
  reader.Refresh();
  uint64_t rows = 0, of_steps = 0;
  for (const LevelReader::Group& group : reader.GroupsOf(1)) {
    const LevelRows& columns = **group.file->Rows();
    for (size_t row = group.file->FirstRow(group.group); row < group.file->FirstRow(group.group + 1); ++row)
      rows += columns.over.rows[row];
    of_steps += group.steps;
  }
  uint64_t written_rows = 0;
  for (const auto& [key, series] : written.singles) written_rows += series.size();
  EXPECT_EQ(of_steps, 320u);
  EXPECT_EQ(rows, written_rows - result->damaged_rows);
}

TEST(CompactorTest, ADamagedFileIsWrittenAgainFromTheSteps) {
  const base::ScratchDirectory directory;
  const std::string worker = directory.path() + "/worker_0";
  ASSERT_NO_FATAL_FAILURE(MakeTwoGroupsOfLevelTwo(worker));
  const auto want = LevelsOf(worker);
  for (const auto& [name, bytes] : want) {
    SCOPED_TRACE(name);
    std::ofstream(worker + "/levels/" + name, std::ios::binary) << bytes.substr(0, bytes.size() / 2);
    LevelReader reader(worker);
    reader.Refresh();
    EXPECT_EQ(reader.damage().size(), 1u);
    const auto mended = CompactWorker(worker, SmallFiles());
    ASSERT_TRUE(mended.ok()) << mended.status().ToString();
    EXPECT_EQ(mended->files, 1u);
    EXPECT_EQ(mended->damaged_files, 0u);
    EXPECT_TRUE(LevelsOf(worker) == want);
  }
}

TEST(CompactorTest, ADamagedFileThatCannotBeMadeAgainIsNotRemovedAsIfItCould) {
  const base::ScratchDirectory directory;
  const std::string worker = directory.path() + "/worker_0";
  ASSERT_NO_FATAL_FAILURE(MakeTwoGroupsOfLevelTwo(worker));
  // Of level 1 the oldest file was dropped, as it is where a budget is full.
  std::string oldest, above;
  for (const auto& [name, bytes] : LevelsOf(worker)) {
    if (name.starts_with("1-") && oldest.empty()) oldest = name;
    if (name.starts_with("2-") && above.empty()) above = name;
  }
  ASSERT_FALSE(oldest.empty() || above.empty());
  ASSERT_GT(LevelsOf(worker).size(), 2u);
  fs::remove(worker + "/levels/" + oldest);
  const std::string half = LevelsOf(worker)[above].substr(0, 2'000);
  std::ofstream(worker + "/levels/" + above, std::ios::binary | std::ios::trunc) << half;
  const auto result = CompactWorker(worker, SmallFiles());
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(result->damaged_files, 1u);
  EXPECT_TRUE(LevelsOf(worker)[above] == half);
}

TEST(CompactorTest, NoFlippedByteOfAFileIsBelieved) {
  const base::ScratchDirectory directory;
  const std::string worker = directory.path() + "/worker_0";
  Values written(worker);
  for (int64_t i = 0; i < 16; ++i) written.Step(i);
  written.Seal();
  ASSERT_TRUE(CompactWorker(worker).ok());
  const auto [name, bytes] = *LevelsOf(worker).begin();
  const std::string path = directory.path() + "/" + name;
  const auto header = format::DecodeSegmentHeader(std::as_bytes(std::span(bytes)), bytes.size());
  size_t refused = 0, looked = 0;
  format::LevelHeaders fresh, knowing;  // the second one has read the whole file
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  ASSERT_TRUE(LevelFile::Open(path, &knowing).ok());
  fs::remove(path);
  for (size_t at = 0; at < bytes.size(); at += at < 8 ? 1 : 31) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 0x10);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << changed;
    for (format::LevelHeaders* headers : {&fresh, &knowing}) {
      const auto file = LevelFile::Open(path, headers);
      ++looked;
      refused += !file.ok() || !(*file)->Rows().ok();
    }
    fs::remove(path);
  }
  EXPECT_EQ(refused, looked);
}

TEST(CompactorTest, WhatFilesDefineTheSameIsReadOnce) {
  const base::ScratchDirectory directory;
  const std::string worker = directory.path() + "/worker_0";
  WorkerFixture::Options options;
  options.tensors = 50;
  options.raw_elements = 0;
  WorkerFixture fixture(worker, options);
  fixture.Steps(0, 800);
  fixture.Final(799);
  fixture.Close();
  ASSERT_TRUE(CompactWorker(worker, SmallFiles()).ok());
  const size_t files = LevelsOf(worker).size();
  ASSERT_GT(files, 10u);
  LevelReader reader(worker);
  reader.Refresh();
  ASSERT_TRUE(reader.damage().empty());
  std::set<const void*> texts;
  size_t groups = 0;
  for (uint32_t level = 1; level <= reader.highest_level(); ++level) {
    for (const LevelReader::Group& group : reader.GroupsOf(level)) {
      ++groups;
      texts.insert(group.file->tensors().get());
      // The same as when nothing was known.
      format::LevelHeaders fresh;
      const std::string name =
          format::LevelFileName{group.file->meta().level, group.step_first, group.step_last}.ToString();
      const auto alone = LevelFile::Open(worker + "/levels/" + name, &fresh);
      if (!alone.ok()) continue;  // one of several groups of its file
      ASSERT_EQ((*alone)->tensors()->size(), group.file->tensors()->size());
      for (size_t i = 0; i < (*alone)->tensors()->size(); ++i)
        EXPECT_EQ((*alone)->tensors()->at(i).ToJson(), group.file->tensors()->at(i).ToJson());
    }
  }
  ASSERT_GE(groups, files);
  EXPECT_LE(texts.size(), 2u);  // a name that only the end of the run has makes a second text
  EXPECT_LE(reader.definitions_parsed(), 2 * (options.tensors + 1u));
}

TEST(CompactorTest, WhileTheWorkerLivesItWaitsForEnoughAndThenGoesOn) {
  const base::ScratchDirectory directory;
  const std::string worker = directory.path() + "/worker_0";
  WorkerFixture::Options options;
  options.raw_elements = 0;
  options.segment_bytes = 20'000;
  options.histograms_every = 10;
  WorkerFixture fixture(worker, options);
  fixture.Steps(0, 600);
  // What is sealed by now depends on the drain; what is not sealed is left alone.
  CompactOptions few;
  few.least_groups = 1;
  ASSERT_TRUE(CompactWorker(worker, few).ok());
  EXPECT_EQ(CompactWorker(worker)->files, 0u);  // less than it waits for
  fixture.Steps(600, 700);
  fixture.Final(699);
  fixture.End();
  fixture.Close();
  const auto last = CompactWorker(worker);
  ASSERT_TRUE(last.ok());
  EXPECT_EQ(last->covered_until, 700 / 16 * 16 - 1);
  LevelReader reader(worker);
  reader.Refresh();
  uint64_t steps = 0;
  for (const LevelReader::Group& group : reader.GroupsOf(1)) {
    EXPECT_EQ(group.step_first, static_cast<int64_t>(steps));
    steps += group.steps;
    EXPECT_EQ(group.file->GroupAt(group.group).rows, 3u);
  }
  EXPECT_EQ(steps, 688u);
}

TEST(CompactorTest, OneStepInAHundredThousandIsSeenFromEveryLevel) {
  const base::ScratchDirectory directory;
  const std::string worker = directory.path() + "/worker_0";
  WorkerFixture::Options options;
  options.tensors = 0;
  options.raw_elements = 0;
  options.journal_bytes = 4 << 20;
  WorkerFixture fixture(worker, options);
  format::TensorDef def = WorkerFixture::Definition(7);
  def.id = 1;
  fixture.writer->AppendTensorDef(def);
  constexpr int64_t kSteps = 100'000, kBad = 40'001;
  for (int64_t step = 0; step < kSteps; ++step) {
    Summary summary = WorkerFixture::SummaryAt(0, step);
    summary.nan_count = step == kBad;
    const format::SummaryRow row = format::ToRow(1, {}, summary);
    fixture.writer->AppendSummaries(step, {&row, 1}, {});
    format::Commit commit;
    commit.global_step = commit.mode_step = step;
    commit.mode = 1;
    fixture.writer->Commit(commit);
  }
  fixture.End();
  fixture.Close();
  ASSERT_TRUE(CompactWorker(worker).ok());
  LevelReader reader(worker);
  reader.Refresh();
  EXPECT_EQ(reader.highest_level(), 4u);
  for (uint32_t level = 1; level <= reader.highest_level(); ++level) {
    const LevelReader::Group* const group = reader.At(level, kBad);
    ASSERT_NE(group, nullptr);
    const LevelRows& rows = **group->file->Rows();
    const size_t row = group->file->FirstRow(group->group);
    EXPECT_EQ(rows.over.nan_rows[row], 1u);
    EXPECT_EQ(rows.summaries.step_first[row] + rows.over.nan_at[row], kBad);
  }
  // What it costs beside the steps themselves.
  uint64_t segments = 0;
  for (const std::string& segment : SegmentsOf(worker)) segments += fs::file_size(segment);
  EXPECT_LT(static_cast<double>(reader.bytes_on_disk()),
            0.20 * static_cast<double>(reader.bytes_on_disk() + segments));
}

}  // namespace
}  // namespace tdbg::store
