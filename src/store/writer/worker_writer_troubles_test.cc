// What becomes of a training's recording when the world around it goes wrong.
#include <gmock/gmock.h>

#include <filesystem>

#include "store/writer/worker_writer_fixture.h"

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
  Define(0, "w");
  const std::string values = Values(0, 0, 50'000);
  int64_t s = 0;
  EXPECT_TRUE(Eventually([&] {
    Raw(s, 0, values);
    Commit(s++);
    return Lost(writer_->losses(), LossCause::kDirectoryGone, LossKind::kRaw) > 0;
  }));
  ExpectTheOtherIsUnharmed();
}

TEST_F(WorkerWriterTest, AFullDiskDoesNotStopTheHeartbeat) {
  options_.when_full = WhenFull::kDropRaw;
  options_.files = &faulty_;
  Open();
  faulty_.fail = Code::kResourceExhausted;
  int64_t s = 0;
  while (Lost(writer_->losses(), LossCause::kDiskFull, LossKind::kStep) < 10 && s < 100'000) Commit(s++);
  ASSERT_LT(s, 100'000);
  EXPECT_EQ(Header<int64_t>(offsetof(format::JournalHeader, last_seen_step)), s - 1);
  EXPECT_EQ(Header<int64_t>(offsetof(format::JournalHeader, last_seen_wall_nanos)), 1'000 + s - 1);
  faulty_.fail = Code::kOk;
}

}  // namespace
}  // namespace tdbg::store
