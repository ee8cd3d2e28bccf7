// What becomes of a training's recording when the world around it goes wrong.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
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
std::atomic<bool> hold_syncs{false}, let_go_of_syncs{false};
}  // namespace

// Instead of libc's: how long a disk takes is what no interface of ours says.
extern "C" int fdatasync(int fd) {
  lowest_synced = std::min(lowest_synced.load(), fd);
  const bool held = hold_syncs;
  // Not for ever: whoever waits for it is to fail, not to hang.
  for (int millis = 0; held && !let_go_of_syncs && millis < 60'000; ++millis) ::usleep(1000);
  ::usleep(static_cast<useconds_t>(sync_millis.load()) * 1000);
  const int result = ::fsync(fd);
  ++syncs;
  return result;
}

namespace tdbg::store {
namespace {

/// Stands still until told to go on: what comes to pass meanwhile came without its time.
class StandingClock : public base::Clock {
 public:
  int64_t WallNanos() const override { return 1'700'000'000'000'000'000 + nanos_; }
  int64_t MonotonicNanos() const override { return nanos_; }
  void Advance(int64_t nanos) { nanos_ += nanos; }

 private:
  std::atomic<int64_t> nanos_{1'000'000'000};
};

constexpr int64_t kHour = 3'600'000'000'000;

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
  writer_->End("{\"reason\":\"done\"}", 200'000'000'000);
  // Far from either: what it takes on a busy machine, and what it would be made to wait.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(100));
  EXPECT_EQ(Header<uint64_t>(offsetof(format::JournalHeader, ended)), 1u);
  EXPECT_GE(Lost(writer_->dropped(), DropCause::kDamaged, DropKind::kStep), 1u);
  EXPECT_THAT(Segments(), testing::HasSubstr("done"));
}

/// The first journal that it makes is cut short at the moment at which the end's record is written, which
/// goes on only when the drain has asked for another one.
class CutMeanwhile : public base::ForwardingFileSystem, public base::Clock {
 public:
  CutMeanwhile() : ForwardingFileSystem(&base::LocalFileSystem()) {
    self = this;
    struct sigaction action = {};
    action.sa_handler = [](int) { self->OnFault(); };
    ::sigaction(SIGSEGV, &action, &before_);
  }
  ~CutMeanwhile() override { ::sigaction(SIGSEGV, &before_, nullptr); }

  Result<std::unique_ptr<base::MappedFile>> CreateMapped(const std::string& path, uint64_t bytes) override {
    TDBG_ASSIGN_OR_RETURN(auto file, ForwardingFileSystem::CreateMapped(path, bytes));
    if (ring_ != nullptr) {
      renews_ = true;
      return file;
    }
    ring_ = file->bytes().data() + format::kJournalHeaderBytes;
    return std::unique_ptr<base::MappedFile>(new Journal(std::move(file), this));
  }
  int64_t WallNanos() const override { return base::SystemClock().WallNanos(); }
  int64_t MonotonicNanos() const override {
    // Whoever makes a journal looks at the clock again once it has asked for it to be taken.
    if (renews_ && std::this_thread::get_id() != trainer_) asked_ = true;
    return base::SystemClock().MonotonicNanos();
  }
  /// From now on, who writes into the first journal's first page of records is caught.
  void Arm() { ASSERT_EQ(::mprotect(ring_, kPage, PROT_NONE), 0); }
  bool asked() const { return asked_; }

 private:
  static constexpr size_t kPage = 4096;
  class Journal : public base::MappedFile {
   public:
    Journal(std::unique_ptr<base::MappedFile> file, CutMeanwhile* owner)
        : file_(std::move(file)), owner_(owner) {}
    std::span<std::byte> bytes() override { return file_->bytes(); }
    bool intact() const override { return !owner_->cut_ && file_->intact(); }
    bool IsAt(const std::string& path) const override { return file_->IsAt(path); }

   private:
    const std::unique_ptr<base::MappedFile> file_;
    CutMeanwhile* const owner_;
  };
  void OnFault() {
    if (::mprotect(ring_, kPage, PROT_READ | PROT_WRITE) != 0) ::abort();
    cut_ = true;
    for (int millis = 0; !asked_ && millis < 60'000; ++millis) ::usleep(1000);
  }

  static inline CutMeanwhile* self = nullptr;
  const std::thread::id trainer_ = std::this_thread::get_id();
  struct sigaction before_ = {};
  std::byte* ring_ = nullptr;
  std::atomic<bool> cut_{false}, renews_{false};
  mutable std::atomic<bool> asked_{false};
};

TEST_F(WorkerWriterTest, AJournalCutShortWhileTheEndIsWrittenHasItInTheNextOne) {
  for (const WhenFull when_full : {WhenFull::kBlock, WhenFull::kDropRaw}) {
    const base::ScratchDirectory directory;
    CutMeanwhile cut;
    options_.worker_directory = directory.path();
    options_.journal_path = directory / "journal";
    options_.when_full = when_full;
    options_.files = &cut;
    options_.clock = &cut;
    options_.seal_interval_nanos = 1;
    Open();
    Commit(0);  // for some time after it the drain looks around more often
    ASSERT_TRUE(Eventually([this] { return AllIsSealed(); }));
    cut.Arm();
    writer_->End("{\"reason\":\"done\"}", 200'000'000'000);
    EXPECT_TRUE(cut.asked());
    EXPECT_EQ(Header<uint64_t>(offsetof(format::JournalHeader, ended)), 1u);
    EXPECT_THAT(Segments(), testing::HasSubstr("done"));
    EXPECT_TRUE(writer_->dropped().empty()) << "nothing but the end was in that journal alone";
    writer_.reset();
  }
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
  // On a busy machine the drain may only now say that its last attempt was refused, which makes the end
  // impatient; it goes on trying all the same.
  ASSERT_TRUE(Eventually([this] { return AllIsSealed(); }));
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
// one. Here time stands still, so that the next one never comes.
TEST_F(WorkerWriterTest, TheEndTriesAtOnceWhatWasRefusedUntilThen) {
  static StandingClock clock;  // outlives the writer
  options_.clock = &clock;
  options_.files = &faulty_;
  options_.segment_bytes = 64 << 10;
  Open();
  Define(0, "w");
  faulty_.fail = Code::kUnavailable;
  for (int64_t s = 0; s < 20; ++s) {
    Raw(s, 0, Values(0, s, 1000));
    Commit(s);
  }
  ASSERT_TRUE(Eventually([this] { return faulty_.failures > 0; }));
  faulty_.fail = Code::kOk;
  std::thread end([this] { writer_->End("{}", kHour); });
  const auto ended = [this] { return Header<uint64_t>(offsetof(format::JournalHeader, ended)) == 1; };
  EXPECT_TRUE(Eventually([&] { return ended() && AllIsSealed(); }));
  clock.Advance(2 * kHour);
  end.join();
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
  writer_->End("{}", 60'000'000'000);  // which includes the sync
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
  // One a writer, or two where the drain came between a commit and the end.
  const auto segments = [this] { return static_cast<int>(Read().segments); };
  Open();
  Commit(0);
  sync_millis = 100;
  writer_->End("{}", 10'000'000'000);
  writer_->Close();
  const int first = segments();
  EXPECT_EQ(syncs, syncs_before + first);
  EXPECT_TRUE(RingIsReleased());

  sync_millis = 0;

  static StandingClock clock;  // outlives the writer
  options_.clock = &clock;
  Open();
  Commit(1);
  hold_syncs = true;
  writer_->End("{}", kHour);           // until all is sealed, however long that takes
  clock.Advance(kHour - 200'000'000);  // and so much is left to the sync
  writer_->Close();
  EXPECT_EQ(syncs, syncs_before + first) << "the second writer's go on";
  const int second = segments() - first;
  EXPECT_GT(second, 0);
  EXPECT_FALSE(RingIsReleased());
  EXPECT_EQ(Read().steps.size(), 4u);
  // Whoever comes next has the directory to itself, while the last sync goes on.
  hold_syncs = false;
  Open();
  Commit(2);
  writer_.reset();
  EXPECT_EQ(Read().steps.size(), 5u);
  EXPECT_EQ(syncs, syncs_before + segments() - second);
  let_go_of_syncs = true;
  EXPECT_TRUE(Eventually([&] { return syncs == syncs_before + segments(); }));
  let_go_of_syncs = false;
}

}  // namespace
}  // namespace tdbg::store
