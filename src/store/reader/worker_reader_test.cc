#include "store/reader/worker_reader.h"

#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "base/bytes.h"
#include "store/reader/segment_meta.h"
#include "store/reader/testing.h"

namespace tdbg::store {
namespace {

using Options = WorkerFixture::Options;

std::unique_ptr<WorkerReader> OpenReader(const std::string& directory) {
  auto reader = WorkerReader::Open(directory);
  EXPECT_TRUE(reader.ok()) << reader.status().ToString();
  return reader.ok() ? std::move(*reader) : nullptr;
}

std::vector<int64_t> StepsOf(const WorkerReader& reader) {
  std::vector<int64_t> steps;
  for (const format::Commit& commit : reader.commits()) steps.push_back(commit.global_step);
  return steps;
}

std::vector<int64_t> UpTo(int64_t end) {
  std::vector<int64_t> steps;
  for (int64_t s = 0; s < end; ++s) steps.push_back(s);
  return steps;
}

class WorkerReaderTest : public testing::Test {
 protected:
  base::ScratchDirectory scratch_;
  const std::string directory_ = scratch_ / "worker_0";
};

TEST_F(WorkerReaderTest, WhatIsOnlyInTheJournalIsReadAndTheOpenStepIsNot) {
  const Options options;
  WorkerFixture worker(directory_, options);
  worker.Steps(0, 5);
  worker.Append(5);
  const auto reader = OpenReader(directory_);
  EXPECT_EQ(StepsOf(*reader), UpTo(5));
  const Checked checked = CheckEverything(*reader, options);
  EXPECT_EQ(checked.summaries, 15u);
  EXPECT_EQ(checked.histograms, 15u);
  EXPECT_EQ(checked.scalars, 5u);
  EXPECT_EQ(checked.raws, 15u);
  EXPECT_TRUE(reader->alive());
  EXPECT_FALSE(reader->ended());
  EXPECT_THAT(reader->damage(), testing::IsEmpty());
}

TEST_F(WorkerReaderTest, AnEndedRunIsReadFromItsSegmentsAlone) {
  const Options options;
  {
    WorkerFixture worker(directory_, options);
    worker.Steps(0, 40);
    worker.Final(39);
    worker.writer->AppendContext({0, "optimizer", R"({"lr":0.1})"});
    worker.Step(40);
    worker.End();
  }
  for (const bool with_journal : {true, false}) {
    if (!with_journal) std::filesystem::remove(directory_ + "/journal");
    const auto reader = OpenReader(directory_);
    EXPECT_EQ(reader->commits().size(), 43u);  // 41 steps, the final values, the end
    const Checked checked = CheckEverything(*reader, options);
    EXPECT_EQ(checked.summaries, 3u * 42);
    EXPECT_EQ(checked.raws, 3u * 42);
    EXPECT_TRUE(reader->ended());
    EXPECT_FALSE(reader->alive());
    EXPECT_EQ(reader->last_seen_step(), 40);
    ASSERT_EQ(reader->context().size(), 1u);
    EXPECT_EQ(reader->context()[0].topic, "optimizer");
    EXPECT_THAT(reader->end_json(), testing::HasSubstr("done"));
    EXPECT_THAT(reader->damage(), testing::IsEmpty());
  }
}

TEST_F(WorkerReaderTest, AContextOfAnyDepthCostsNothingElse) {
  const Options options;
  WorkerFixture worker(directory_, options);
  std::vector<std::string> values;
  for (size_t depth = 56; depth < 70; ++depth) {
    values.push_back(std::string(depth, '[') + std::string(depth, ']'));
    worker.writer->AppendContext({static_cast<int64_t>(depth), "config", values.back()});
  }
  worker.Steps(0, 5);
  for (const bool live : {true, false}) {
    if (!live) worker.End();
    const auto reader = OpenReader(directory_);
    EXPECT_EQ(reader->commits().size(), live ? 5u : 6u);
    EXPECT_THAT(reader->damage(), testing::IsEmpty());
    ASSERT_EQ(reader->context().size(), values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_THAT(reader->context()[i].json, testing::AnyOf(values[i], "\"" + values[i] + "\""));
    }
  }
}

// Metadata of a tdbg that kept values of 64 levels, of somebody who damaged one, and of one who sealed a
// journal with a record that is too deep for a segment.
TEST(SegmentMeta, ABadContextCostsItselfAndAnOldOneIsRead) {
  const std::string deep = std::string(64, '[') + std::string(64, ']');
  const std::string record = "{\"global_step\":1,\"topic\":\"t\",\"value\":" + deep + "}";
  std::string quoted;
  format::AppendJsonString(record, &quoted);
  const std::string text =
      "{\"format\":{\"major\":1,\"minor\":0},\"first_sequence\":1,\"last_sequence\":2,\"context\":[" +
      record + ",7,{\"topic\":3}," + quoted + "]}";
  const auto json = format::ParseJsonObject(text, "test", format::kMaxMetadataDepth);
  TDBG_ASSERT_OK(json);
  const auto meta = ParseSegmentMeta(*json, "x", {});
  TDBG_ASSERT_OK(meta);
  EXPECT_EQ(meta->damaged_contexts, 2u);
  ASSERT_EQ(meta->context.size(), 2u);
  EXPECT_EQ(meta->context[0].json, deep);
  EXPECT_EQ(meta->context[1].json, deep);
}

// The journal wraps many times while it is read: every committed step is seen exactly once, in order, with
// the values that were written, whichever of the two files it came from.
TEST_F(WorkerReaderTest, AFollowerSeesEveryStepOnceWhileTheJournalWraps) {
  Options options;
  options.raw_elements = 2000;
  options.segment_bytes = 128 << 10;
  constexpr int64_t kSteps = 600;
  WorkerFixture worker(directory_, options);
  std::thread writer([&] { worker.Steps(0, kSteps); });
  const auto reader = OpenReader(directory_);
  size_t seen = 0, checked_raws = 0;
  while (seen < kSteps) {
    const auto news = reader->Refresh();
    TDBG_ASSERT_OK(news);
    const auto commits = reader->commits();
    ASSERT_GE(commits.size(), seen);
    for (; seen < commits.size(); ++seen) ASSERT_EQ(commits[seen].global_step, static_cast<int64_t>(seen));
    // Values of the latest step, at once: they may be sealed and overwritten while they are read.
    for (format::TensorId t = 0; t < 3 && seen != 0; ++t) {
      const auto raws = reader->RawsOf(t);
      ASSERT_FALSE(raws.empty());
      const auto value = reader->ReadRaw(raws.back());
      ASSERT_TRUE(value.ok()) << value.status().ToString();
      float first = 0;
      std::memcpy(&first, value->bytes.data(), sizeof(first));
      ASSERT_EQ(first, WorkerFixture::Element(static_cast<int>(t), raws.back().global_step, 0));
      ++checked_raws;
      const auto rows = reader->RowsOf(t);
      ASSERT_EQ(rows.size(), seen);
      reader->Prepare(rows.back().batch, rows.back().row, rows.back().row + 1);
      const SummaryBatch& batch = reader->summaries()[rows.back().batch];
      ASSERT_EQ(batch.at(rows.back().row).mean,
                WorkerFixture::Mean(static_cast<int>(t), static_cast<int64_t>(seen) - 1));
    }
  }
  writer.join();
  worker.End();
  TDBG_ASSERT_OK(reader->Refresh());
  const Checked checked = CheckEverything(*reader, options);
  EXPECT_EQ(checked.summaries, 3u * kSteps);
  EXPECT_EQ(checked.raws, 3u * kSteps);
  EXPECT_EQ(checked.scalars, static_cast<size_t>(kSteps));
  EXPECT_THAT(reader->damage(), testing::IsEmpty());
  EXPECT_GT(checked_raws, 0u);
}

TEST_F(WorkerReaderTest, AReferenceTakenBeforeASealIsGoodAfterIt) {
  Options options;
  options.segment_bytes = 64 << 10;
  options.raw_elements = 4000;
  WorkerFixture worker(directory_, options);
  worker.Steps(0, 2);
  const auto reader = OpenReader(directory_);
  const RawRef early = reader->RawsOf(1)[0];
  worker.Steps(2, 200);  // many laps of a megabyte
  const auto value = reader->ReadRaw(early);
  ASSERT_TRUE(value.ok()) << value.status().ToString();
  float first = 0;
  std::memcpy(&first, value->bytes.data(), sizeof(first));
  EXPECT_EQ(first, WorkerFixture::Element(1, 0, 0));
}

TEST_F(WorkerReaderTest, AnIdleRefreshHasNoNewsAndADeathIsNews) {
  auto worker = std::make_unique<WorkerFixture>(directory_, Options{});
  worker->Steps(0, 3);
  const auto reader = OpenReader(directory_);
  EXPECT_FALSE(*reader->Refresh());
  worker->Step(3);
  EXPECT_TRUE(*reader->Refresh());
  EXPECT_FALSE(*reader->Refresh());
  worker.reset();
  EXPECT_TRUE(*reader->Refresh());
  EXPECT_FALSE(reader->alive());
  EXPECT_FALSE(reader->ended());
  EXPECT_EQ(StepsOf(*reader), UpTo(4));
}

TEST_F(WorkerReaderTest, TheNextOwnerOfADirectoryContinuesIt) {
  const Options options;
  {
    WorkerFixture(directory_, options).Steps(0, 4);
  }
  const auto reader = OpenReader(directory_);
  EXPECT_EQ(StepsOf(*reader), UpTo(4));
  WorkerFixture next(directory_, options);
  next.Steps(4, 8);
  for (int i = 0; i < 3; ++i) TDBG_ASSERT_OK(reader->Refresh());
  EXPECT_EQ(StepsOf(*reader), UpTo(8));
  const auto fresh = OpenReader(directory_);
  EXPECT_EQ(StepsOf(*fresh), UpTo(8));
  EXPECT_EQ(CheckEverything(*fresh, options).raws, 24u);
  EXPECT_EQ(CheckEverything(*reader, options).raws, 24u);
  EXPECT_THAT(reader->damage(), testing::IsEmpty());
}

TEST_F(WorkerReaderTest, AnothersJournalIsDamageAndNotRead) {
  {
    WorkerFixture worker(directory_, Options{});
    worker.Steps(0, 3);
  }
  std::string journal = base::Slurp(directory_ + "/journal");
  journal[offsetof(format::JournalHeader, writer_id)] ^= 1;
  base::Spill(directory_ + "/journal", journal);
  const auto reader = OpenReader(directory_);
  ASSERT_EQ(reader->damage().size(), 1u);
  EXPECT_THAT(reader->damage()[0].what, testing::HasSubstr("another writer"));
}

// Every byte of a small segment in turn, with all bits of it flipped: no crash, and no value that is not the
// one that was written. What is missing is named.
class FlippedByte : public WorkerReaderTest, public testing::WithParamInterface<bool> {};

TEST_P(FlippedByte, OfASegmentIsNotBelieved) {
  const bool with_index = GetParam();
  Options options;
  options.tensors = 2;
  options.raw_elements = 4;
  {
    WorkerFixture worker(directory_, options);
    worker.Steps(0, 3);
    worker.End();
  }
  std::filesystem::remove(directory_ + "/journal");
  const std::vector<std::string> segments = SegmentsOf(directory_);
  ASSERT_FALSE(segments.empty());
  const std::string& path = segments.front();
  std::string good = base::Slurp(path);
  if (!with_index) base::Spill(path, good = WithoutIndex(good));
  const auto undamaged = OpenReader(directory_);
  const Checked whole = CheckEverything(*undamaged, options);
  EXPECT_THAT(undamaged->damage(), testing::IsEmpty());
  ASSERT_EQ(whole.raws, 6u);
  size_t unnoticed = 0;
  // The header's text is under one hash, so a part of it stands for all; everything else is tried byte by
  // byte.
  const auto data = 8 + base::Load<uint64_t>(good.data());
  for (size_t i = 0; i < good.size(); i += i >= 8 && i + 11 < data ? 11 : 1) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ (i % 2 == 0 ? 0xff : 0x01));
    base::Spill(path, bad);
    auto reader = WorkerReader::Open(directory_);
    if (!reader.ok()) {  // "written by a newer major version" is the only refusal
      EXPECT_EQ(reader.status().code(), Code::kUnimplemented) << i;
      continue;
    }
    const Checked checked = CheckEverything(**reader, options);
    const bool complete = checked.raws == whole.raws && checked.summaries == whole.summaries &&
                          checked.histograms == whole.histograms && checked.scalars == whole.scalars &&
                          checked.commits == whole.commits;
    if ((*reader)->damage().empty()) {
      EXPECT_TRUE(complete) << "byte " << i << " cost something in silence";
      unnoticed += !with_index || i < 8 || i >= data;  // an index leaves nothing for the header to tell
    }
    if (testing::Test::HasFailure()) FAIL() << "byte " << i;
  }
  // Bytes between the parts that nobody reads, and columns of which an index tells the same.
  EXPECT_LT(unnoticed, with_index ? 128u : 64u);
  for (const size_t length :
       {size_t{0}, size_t{1}, size_t{8}, good.size() / 3, good.size() / 2, good.size() - 1}) {
    base::Spill(path, good.substr(0, length));
    const auto reader = OpenReader(directory_);
    CheckEverything(*reader, options);
    EXPECT_FALSE(reader->damage().empty()) << length;
  }
}

INSTANTIATE_TEST_SUITE_P(Index, FlippedByte, testing::Bool());

// What a damaged index costs is time: the header tells the same.
TEST_F(WorkerReaderTest, WithoutABelievableIndexNothingIsLost) {
  Options options;
  options.tensors = 5;
  {
    WorkerFixture worker(directory_, options);
    worker.Steps(0, 100);
    worker.Final(99);
    worker.End();
  }
  std::filesystem::remove(directory_ + "/journal");
  ASSERT_EQ(SegmentsOf(directory_).size(), 1u);
  const std::string path = SegmentsOf(directory_).front(), good = base::Slurp(path);
  const auto index = format::DecodeSegmentIndex(std::as_bytes(std::span(good)));
  TDBG_ASSERT_OK(index);
  ASSERT_EQ(index->raws.size(), 505u);
  const auto raws_at = static_cast<size_t>(reinterpret_cast<const char*>(index->raws.data()) - good.data());
  const size_t head_at =
      static_cast<size_t>(reinterpret_cast<const char*>(index->columns.data()) - good.data());
  const Checked whole = CheckEverything(*OpenReader(directory_), options);
  for (const size_t at : {head_at, raws_at + 8, good.size() - 60, good.size() - 10}) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    base::Spill(path, bad);
    const auto reader = OpenReader(directory_);
    const Checked checked = CheckEverything(*reader, options);
    EXPECT_EQ(checked.raws, whole.raws) << at;
    EXPECT_EQ(checked.summaries, whole.summaries) << at;
    EXPECT_EQ(checked.scalars, whole.scalars) << at;
    EXPECT_EQ(checked.refused, 0u) << at;
    ASSERT_EQ(reader->damage().size(), 1u) << at;
    EXPECT_THAT(reader->damage()[0].what, testing::HasSubstr("index")) << at;
  }
}

// The index of a segment has only the definitions that are new in it.
TEST_F(WorkerReaderTest, DefinitionsOfALostSegmentAreInTheNextOnesHeader) {
  Options options;
  options.segment_bytes = 64 << 10;
  {
    WorkerFixture worker(directory_, options);
    worker.Steps(0, 200);
    worker.End();
  }
  std::filesystem::remove(directory_ + "/journal");
  const std::vector<std::string> segments = SegmentsOf(directory_);
  ASSERT_GT(segments.size(), 2u);
  std::filesystem::remove(segments.front());
  const auto reader = OpenReader(directory_);
  ASSERT_EQ(reader->damage().size(), 1u);
  EXPECT_THAT(reader->damage()[0].what, testing::HasSubstr("are missing"));
  EXPECT_EQ(CheckEverything(*reader, options).raws, 3 * (reader->commits().size() - 1));
}

TEST_F(WorkerReaderTest, NoFlippedByteOfAJournalIsBelieved) {
  Options options;
  options.tensors = 2;
  options.raw_elements = 4;
  {
    WorkerFixture(directory_, options).Steps(0, 4);
  }
  std::filesystem::remove_all(directory_ + "/segments");
  std::string good = base::Slurp(directory_ + "/journal");
  // A process that was killed: nothing sealed.
  base::Store<uint64_t>(good.data() + offsetof(format::JournalHeader, sealed_pos), 0);
  base::Store<uint64_t>(good.data() + offsetof(format::JournalHeader, sealed_seq), 0);
  const auto committed = base::Load<uint64_t>(good.data() + offsetof(format::JournalHeader, committed_pos));
  base::Spill(directory_ + "/journal", good);
  const Checked whole = CheckEverything(*OpenReader(directory_), options);
  ASSERT_EQ(whole.commits, 4u);
  ASSERT_EQ(whole.raws, 8u);
  const size_t end = format::kJournalHeaderBytes + committed;
  const size_t dropped = offsetof(format::JournalHeader, drop_count);
  std::string bad = good;
  for (size_t i = 0; i < end; ++i) {
    if (i == dropped) i = format::kJournalHeaderBytes;
    bad[i] = static_cast<char>(bad[i] ^ (i % 2 == 0 ? 0xff : 0x01));
    // One byte in place: rewriting a megabyte for each would take minutes.
    {
      std::fstream file(directory_ + "/journal", std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(static_cast<std::streamoff>(i));
      file.put(bad[i]);
    }
    auto reader = WorkerReader::Open(directory_);
    if (reader.ok()) {
      const Checked checked = CheckEverything(**reader, options);
      if (i >= format::kJournalHeaderBytes && (*reader)->damage().empty()) {
        EXPECT_EQ(checked.raws, whole.raws) << i;
        EXPECT_EQ(checked.summaries, whole.summaries) << i;
        EXPECT_EQ(checked.commits, whole.commits) << i;
      }
    } else {
      EXPECT_EQ(reader.status().code(), Code::kUnimplemented) << i;
    }
    bad[i] = good[i];
    std::fstream file(directory_ + "/journal", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(i));
    file.put(good[i]);
    if (testing::Test::HasFailure()) FAIL() << "byte " << i;
  }
}

}  // namespace
}  // namespace tdbg::store
