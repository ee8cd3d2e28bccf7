// What becomes of a training's recording when the world around it goes wrong.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <system_error>

#include "base/posix.h"
#include "store/writer/worker_writer_fixture.h"

namespace {
std::atomic<int> sync_millis{0}, syncs{0}, lowest_synced{1 << 20};
}

// Instead of libc's: how long a disk takes is what no interface of ours says.
extern "C" int fdatasync(int fd) {
  lowest_synced = std::min(lowest_synced.load(), fd);
  ::usleep(static_cast<useconds_t>(sync_millis.load()) * 1000);
  const int result = ::fsync(fd);
  ++syncs;
  return result;
}

namespace tdbg::store {
namespace {

class ReplacedDirectoryTest : public WorkerWriterTest {
 protected:
  ReplacedDirectoryTest() {
    options_.worker_directory = scratch_ / "w";
    options_.journal_path = scratch_ / "w/journal";
    Make();
  }
  void Make() { std::filesystem::create_directory(options_.worker_directory); }
  /// `rm -rf`, and another training in the same place.
  void StartAnother() {
    std::filesystem::remove_all(options_.worker_directory);
    Make();
    old_ = std::move(writer_);
    Open();
    Define(0, "theirs");
    for (int64_t s = 0; s < 3; ++s) {
      Raw(s, 0, Values(0, s, 1000));
      Commit(s);
    }
  }
  void ExpectTheOtherIsUnharmed() {
    const Decoded read = Read();
    EXPECT_EQ(read.segments, 0u);
    ASSERT_EQ(read.steps.size(), 3u);
    for (int64_t s = 0; s < 3; ++s)
      EXPECT_EQ(read.raws.at("theirs@" + std::to_string(s)), Values(0, s, 1000));
  }
  std::unique_ptr<WorkerWriter> old_;
};

TEST_F(ReplacedDirectoryTest, ItsFormerOwnerPublishesNothingThere) {
  Open();
  Define(0, "w");
  Raw(0, 0, Values(0, 0, 100));
  Commit(0);
  StartAnother();
  EXPECT_FALSE(old_->InPlace());
  EXPECT_TRUE(writer_->InPlace());
  old_->End("{}", 5'000'000'000);
  EXPECT_EQ(old_->last_error().code(), Code::kNotFound);
  old_.reset();
  ExpectTheOtherIsUnharmed();
}

TEST_F(ReplacedDirectoryTest, ItsFormerOwnerReleasesItsOwnJournalOnly) {
  Open();
  Define(0, "w");
  Commit(0);
  writer_->End("{}", 5'000'000'000);  // everything is sealed, and what is left to do is to give the ring back
  StartAnother();
  old_->Close();
  ExpectTheOtherIsUnharmed();
}

TEST_F(ReplacedDirectoryTest, WhatItsFormerOwnerCannotKeepIsCountedByItsCause) {
  options_.when_full = WhenFull::kDropRaw;
  Open();
  const auto first = writer_.get();
  StartAnother();
  std::swap(writer_, old_);
  ASSERT_EQ(writer_.get(), first);
  CommitUntilDirectoryGone();
  ExpectTheOtherIsUnharmed();
}

TEST_F(WorkerWriterTest, AJournalCutShortAtTheVeryEndDoesNotMakeTheTrainingWait) {
  Open();
  Define(0, "w");
  Commit(0);
  ASSERT_EQ(::truncate(options_.journal_path.c_str(), 0), 0);
  const auto begin = std::chrono::steady_clock::now();
  writer_->End("{\"reason\":\"done\"}", 20'000'000'000);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  EXPECT_EQ(Header<uint64_t>(offsetof(format::JournalHeader, ended)), 1u);
  EXPECT_GE(Lost(writer_->dropped(), DropCause::kDamaged, DropKind::kStep), 1u);
  std::string segments;
  for (const auto& entry : std::filesystem::directory_iterator(scratch_ / "segments"))
    segments += base::Slurp(entry.path().string());
  EXPECT_THAT(segments, testing::HasSubstr("done"));
}

// Of a step whose records and commit were all overwritten nothing is left to find, and the segment that
// should have it is followed by others.
TEST_F(WorkerWriterTest, StepsThatDamageHidesAreCountedWhereverTheyLay) {
  options_.files = &faulty_;
  options_.segment_bytes = 64 << 10;
  Open();
  Define(0, "w");
  faulty_.fail = Code::kUnavailable;
  std::vector<uint64_t> ends;
  for (int64_t s = 0; s < 40; ++s) {
    Raw(s, 0, Values(0, s, 1000));
    Commit(s);
    ends.push_back(Header<uint64_t>(offsetof(format::JournalHeader, committed_pos)));
  }
  const base::UniqueFd journal(::open(options_.journal_path.c_str(), O_WRONLY | O_CLOEXEC));
  // Of the second segment: on a slow machine the drain has read the first one's already.
  const std::string noise(ends[30] - ends[25], 'x');
  ASSERT_EQ(::pwrite(journal.get(), noise.data(), noise.size(),
                     static_cast<off_t>(format::kJournalHeaderBytes + ends[25])),
            static_cast<ssize_t>(noise.size()));
  faulty_.fail = Code::kOk;
  writer_->End("{}", 20'000'000'000);
  EXPECT_EQ(Lost(writer_->dropped(), DropCause::kDamaged, DropKind::kStep), 5u);
  const Decoded read = Read();
  EXPECT_EQ(
      std::ranges::count_if(
          read.steps, [](const auto& step) { return (step.commit.flags & format::kCommitOutside) == 0; }),
      35);
  EXPECT_GT(read.segments, 1u);
  for (const format::Drop& drop : writer_->dropped()) {
    if (drop.kind != static_cast<uint8_t>(DropKind::kStep)) continue;
    EXPECT_LE(drop.first_step, 26);
    EXPECT_GE(drop.last_step, 30);
  }
}

// Retries come ever later, and the end has less patience with a disk that refuses than it is until the next
// one.
TEST_F(WorkerWriterTest, TheEndTriesAtOnceWhatWasRefusedUntilThen) {
  options_.files = &faulty_;
  options_.segment_bytes = 64 << 10;
  Open();
  Define(0, "w");
  faulty_.fail = Code::kUnavailable;
  for (int64_t s = 0; s < 20; ++s) {
    Raw(s, 0, Values(0, s, 1000));
    Commit(s);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(1450));  // 20 + 40 + ... + 640 ms; the next is 1280
  faulty_.fail = Code::kOk;
  writer_->End("{}", 20'000'000'000);
  EXPECT_EQ(Header<uint64_t>(offsetof(format::JournalHeader, sealed_pos)),
            Header<uint64_t>(offsetof(format::JournalHeader, committed_pos)));
}

// Of a job that was started without them the numbers are free, and where a script opens its own it must get
// them.
TEST_F(WorkerWriterTest, WhatIsSyncedForASecondIsNoStandardStream) {
  int kept[3];
  for (int fd = 0; fd < 3; ++fd) {
    kept[fd] = ::fcntl(fd, F_DUPFD_CLOEXEC, 100);
    ::close(fd);
  }
  lowest_synced = 1 << 20;
  Open();
  Define(0, "w");
  Commit(0);
  writer_->End("{}", 5'000'000'000);
  writer_.reset();
  for (int fd = 0; fd < 3; ++fd) {
    if (kept[fd] < 0) continue;
    ::dup2(kept[fd], fd);
    ::close(kept[fd]);
  }
  EXPECT_GT(lowest_synced, 2);
  EXPECT_LT(lowest_synced, 1 << 20) << "something was synced";
}

TEST_F(WorkerWriterTest, AFullDiskDoesNotStopTheHeartbeat) {
  options_.when_full = WhenFull::kDropRaw;
  options_.files = &faulty_;
  Open();
  faulty_.fail = Code::kResourceExhausted;
  int64_t s = 0;
  while (LostSteps() < 10 && s < 100'000) Commit(s++);
  ASSERT_LT(s, 100'000);
  EXPECT_EQ(Header<int64_t>(offsetof(format::JournalHeader, last_seen_step)), s - 1);
  EXPECT_EQ(Header<int64_t>(offsetof(format::JournalHeader, last_seen_wall_nanos)), 1'000 + s - 1);
  faulty_.fail = Code::kOk;
}

TEST_F(WorkerWriterTest, MemoryThatRunsOutOnTheDrainThreadIsAnErrorAndNotTheEnd) {
  options_.files = &faulty_;
  Open();
  faulty_.out_of_memory = true;
  Define(0, "w");
  const std::string large = Values(0, 0, 100'000);  // more than one write
  EXPECT_TRUE(Raw(0, 0, large));
  Commit(0);
  EXPECT_TRUE(Eventually([this] { return faulty_.failures > 1; }));
  EXPECT_EQ(writer_->last_error().ToString(), "resource_exhausted: out of memory");
  EXPECT_FALSE(Raw(1, 0, Values(0, 1, 150'000)));  // it would wait for the drain, had that not told
  Commit(1);
  EXPECT_EQ(Lost(writer_->dropped(), DropCause::kDiskFull, DropKind::kRaw), 1u);
  faulty_.out_of_memory = false;
  writer_.reset();
  const Decoded read = Read();
  EXPECT_EQ(read.steps.size(), 2u);
  EXPECT_EQ(read.raws.at("w@0"), large);
  EXPECT_EQ(base::LocalFileSystem().List(scratch_ / "segments")->size(), read.segments);
}

/// From the moment that the journal is made no thread can be started.
class ThreadlessFileSystem : public FaultyFileSystem {
 public:
  ~ThreadlessFileSystem() override {
    ::pthread_setattr_default_np(&before_);
    ::pthread_attr_destroy(&before_);
  }
  Result<std::unique_ptr<base::MappedFile>> CreateMapped(const std::string& path, uint64_t bytes) override {
    pthread_attr_t attributes;
    ::pthread_attr_init(&attributes);
    ::pthread_attr_setstacksize(&attributes, size_t{1} << 47);  // no address space has room for it: EAGAIN
    ::pthread_setattr_default_np(&attributes);
    ::pthread_attr_destroy(&attributes);
    return FaultyFileSystem::CreateMapped(path, bytes);
  }

 private:
  pthread_attr_t before_ = [] {
    pthread_attr_t attributes;
    ::pthread_getattr_default_np(&attributes);
    return attributes;
  }();
};

TEST_F(WorkerWriterTest, WithoutAThreadForSyncingSegmentsAreWrittenAllTheSame) {
  ThreadlessFileSystem threadless;
  options_.files = &threadless;
  Open();
  EXPECT_THROW(std::thread([] {}), std::system_error);
  EXPECT_EQ(writer_->last_error().code(), Code::kResourceExhausted);
  Define(0, "w");
  EXPECT_TRUE(Raw(0, 0, Values(0, 0, 100)));
  Commit(0);
  writer_->End("{}", 5'000'000'000);
  writer_.reset();
  const Decoded read = Read();
  EXPECT_EQ(read.segments, 1u);
  EXPECT_EQ(read.raws.at("w@0"), Values(0, 0, 100));
}

// Wherever in the ring the end comes to lie: a pad before it costs as much again.
TEST_F(WorkerWriterTest, ATrainingThatEndsOnAFullDiskIsEndedAllTheSame) {
  options_.durable = false;
  options_.when_full = WhenFull::kDropRaw;
  options_.files = &faulty_;
  options_.seal_interval_nanos = 1'000'000;
  for (size_t filler = 0; filler < 5000; filler += 192) {
    SCOPED_TRACE(filler);
    const base::ScratchDirectory directory;
    options_.worker_directory = directory.path();
    options_.journal_path = directory / "journal";
    faulty_.fail = Code::kOk;
    Open();
    // So much is sealed, and may be filled once more behind the ring's end.
    writer_->AppendContext({0, "filler", "\"" + std::string(filler, 'f') + "\""});
    Commit(0);
    ASSERT_TRUE(
        Eventually([&] { return Header<uint64_t>(offsetof(format::JournalHeader, sealed_pos)) != 0; }));
    faulty_.fail = Code::kResourceExhausted;
    Define(0, "w");
    int64_t s = 1;
    while (LostSteps() < 10 && s < 100'000) {
      Row(s, 0, "histogram");
      Commit(s++);
    }
    ASSERT_LT(s, 100'000);
    Define(1, "waits for room");
    const std::string json = "{\"reason\":\"" + std::string(kMaxEndBytes - 13, 'r') + "\"}";
    ASSERT_EQ(json.size(), kMaxEndBytes);
    writer_->End(json, 1);
    EXPECT_EQ(Header<uint64_t>(offsetof(format::JournalHeader, ended)), 1u);
    EXPECT_EQ(Read().end, json);
    faulty_.fail = Code::kOk;
    writer_.reset();
    EXPECT_EQ(Read().end, json);
  }
}

TEST_F(WorkerWriterTest, TheEndWaitsForTheSyncsAndNotForEver) {
  const int syncs_before = syncs;
  Open();
  Commit(0);
  sync_millis = 100;
  writer_->End("{}", 10'000'000'000);
  writer_->Close();
  EXPECT_EQ(syncs, syncs_before + 1);
  EXPECT_TRUE(RingIsReleased());

  Open();
  Commit(1);
  sync_millis = 3000;
  const auto start = std::chrono::steady_clock::now();
  writer_->End("{}", 200'000'000);
  writer_->Close();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
  EXPECT_EQ(syncs, syncs_before + 1);
  EXPECT_FALSE(RingIsReleased());
  EXPECT_EQ(Read().steps.size(), 4u);
  // Whoever comes next has the directory to itself, while the last sync goes on.
  sync_millis = 0;
  Open();
  Commit(2);
  writer_.reset();
  EXPECT_EQ(Read().steps.size(), 5u);
  EXPECT_TRUE(Eventually([&] { return syncs == syncs_before + 3; }));
}

}  // namespace
}  // namespace tdbg::store
