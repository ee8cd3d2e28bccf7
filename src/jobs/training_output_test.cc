#include "jobs/training_output.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "base/file.h"
#include "base/testing.h"

namespace tdbg::jobs {
namespace {

class TrainingOutputTest : public testing::Test {
 protected:
  OutputWriter Open(uint64_t limit = 1 << 20) {
    auto writer = OutputWriter::Open(directory_.path(), 0, limit);
    EXPECT_TRUE(writer.ok());
    return *std::move(writer);
  }
  std::vector<OutputLine> All() {
    OutputReader reader(directory_.path(), 0);
    std::vector<OutputLine> all;
    while (true) {
      const auto lines = reader.Next(true);
      if (lines.empty()) return all;
      all.insert(all.end(), lines.begin(), lines.end());
    }
  }

  uint64_t Bytes() {
    uint64_t bytes = 0;
    const auto entries = base::LocalFileSystem().List(directory_ / "logs");
    for (const base::DirEntry& entry : *entries) bytes += entry.is_directory ? 0 : entry.size;
    return bytes;
  }

  base::ScratchDirectory directory_;
};

TEST_F(TrainingOutputTest, ALineHasTheStepAndTimeAtWhichItBegan) {
  OutputWriter writer = Open();
  writer.Append("one\ntw", OutputStream::kOut, 10, 3);
  writer.Append("o\nthree", OutputStream::kOut, 20, 4);
  OutputReader reader(directory_.path(), 0);
  const auto lines = reader.Next(false);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1].text, "two");
  EXPECT_EQ(lines[1].global_step, 3);
  EXPECT_EQ(lines[1].stream, OutputStream::kOut);
  const auto rest = reader.Next(true);
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_EQ(rest[0].text, "three");
  EXPECT_EQ(rest[0].global_step, 4);
  EXPECT_EQ(rest[0].wall_nanos, 20);
  EXPECT_TRUE(reader.Next(true).empty());
}

TEST_F(TrainingOutputTest, PiecesOfTwoStreamsAreLinesOfTheirOwn) {
  OutputWriter writer = Open();
  writer.Append("to std", OutputStream::kOut, 10, 3);
  writer.Append("a warn", OutputStream::kErr, 20, 3);
  writer.Append("out\nunended", OutputStream::kOut, 30, 4);
  writer.Append("ing\nand no", OutputStream::kErr, 40, 4);
  const auto lines = All();
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0].text, "to stdout");
  EXPECT_EQ(lines[0].wall_nanos, 10);
  EXPECT_EQ(lines[1].text, "a warning");
  EXPECT_EQ(lines[1].stream, OutputStream::kErr);
  EXPECT_EQ(lines[2].text, "unended");
  EXPECT_EQ(lines[3].text, "and no");
}

TEST_F(TrainingOutputTest, AProgressBarIsWhatATerminalShowsOfIt) {
  Open().Append("10%\r20%\r100%\nwindows\r\n", OutputStream::kErr, 1, 1);
  const auto lines = All();
  EXPECT_EQ(lines[0].text, "100%");
  EXPECT_EQ(lines[1].text, "windows");
}

TEST_F(TrainingOutputTest, ItStaysBelowItsLimitAndKeepsTheBeginningAndTheEnd) {
  constexpr uint64_t kLimit = 20'000;
  OutputWriter writer = Open(kLimit);
  OutputReader follower(directory_.path(), 0);
  size_t followed = 0;
  for (int i = 0; i < 5000; ++i) {
    writer.Append("line " + std::to_string(i) + "\n", OutputStream::kOut, i, i);
    if (i % 20 == 0) followed += follower.Next(false).size();
    if (i % 1000 == 777) writer = Open(kLimit);  // another tdbg-log takes over
  }
  EXPECT_LE(Bytes(), kLimit);
  EXPECT_GE(Bytes(), kLimit / 2);
  const auto lines = All();
  EXPECT_EQ(lines.front().text, "line 0");
  EXPECT_FALSE(lines.front().lost_before);
  EXPECT_EQ(lines.back().text, "line 4999");
  int gaps = 0;
  for (size_t i = 1; i < lines.size(); ++i) {
    ASSERT_EQ(lines[i].text, "line " + std::to_string(lines[i].global_step));
    uint64_t left_out = 0;
    for (int64_t step = lines[i - 1].global_step + 1; step < lines[i].global_step; ++step)
      left_out += ("line " + std::to_string(step) + "\n").size();
    gaps += left_out > 0;
    ASSERT_EQ(lines[i].lost_before, left_out > 0);
    ASSERT_EQ(lines[i].lost_bytes, left_out);
  }
  EXPECT_EQ(gaps, 1);
  EXPECT_EQ(followed + follower.Next(true).size(), 5000u) << "a follower sees what is rotated away behind it";
}

TEST_F(TrainingOutputTest, ItStaysBelowItsLimitWhateverStandsInTheWayOfItsOlderHalf) {
  constexpr uint64_t kLimit = 20'000;
  OutputWriter writer = Open(kLimit);
  for (const char* name : {"attempt-0.out.0", "attempt-0.out.1", "attempt-0.index.1"})
    std::filesystem::create_directories(directory_.path() + "/logs/" + name + "/full");
  for (int i = 0; i < 5000; ++i) writer.Append("line " + std::to_string(i) + "\n", OutputStream::kOut, i, i);
  EXPECT_LE(Bytes(), kLimit);
  EXPECT_EQ(All().back().text, "line 4999");
}

TEST_F(TrainingOutputTest, ALogThatIsNoFileIsNeitherWrittenNorWaitedFor) {
  const std::string logs = directory_ / "logs";
  for (const std::string name : {"/attempt-0.out", "/attempt-0.index"}) {
    for (const std::string kind : {"pipe", "link", "directory", "device"}) {
      std::filesystem::create_directories(logs);
      if (kind == "pipe" && ::mkfifo((logs + name).c_str(), 0600) != 0) continue;
      if (kind == "link") std::filesystem::create_symlink(directory_ / "elsewhere", logs + name);
      if (kind == "directory") std::filesystem::create_directory(logs + name);
      if (kind == "device" && ::mknod((logs + name).c_str(), S_IFCHR | 0600, makedev(1, 7)) != 0) continue;
      EXPECT_FALSE(OutputWriter::Open(directory_.path(), 0, 1 << 20).ok()) << kind << name;
      EXPECT_FALSE(std::filesystem::exists(directory_ / "elsewhere"));
      std::filesystem::remove_all(logs);
    }
  }
}

TEST_F(TrainingOutputTest, WhatWasLostIsSaidWithItsAmountWhereItIsMissing) {
  OutputWriter writer = Open();
  writer.Append("one\nhalf a li", OutputStream::kOut, 1, 1);
  writer.Lose(5000);
  writer.Append("two\n", OutputStream::kOut, 2, 1);
  OutputReader follower(directory_.path(), 0);
  EXPECT_EQ(follower.Next(false).size(), 3u);
  writer.Lose(100);  // just where a follower has got to
  writer.Append("three\n", OutputStream::kOut, 3, 1);
  EXPECT_TRUE(follower.Next(false).at(0).lost_before);
  writer.Lose(uint64_t{3} << 40);
  EXPECT_EQ(writer.all_lost(), 5100 + (uint64_t{3} << 40));
  writer.SayLost();
  const auto lines = All();
  ASSERT_EQ(lines.size(), 5u);
  const std::vector<std::pair<std::string, uint64_t>> expected = {{"one", 0},
                                                                  {"half a li", 0},
                                                                  {"two", 5 << 10},
                                                                  {"three", 1 << 10},
                                                                  {"", ((1u << 24) - 1) * uint64_t{1024}}};
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i].text, expected[i].first);
    EXPECT_EQ(lines[i].lost_bytes, expected[i].second);
    EXPECT_EQ(lines[i].lost_before, expected[i].second > 0);
  }
}

TEST_F(TrainingOutputTest, WhereFilesMayNotGrowTheNewestIsKept) {
  const pid_t writing = ::fork();  // the limit is a process's
  if (writing == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit most = {20'000, 20'000};
    ::setrlimit(RLIMIT_FSIZE, &most);
    OutputWriter writer = Open();
    for (int i = 0; i < 9000; ++i)
      writer.Append("line " + std::to_string(i) + "\n", OutputStream::kOut, i, i);
    ::_exit(writer.all_lost() == 0 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(writing, &status, 0), writing);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(All().front().text, "line 0");
  EXPECT_EQ(All().back().text, "line 8999");
}

TEST_F(TrainingOutputTest, ANewWriterGoesOnWhereOneWasKilled) {
  Open().Append("a\nb", OutputStream::kOut, 1, 1);
  base::Spill(directory_.path() + "/logs/attempt-0.index",
              base::Slurp(directory_.path() + "/logs/attempt-0.index") + "half an entry");
  Open().Append("c\nd\n", OutputStream::kOut, 2, 2);
  const auto lines = All();
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[1].text, "bc");
  EXPECT_EQ(lines[2].global_step, 2);
}

TEST_F(TrainingOutputTest, ADamagedIndexCostsStepsAndNoText) {
  Open().Append("a\nb\n", OutputStream::kOut, 1, 1);
  const std::string path = directory_.path() + "/logs/attempt-0.index";
  const std::string whole = base::Slurp(path);
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string bytes = whole;
    bytes[i] = static_cast<char>(bytes[i] ^ 0xff);
    base::Spill(path, bytes);
    EXPECT_EQ(All().size(), 2u) << "byte " << i;
  }
}

}  // namespace
}  // namespace tdbg::jobs
