#include "jobs/training_output.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/testing.h"
#include "jobs/secret_mask.h"

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

  base::ScratchDirectory directory_;
};

TEST_F(TrainingOutputTest, ALineHasTheStepAndTimeAtWhichItBegan) {
  OutputWriter writer = Open();
  writer.Append("one\ntw", OutputStream::kOut, 10, 3);
  writer.Append("o\nthree", OutputStream::kErr, 20, 4);
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

TEST_F(TrainingOutputTest, AProgressBarIsWhatATerminalShowsOfIt) {
  Open().Append("10%\r20%\r100%\nwindows\r\n", OutputStream::kErr, 1, 1);
  const auto lines = All();
  EXPECT_EQ(lines[0].text, "100%");
  EXPECT_EQ(lines[1].text, "windows");
}

TEST_F(TrainingOutputTest, ItStaysBelowItsLimitAndKeepsTheEnd) {
  constexpr uint64_t kLimit = 20'000;
  OutputWriter writer = Open(kLimit);
  OutputReader follower(directory_.path(), 0);
  size_t followed = 0;
  for (int i = 0; i < 5000; ++i) {
    writer.Append("line " + std::to_string(i) + "\n", OutputStream::kOut, i, i);
    if (i % 50 == 0) followed += follower.Next(false).size();
  }
  uint64_t bytes = 0;
  const auto entries = base::LocalFileSystem().List(directory_.path() + "/logs");
  for (const base::DirEntry& entry : *entries) bytes += entry.size;
  EXPECT_LE(bytes, kLimit);
  EXPECT_GE(bytes, kLimit / 2);
  const auto lines = All();
  EXPECT_TRUE(lines.front().lost_before);
  EXPECT_EQ(lines.back().text, "line 4999");
  for (size_t i = 1; i < lines.size(); ++i) {
    ASSERT_EQ(lines[i].text, "line " + std::to_string(lines[i].global_step));
    ASSERT_EQ(lines[i].global_step, lines[i - 1].global_step + 1);
  }
  EXPECT_EQ(followed + follower.Next(true).size(), 5000u) << "a follower sees what is rotated away behind it";
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

TEST(SecretMaskTest, IsNoMatterOfHowTheBytesCome) {
  const std::string text = "x secret-one y secret-one-more z secret-tw";
  const std::string expected = "x [redacted] y [redacted] z secret-tw";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    SecretMask mask({"secret-one-more", "secret-one", "secret-two"});
    std::string out = mask.Feed(text.substr(0, cut));
    out += mask.Feed(text.substr(cut));
    out += mask.Flush();
    EXPECT_EQ(out, expected) << cut;
  }
}

TEST(SecretMaskTest, SecretsAreThoseOfNamesAndOfTheCommandLine) {
  const auto secrets = SecretsOf({"python", "x.py", "--token", "abcdefgh", "--password=ijklmnop"},
                                 {{"API_KEY", "qrstuvwx"},
                                  {"MINE", "yzyzyzyz"},
                                  {"A_TOKEN", "1"},
                                  {"PATH", "/usr/bin"},
                                  {"PWD", "/data/trainings"}},
                                 {"MINE"});
  EXPECT_EQ(secrets, (std::vector<std::string>{"abcdefgh", "ijklmnop", "qrstuvwx", "yzyzyzyz"}));
}

}  // namespace
}  // namespace tdbg::jobs
