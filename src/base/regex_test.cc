#include "base/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <time.h>

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "base/first_group.h"

namespace tdbg::base {
namespace {

using testing::HasSubstr;

bool Finds(std::string_view pattern, std::string_view text) {
  const auto regex = Regex::Compile(pattern);
  EXPECT_TRUE(regex.ok()) << regex.status().ToString();
  return regex.ok() && regex->Search(text);
}

TEST(RegexTest, SearchesLikePythonsReSearch) {
  EXPECT_TRUE(Finds("relu", "model.relu_0.output"));
  EXPECT_FALSE(Finds("^relu", "model.relu_0.output"));
  EXPECT_TRUE(Finds("weight$", "fc.weight"));
  EXPECT_TRUE(Finds(".*tanh_output|.*relu_output", "x_relu_output_0"));
  EXPECT_TRUE(Finds("", "anything"));
  EXPECT_TRUE(Finds("^$", ""));
}

TEST(RegexTest, UnderstandsWhatUsersOfPythonWrite) {
  EXPECT_TRUE(Finds("^(?!gradient/).*bias", "fc.bias"));
  EXPECT_FALSE(Finds("^(?!gradient/).*bias", "gradient/fc.bias"));
  EXPECT_TRUE(Finds("(?P<layer>h\\.\\d+)\\.(?P=layer)", "h.3.h.3"));
  EXPECT_TRUE(Finds("(?i)LOSS", "CrossEntropyLoss"));
  EXPECT_TRUE(Finds("(?<=layer)\\d+", "layer12"));
}

TEST(RegexTest, WordsAndCharactersAreUnicodes) {
  EXPECT_TRUE(Finds("^\\w+$", "größe"));
  EXPECT_TRUE(Finds("^.$", "é"));
}

TEST(RegexTest, TextThatIsNotUtf8IsSearchedAroundItsBadBytes) {
  EXPECT_TRUE(Finds("weight", "\xff\xfe.weight"));
  EXPECT_FALSE(Finds("bias", "\xff\xfe.weight"));
}

TEST(RegexTest, BadPatternIsRefusedByNameComplaintAndOffset) {
  const auto regex = Regex::Compile("fc.(weight");
  ASSERT_FALSE(regex.ok());
  EXPECT_EQ(regex.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(regex.status().message(), HasSubstr("fc.(weight"));
  EXPECT_THAT(regex.status().message(), HasSubstr("parenthesis"));
  EXPECT_THAT(regex.status().message(), HasSubstr("offset 10"));
  EXPECT_FALSE(Regex::Compile("\xff").ok()) << "a pattern that is not UTF-8";
  EXPECT_FALSE(Regex::Compile(std::string(1 << 20, 'a')).ok()) << "a pattern of a megabyte";
}

// Python's re needs minutes for this one; a debugger that hangs has broken the training.
TEST(RegexTest, HostilePatternGivesUpQuicklyAndSaysSo) {
  const auto regex = Regex::Compile("(a+)+$");
  ASSERT_TRUE(regex.ok());
  bool gave_up = false;
  // PCRE2's own limit is a thousand times ours and costs 12 ms for this text, 0.1 ms under ours. CPU time of
  // this thread, since a busy machine is no fault of the pattern's.
  const auto cpu_millis = [] {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
  };
  const double start = cpu_millis();
  for (int i = 0; i < 10; ++i) {
    EXPECT_FALSE(regex->Search(std::string(40, 'a') + "!", &gave_up));
    EXPECT_TRUE(gave_up);
  }
  EXPECT_LT(cpu_millis() - start, 50);
}

TEST(RegexTest, OrdinaryMismatchIsNotGivingUp) {
  const auto regex = Regex::Compile("bias");
  bool gave_up = true;
  EXPECT_FALSE(regex->Search("weight", &gave_up));
  EXPECT_FALSE(gave_up);
}

// The JIT's stack is used up by some 600 rounds; the interpreter's is not, and the match limit neither.
TEST(RegexTest, WhatIsTooDeepForTheJitIsMatchedAllTheSame) {
  std::string text;
  for (int i = 0; i < 800; ++i) text += "ab";
  EXPECT_TRUE(Finds("^(?:(a)|(b)|ab)*$", text));
}

TEST(RegexTest, DeepBacktrackingOnALongTextEndsWithoutACrash) {
  const auto regex = Regex::Compile("^(?:(a)|(b)|ab)*$");
  ASSERT_TRUE(regex.ok());
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "ab";
  bool gave_up = false;
  const bool found = regex->Search(text, &gave_up);
  EXPECT_TRUE(found || gave_up);
}

TEST(FirstGroupTest, FindsWhatTheFirstGroupCaptures) {
  const auto group = FirstGroup::Compile("loss=([0-9.]+)( after)?");
  ASSERT_TRUE(group.ok());
  EXPECT_EQ(group->Find("step 1 loss=0.25 after all"), "0.25");
  EXPECT_EQ(group->Find("step 1 loss=0.25"), "0.25");  // a second group that took no part
  EXPECT_EQ(group->Find("no such thing"), std::nullopt);
  EXPECT_EQ(FirstGroup::Compile("loss=[0-9]+")->Find("loss=1"), std::nullopt);
  EXPECT_EQ(FirstGroup::Compile("a(b)?c(d)")->Find("acd"), std::nullopt);
  EXPECT_FALSE(FirstGroup::Compile("loss=(").ok());
}

TEST(RegexTest, CopiesShareTheProgramAndMovedFromStaysUsable) {
  Regex first = *Regex::Compile("a");
  const Regex copy = first;
  Regex moved = std::move(first);
  EXPECT_TRUE(copy.Search("cat"));
  EXPECT_TRUE(moved.Search("cat"));
  EXPECT_EQ(first.pattern(), "a");  // NOLINT: that it may be used is the point
}

TEST(RegexTest, ThreadsMayShareOne) {
  const Regex regex = *Regex::Compile("x(\\d+)y");
  std::vector<std::thread> threads;
  std::atomic<int> found{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) found += regex.Search("..x123y..") && !regex.Search("..x123..");
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(found, 2000);
}

}  // namespace
}  // namespace tdbg::base
