#include "jobs/log_copy.h"

#include <gtest/gtest.h>

#include <future>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/testing.h"
#include "jobs/kept_log.h"

namespace tdbg::jobs {
namespace {

constexpr size_t kMost = 64 << 10;
constexpr int64_t kNoPatience = 0, kEndless = int64_t{3600} * 1'000'000'000;

// Keeps what comes once its disk no longer stalls.
class Disk {
 public:
  Disk() : go_(let_go_.get_future()) {}
  std::function<void(const LogPiece&)> Keep() {
    return [this](const LogPiece& piece) {
      go_.wait();
      kept_.push_back(piece);
    };
  }
  void Go() { let_go_.set_value(); }
  const std::vector<LogPiece>& kept() const { return kept_; }

 private:
  std::promise<void> let_go_;
  std::shared_future<void> go_;
  std::vector<LogPiece> kept_;
};

TEST(LogCopyTest, ADiskThatStallsHoldsNobodyUpAndWhatHasNoRoomIsCounted) {
  Disk disk;
  LogCopy copy(disk.Keep(), kMost, kNoPatience);
  constexpr size_t kPieces = 1000;
  for (size_t i = 0; i < kPieces; ++i)
    copy.Put(i % 2, std::string(1000, 'x'));  // ends, though nothing is kept
  disk.Go();
  copy.Flush(2);
  uint64_t kept = 0, lost[2] = {};
  for (const LogPiece& piece : disk.kept()) {
    kept += piece.bytes.size();
    lost[piece.source] += piece.lost_before;
    EXPECT_TRUE(piece.lost_before == 0 || piece.flush) << "the earliest is what is kept";
  }
  EXPECT_GT(kept, kMost / 2);
  EXPECT_LE(kept, kMost + 1000) << "one more may be with the disk";
  EXPECT_EQ(kept + lost[0] + lost[1], kPieces * 1000);
  EXPECT_GT(lost[0], kPieces * 1000 / 4);
  EXPECT_GT(lost[1], kPieces * 1000 / 4);
  copy.Put(0, "again");
  copy.Flush(2);
  EXPECT_EQ(disk.kept().end()[-3].bytes, "again");
  EXPECT_EQ(disk.kept().end()[-3].lost_before, 0u);
}

TEST(LogCopyTest, ADiskThatIsSlowIsWaitedFor) {
  Disk disk;
  disk.Go();
  LogCopy copy(disk.Keep(), kMost, kEndless);
  for (size_t i = 0; i < 1000; ++i) copy.Put(0, std::string(10'000, 'x'));
  copy.Flush(1);
  EXPECT_EQ(disk.kept().size(), 1001u);
  EXPECT_EQ(disk.kept().back().lost_before, 0u);
}

TEST(LogCopyTest, APieceLargerThanAllIsKept) {
  Disk disk;
  disk.Go();
  LogCopy copy(disk.Keep(), 10, kNoPatience);
  copy.Put(0, std::string(1000, 'x'));
  copy.Flush(1);
  EXPECT_EQ(disk.kept()[0].bytes.size(), 1000u);
}

// What becomes of the pieces.
class KeptLogTest : public testing::Test {
 protected:
  static constexpr char kSecret[] = "0123456789-secret-9876543210";

  LogTask Task() {
    LogTask task;
    task.run_directory = directory_.path();
    task.limit_bytes = 1 << 20;
    task.secrets = {kSecret};
    task.sources = {{-1, -1, static_cast<uint32_t>(OutputStream::kOut), false},
                    {-1, -1, static_cast<uint32_t>(OutputStream::kErr), false}};
    return task;
  }
  std::vector<OutputLine> Lines() { return OutputReader(directory_.path(), 0).Next(true); }

  base::ScratchDirectory directory_;
};

TEST_F(KeptLogTest, NoHalfOfASecretIsKeptWhereSomethingIsMissing) {
  const std::string secret = kSecret;
  for (size_t cut = 1; cut < secret.size(); ++cut) {
    KeptLog log(Task());
    // The first half was kept back, the second comes in the first piece after the gap: or the other way
    // about.
    log.Keep({0, 1, 1, "before\n" + secret.substr(0, cut), 0, false});
    log.Keep({0, 1, 1, secret.substr(cut), 1000, false});
    log.Keep({0, 1, 1, " the rest of that line\nafter\n", 0, true});
    const std::string kept = base::Slurp(directory_ / "logs/attempt-0.out");
    EXPECT_EQ(kept, "before\nafter\n") << cut;
    EXPECT_EQ(log.lost(), 1000 + secret.size() + std::string(" the rest of that line\n").size());
    EXPECT_TRUE(Lines().at(1).lost_before);
    std::filesystem::remove_all(directory_ / "logs");
  }
}

TEST_F(KeptLogTest, AGapOfOneStreamTearsNoLineOfTheOther) {
  KeptLog log(Task());
  log.Keep({0, 1, 1, "out\n", 0, false});
  log.Keep({1, 1, 1, "begun", 0, false});
  log.Keep({0, 1, 1, "torn\nwhole\n", 2000, false});
  log.Keep({1, 1, 1, " and ended\n", 0, true});
  EXPECT_EQ(base::Slurp(directory_ / "logs/attempt-0.out"), "out\nbegunwhole\n and ended\n");
}

}  // namespace
}  // namespace tdbg::jobs
