// What a reader says of a journal that is not there, or whose header points elsewhere than its records.
#include <gmock/gmock.h>

#include <filesystem>

#include "base/bytes.h"
#include "store/reader/testing.h"

namespace tdbg::store {
namespace {

using format::JournalHeader;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class LostJournal : public testing::Test {
 protected:
  /// A worker that was killed: some steps are in a segment, 60 in the journal alone.
  void Die(int64_t sealed_steps) {
    WorkerFixture::Options options;
    options.raw_elements = 4;
    auto worker = std::make_unique<WorkerFixture>(directory_, options);
    worker->Steps(0, sealed_steps + 60);
    const std::string journal = base::Slurp(Journal());
    worker.reset();  // seals all, which a kill does not
    std::filesystem::remove_all(directory_ + "/segments");
    base::Spill(Journal(), journal);
    Put(offsetof(JournalHeader, sealed_pos), 0);
    Put(offsetof(JournalHeader, sealed_seq), 0);
  }
  std::string Journal() const { return directory_ + "/journal"; }
  void Put(size_t offset, uint64_t value) {
    std::string journal = base::Slurp(Journal());
    base::Store<uint64_t>(journal.data() + offset, value);
    base::Spill(Journal(), journal);
  }
  std::unique_ptr<WorkerReader> Open() {
    auto reader = WorkerReader::Open(directory_);
    EXPECT_TRUE(reader.ok() && (*reader)->Refresh().ok());
    return *std::move(reader);
  }

  base::ScratchDirectory scratch_;
  const std::string directory_ = scratch_ / "worker_0";
};

TEST_F(LostJournal, ThatOfACrashedWorkerIsMissed) {
  Die(0);
  EXPECT_THAT(Open()->commits(), SizeIs(60));
  std::filesystem::remove(Journal());
  const auto reader = Open();
  ASSERT_THAT(reader->damage(), SizeIs(1));
  EXPECT_EQ(reader->damage()[0].file, "journal");
  EXPECT_THAT(reader->damage()[0].what, HasSubstr("missing"));
}

TEST_F(LostJournal, OneThatLayElsewhereIsMissedByItsPath) {
  Die(0);
  std::filesystem::remove(Journal());
  std::string info = base::Slurp(directory_ + "/worker.json");
  const size_t at = info.find("\"journal\"");
  ASSERT_NE(at, std::string::npos) << info;
  info.replace(at, 9, "\"/no/such/place/tdbg-journal-1\"");
  base::Spill(directory_ + "/worker.json", info);
  const auto reader = Open();
  ASSERT_THAT(reader->damage(), SizeIs(1));
  EXPECT_THAT(reader->damage()[0].what, HasSubstr("/no/such/place/tdbg-journal-1"));
}

TEST_F(LostJournal, ThatOfAnEndedWorkerIsNotMissed) {
  {
    WorkerFixture worker(directory_, WorkerFixture::Options{});
    worker.Steps(0, 5);
    worker.End();
  }
  std::filesystem::remove(Journal());
  EXPECT_THAT(Open()->damage(), IsEmpty());
}

TEST_F(LostJournal, ADamagedLastCommitSaysNothingOfItsPositions) {
  Die(0);
  std::string journal = base::Slurp(Journal());
  const auto end = base::Load<uint64_t>(journal.data() + offsetof(JournalHeader, committed_pos));
  journal[format::kJournalHeaderBytes + end - format::RecordBytes(sizeof(format::Commit))] ^= 1;
  base::Spill(Journal(), journal);
  const auto reader = Open();
  for (int look = 0; look < 2; ++look) {
    EXPECT_EQ(reader->commits().size(), 59u);
    EXPECT_THAT(reader->damage(), testing::Not(IsEmpty()));
    for (const Damage& damage : reader->damage())
      EXPECT_THAT(damage.what, testing::Not(HasSubstr("make no sense"))) << look;
    ASSERT_TRUE(reader->Refresh().ok());
  }
}

// Every bit of the four words that say where records are: nothing is hidden without a word, and what the
// records themselves tell is read.
TEST_F(LostJournal, NoBitOfItsPositionsHidesSteps) {
  Die(0);
  const std::string good = base::Slurp(Journal());
  for (const size_t offset : {offsetof(JournalHeader, committed_pos), offsetof(JournalHeader, committed_seq),
                              offsetof(JournalHeader, sealed_pos), offsetof(JournalHeader, sealed_seq)}) {
    const auto value = base::Load<uint64_t>(good.data() + offset);
    for (int bit = 0; bit < 64; ++bit) {
      std::string bad = good;
      base::Store<uint64_t>(bad.data() + offset, value ^ uint64_t{1} << bit);
      base::Spill(Journal(), bad);
      const auto reader = Open();
      const size_t there = reader->commits().size();
      EXPECT_LE(there, 60u);
      if (offset == offsetof(JournalHeader, committed_pos) || offset == offsetof(JournalHeader, sealed_pos)) {
        EXPECT_EQ(there, 60u) << offset << " bit " << bit;
      }
      if (there < 60) {
        EXPECT_THAT(reader->damage(), testing::Not(IsEmpty())) << offset << " bit " << bit;
      }
      if (testing::Test::HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace tdbg::store
