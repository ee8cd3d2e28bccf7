#include "store/writer/leftovers.h"

#include <gmock/gmock.h>

#include "store/writer/testing.h"
#include "store/writer/testing_options.h"

namespace tdbg::store {
namespace {

// A directory as a killed process leaves it: copied while the writer lives, so neither lock nor drain matter.
class LeftoversTest : public testing::Test {
 protected:
  LeftoversTest() {
    const WriterOptions options = TestOptions(scratch_ / "live");
    base::LocalFileSystem().CreateDirectories(options.worker_directory).ok();
    auto opened = WorkerWriter::Open(options);
    EXPECT_TRUE(opened.ok());
    writer_ = *std::move(opened);
    format::TensorDef def;
    def.name = "w";
    def.dtype = DType::kFloat32;
    writer_->AppendTensorDef(def);
  }
  void Step(int64_t step, bool commit = true) {
    const std::vector<float> values(1000, static_cast<float>(step));
    const int64_t shape[] = {1000};
    EXPECT_TRUE(writer_->AppendRaw(step, 0, {}, {values.data(), DType::kFloat32, shape, {}}));
    format::Commit c;
    c.global_step = step;
    if (commit) writer_->Commit(c);
  }
  void Die() { std::filesystem::copy(scratch_ / "live", dead_, std::filesystem::copy_options::recursive); }
  Decoded Read() { return DecodeWorker(dead_, dead_ + "/journal"); }
  template <typename T>
  void Patch(uint64_t at, T value) {
    std::string journal = base::Slurp(dead_ + "/journal");
    std::memcpy(journal.data() + at, &value, sizeof(value));
    base::Spill(dead_ + "/journal", journal);
  }
  uint64_t Field(size_t offset) {
    return base::Load<uint64_t>(base::Slurp(dead_ + "/journal").data() + offset);
  }
  uint64_t Damaged(format::DropKind kind) {
    constexpr auto kDamaged = static_cast<size_t>(format::DropCause::kDamaged);
    return Field(offsetof(format::JournalHeader, drop_count) +
                 8 * (kDamaged * 4 + static_cast<size_t>(kind) - 1));
  }
  uint64_t Committed() { return base::Load<uint64_t>(base::Slurp(scratch_ / "live/journal").data() + 64); }

  base::ScratchDirectory scratch_;
  std::string dead_ = scratch_ / "dead";
  std::unique_ptr<WorkerWriter> writer_;
};

TEST_F(LeftoversTest, CommittedStepsAreSealedOnceAndTheOpenOneIsCounted) {
  Step(0);
  Step(1);
  Step(2, /*commit=*/false);
  Die();
  base::Spill(dead_ + "/segments/.tmp-00000000000000000001-00000000000000000004.safetensors", "half");
  for (int again = 0; again < 3; ++again) {
    TDBG_ASSERT_OK(SealLeftovers(base::LocalFileSystem(), dead_));
    const Decoded read = Read();
    EXPECT_EQ(read.steps.size(), 2u);
    EXPECT_EQ(read.raws.size(), 2u);
    EXPECT_EQ(read.segments, 1u);
    EXPECT_EQ(base::LocalFileSystem().List(dead_ + "/segments")->size(), 1u);
    constexpr size_t kCrashedStep = offsetof(format::JournalHeader, drop_count) + 8 * (11 * 4 + 3);
    EXPECT_EQ(Field(kCrashedStep), 1u);
  }
}

TEST_F(LeftoversTest, ASegmentRenamedBeforeSealedPosMovedIsNotSealedAgain) {
  Step(0);
  Die();
  TDBG_ASSERT_OK(SealLeftovers(base::LocalFileSystem(), dead_));
  const std::string segment = base::LocalFileSystem().List(dead_ + "/segments")->at(0).name;
  Step(1);
  std::filesystem::copy(scratch_ / "live/journal", dead_ + "/journal",
                        std::filesystem::copy_options::overwrite_existing);
  TDBG_ASSERT_OK(SealLeftovers(base::LocalFileSystem(), dead_));
  const Decoded read = Read();
  EXPECT_EQ(read.segments, 2u);
  EXPECT_EQ(read.steps.size(), 2u);
  EXPECT_EQ(read.tensors.at(0), "w");
  EXPECT_TRUE(read.raws.count("w@1"));
  EXPECT_EQ(base::LocalFileSystem().List(dead_ + "/segments")->at(0).name, segment);
}

TEST_F(LeftoversTest, ADamagedRecordCostsItselfOnly) {
  Step(0);
  const uint64_t second = Committed();
  Step(1);
  Step(2);
  Die();
  Patch<char>(4096 + second + 64 + 200, 'x');  // inside step 1's raw data
  TDBG_ASSERT_OK(SealLeftovers(base::LocalFileSystem(), dead_));
  const Decoded read = Read();
  EXPECT_EQ(read.steps.size(), 3u);
  EXPECT_EQ(read.raws.size(), 2u);
  EXPECT_FALSE(read.raws.count("w@1"));
}

TEST_F(LeftoversTest, ADamagedHeaderCostsItsRecordOnly) {
  Step(0);
  const uint64_t second = Committed();
  for (int64_t step = 1; step < 20; ++step) Step(step);
  Die();
  Patch<char>(4096 + second + 5, 'x');  // the raw tensor of step 1
  TDBG_ASSERT_OK(SealLeftovers(base::LocalFileSystem(), dead_));
  const Decoded read = Read();
  ASSERT_EQ(read.steps.size(), 20u);
  EXPECT_EQ(read.raws.size(), 19u);
  EXPECT_EQ(read.steps[1].commit.raw_tensors, 0u);
  EXPECT_FALSE(read.raws.count("w@1"));
  EXPECT_EQ(Damaged(format::DropKind::kRaw), 1u);
  EXPECT_EQ(Damaged(format::DropKind::kStep), 0u);
}

TEST_F(LeftoversTest, ADamagedHeaderOfACommitCostsItsStep) {
  Step(0);
  Step(1);
  const uint64_t behind_second = Committed();
  Step(2);
  Step(3);
  const uint64_t last = Committed();
  Die();
  constexpr uint64_t kCommitRecord = 128;
  Patch<char>(4096 + behind_second - kCommitRecord + 5, 'x');
  Patch<char>(4096 + last - kCommitRecord + 5, 'x');
  TDBG_ASSERT_OK(SealLeftovers(base::LocalFileSystem(), dead_));
  const Decoded read = Read();
  ASSERT_EQ(read.steps.size(), 2u);
  EXPECT_EQ(read.steps[1].commit.global_step, 2);
  EXPECT_EQ(read.raws.size(), 2u);
  EXPECT_TRUE(read.raws.count("w@2"));
  EXPECT_EQ(Damaged(format::DropKind::kStep), 2u);
  EXPECT_EQ(Damaged(format::DropKind::kRaw), 0u);
  EXPECT_EQ(Damaged(format::DropKind::kSummary), 0u);
}

TEST_F(LeftoversTest, ADamagedJournalKeepsItsRing) {
  Step(0);
  const uint64_t second = Committed();
  Step(1);
  Die();
  const std::string before = base::Slurp(dead_ + "/journal").substr(4096);
  std::filesystem::copy(dead_, scratch_ / "sound", std::filesystem::copy_options::recursive);
  TDBG_ASSERT_OK(SealLeftovers(base::LocalFileSystem(), scratch_ / "sound"));
  EXPECT_EQ(base::Slurp(scratch_ / "sound/journal").substr(4096), std::string(before.size(), '\0'));
  Patch<char>(4096 + second + 5, 'x');
  for (int again = 0; again < 2; ++again) {
    TDBG_ASSERT_OK(SealLeftovers(base::LocalFileSystem(), dead_));
    EXPECT_EQ(base::Slurp(dead_ + "/journal").substr(4096 + second + 6), before.substr(second + 6));
    EXPECT_EQ(Damaged(format::DropKind::kRaw), 1u);
  }
}

TEST_F(LeftoversTest, PositionsThatMakeNoSenseAreAnErrorAndTouchNothing) {
  Step(0);
  Die();
  const std::string whole = base::Slurp(dead_ + "/journal");
  constexpr size_t kCommitted = offsetof(format::JournalHeader, committed_pos);
  constexpr size_t kSealed = offsetof(format::JournalHeader, sealed_pos);
  const uint64_t ring = Field(offsetof(format::JournalHeader, ring_bytes));
  const uint64_t cases[][2] = {{ring - 8, ring + 64},      {0, ring - 8}, {0, uint64_t{1} << 63},
                               {~uint64_t{63}, ring - 64}, {4096, 64},    {0, ring + 64}};
  for (const auto& [sealed, committed] : cases) {
    base::Spill(dead_ + "/journal", whole);
    Patch(kSealed, sealed);
    Patch(kCommitted, committed);
    const std::string before = base::Slurp(dead_ + "/journal");
    EXPECT_EQ(SealLeftovers(base::LocalFileSystem(), dead_).code(), Code::kDataLoss)
        << sealed << " " << committed;
    EXPECT_EQ(base::Slurp(dead_ + "/journal"), before);
  }
}

TEST_F(LeftoversTest, ACommitThatIsTooShortIsADamagedOne) {
  Step(0);
  const uint64_t committed = Committed();
  Step(1);
  Die();
  // Sound in every hash, as only a faulty writer can make it: its payload has 8 bytes.
  std::string journal = base::Slurp(dead_ + "/journal");
  std::byte* const at = reinterpret_cast<std::byte*>(journal.data()) + 4096 + committed - 128;
  auto header = base::Load<format::RecordHeader>(at);
  header = format::MakeRecordHeader(format::RecordType::kCommit, header.sequence, header.position, 8, 0,
                                    base::Hash64({at + 64, 8}));
  base::Store(at, header);
  base::Spill(dead_ + "/journal", journal);
  TDBG_ASSERT_OK(SealLeftovers(base::LocalFileSystem(), dead_));
  const Decoded read = Read();
  ASSERT_EQ(read.steps.size(), 2u);
  EXPECT_EQ(read.steps[0].commit.mode_step, format::Commit().mode_step);
  EXPECT_EQ(Damaged(format::DropKind::kSummary), 1u);
}

TEST_F(LeftoversTest, NothingToSealIsNoError) {
  EXPECT_TRUE(SealLeftovers(base::LocalFileSystem(), scratch_ / "nowhere").ok());
  EXPECT_TRUE(SealLeftovers(base::LocalFileSystem(), scratch_ / "live").ok());  // its lock is held
  Die();
  Patch<uint64_t>(0, 0);  // died before the magic was written
  EXPECT_TRUE(SealLeftovers(base::LocalFileSystem(), dead_).ok());
  base::Spill(dead_ + "/journal", "short");
  EXPECT_TRUE(SealLeftovers(base::LocalFileSystem(), dead_).ok());
  std::filesystem::remove(dead_ + "/journal");
  EXPECT_TRUE(SealLeftovers(base::LocalFileSystem(), dead_).ok());
}

TEST_F(LeftoversTest, AFullDiskLeavesEverythingForTheNextAttempt) {
  Step(0);
  Die();
  FaultyFileSystem faulty;
  faulty.fail = Code::kResourceExhausted;
  EXPECT_EQ(SealLeftovers(faulty, dead_).code(), Code::kResourceExhausted);
  EXPECT_EQ(Read().steps.size(), 1u);
  TDBG_ASSERT_OK(SealLeftovers(base::LocalFileSystem(), dead_));
  EXPECT_EQ(Read().segments, 1u);
}

}  // namespace
}  // namespace tdbg::store
