// A real file system that is really full: what a fault-injecting one cannot show (SIGBUS, half-allocated
// files).
#include <gmock/gmock.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <thread>

#include "base/hash.h"
#include "base/testing.h"
#include "store/reader/worker_reader.h"
#include "store/writer/worker_writer.h"

namespace tdbg {
namespace {

class DiskFull : public testing::Test {
 protected:
  void SetUp() override {
    if (::mount("tdbg-test", scratch_.path().c_str(), "tmpfs", 0, "size=16m") != 0) {
      GTEST_SKIP() << "cannot mount a small tmpfs (needs root): " << std::strerror(errno);
    }
    mounted_ = true;
  }
  void TearDown() override {
    writer_.reset();
    if (mounted_) ::umount2(scratch_.path().c_str(), MNT_DETACH);
  }
  void Open(store::WhenFull when_full, uint64_t journal_bytes) {
    store::WriterOptions options;
    options.worker_directory = scratch_.path();
    options.journal_path = scratch_ / "journal";
    options.worker.worker = "worker_0";
    options.when_full = when_full;
    options.journal_bytes = journal_bytes;
    options.budget_bytes = 0;
    auto opened = store::WorkerWriter::Open(options);
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    writer_ = *std::move(opened);
    format::TensorDef def;
    def.name = "w";
    def.dtype = DType::kFloat32;
    writer_->AppendTensorDef(def);
  }
  bool Step(int64_t step) {
    const std::vector<float> values(100'000, static_cast<float>(step));
    const int64_t shape[] = {100'000};
    const bool kept = writer_->AppendRaw(step, 0, {}, {values.data(), DType::kFloat32, shape, {}});
    format::SummaryRow row;
    row.count = 1;
    writer_->AppendSummaries(step, {&row, 1}, {});
    format::Commit commit;
    commit.global_step = step;
    writer_->Commit(commit);
    return kept;
  }
  uint64_t Lost(format::DropCause cause) {
    uint64_t count = 0;
    for (const format::Drop& drop : writer_->dropped())
      count += drop.cause == static_cast<uint8_t>(cause) ? drop.count : 0;
    return count;
  }
  void FillUp() {
    std::ofstream filler(scratch_ / "filler", std::ios::binary);
    const std::string block(1 << 16, 'f');
    while (filler.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) {
    }
  }

  base::ScratchDirectory scratch_;
  std::unique_ptr<store::WorkerWriter> writer_;
  bool mounted_ = false;
};

TEST_F(DiskFull, TrainingGoesOnDropsAreCountedAndAFreedDiskResumes) {
  for (const auto when_full : {store::WhenFull::kDropRaw, store::WhenFull::kBlock}) {
    Open(when_full, 4 << 20);
    FillUp();
    const auto start = std::chrono::steady_clock::now();
    int64_t step = 0;
    std::vector<int64_t> kept;
    for (; step < 300; ++step) {
      if (Step(step)) kept.push_back(step);
      // Training may be done before the drain has tried for the first time.
      for (int i = 0; step == 20 && i < 1000 && writer_->last_error().ok(); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
    EXPECT_GT(Lost(format::DropCause::kDiskFull) + Lost(format::DropCause::kJournalFull), 200u);
    EXPECT_GT(Lost(format::DropCause::kDiskFull), 0u);

    std::filesystem::remove(scratch_ / "filler");
    bool resumed = false;
    for (int i = 0; i < 1000 && !resumed; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      resumed = Step(step);
      if (resumed) kept.push_back(step);
      ++step;
    }
    EXPECT_TRUE(resumed);
    writer_->End("{}", 10'000'000'000);
    writer_.reset();

    auto reader = store::WorkerReader::Open(scratch_.path());
    TDBG_ASSERT_OK(reader);
    TDBG_ASSERT_OK((*reader)->Refresh());
    for (const auto& damage : (*reader)->damage()) ADD_FAILURE() << damage.file << ": " << damage.what;
    EXPECT_EQ((*reader)->commits().size(), static_cast<size_t>(step) + 1);
    ASSERT_EQ((*reader)->RawsOf(0).size(), kept.size());
    for (size_t i = 0; i < kept.size(); ++i) {
      const store::RawRef ref = (*reader)->RawsOf(0)[i];
      EXPECT_EQ(ref.global_step, kept[i]);
      const auto value = (*reader)->ReadRaw(ref);
      TDBG_ASSERT_OK(value);
      float first;
      std::memcpy(&first, value->bytes.data(), 4);
      EXPECT_EQ(first, static_cast<float>(kept[i]));
    }
    for (const auto& entry : std::filesystem::directory_iterator(scratch_.path()))
      std::filesystem::remove_all(entry);
  }
}

TEST_F(DiskFull, AJournalThatDoesNotFitShrinksAndOneThatCannotIsRefused) {
  Open(store::WhenFull::kDropRaw, 256 << 20);
  EXPECT_EQ(std::filesystem::file_size(scratch_ / "journal"), 8u << 20);
  writer_.reset();
  std::filesystem::remove(scratch_ / "journal");
  FillUp();
  store::WriterOptions options;
  options.worker_directory = scratch_.path();
  options.journal_path = scratch_ / "journal";
  EXPECT_EQ(store::WorkerWriter::Open(options).status().code(), Code::kResourceExhausted);
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "journal"));
}

}  // namespace
}  // namespace tdbg
