#include "jobs/recent_runs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "base/testing.h"

namespace tdbg::jobs {
namespace {

using testing::ElementsAre;

class RecentRunsTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/tdbg-recent-XXXXXX";
    root_ = ::mkdtemp(name);
    if (const char* before = ::getenv("XDG_STATE_HOME")) before_ = before;
    ::setenv("XDG_STATE_HOME", (root_ + "/state").c_str(), 1);
  }
  void TearDown() override {
    before_ ? ::setenv("XDG_STATE_HOME", before_->c_str(), 1) : ::unsetenv("XDG_STATE_HOME");
    std::filesystem::remove_all(root_);
  }

  std::string MakeRun(const std::string& name) {
    std::filesystem::create_directories(root_ + "/" + name);
    std::ofstream(root_ + "/" + name + "/run.json") << "{}";
    return root_ + "/" + name;
  }
  static std::vector<std::string> Paths() {
    std::vector<std::string> paths;
    for (const RecentRun& run : RecentRuns()) paths.push_back(run.run_directory);
    return paths;
  }

  std::string root_;
  std::optional<std::string> before_;
};

TEST_F(RecentRunsTest, TheOneThatWasStartedLastIsLast) {
  const std::string a = MakeRun("a"), b = MakeRun("b");
  EXPECT_THAT(Paths(), ElementsAre());
  RememberRun({a, "/somewhere", 1});
  RememberRun({b, "/elsewhere", 2});
  EXPECT_THAT(Paths(), ElementsAre(a, b));
  EXPECT_EQ(RecentRuns().back().working_directory, "/elsewhere");
  RememberRun({a, "/somewhere", 3});
  EXPECT_THAT(Paths(), ElementsAre(b, a)) << "started again";
  std::filesystem::remove_all(b);
  EXPECT_THAT(Paths(), ElementsAre(a)) << "what is gone is no run";
}

TEST_F(RecentRunsTest, WhatIsInABucketIsThereWhereverItsDirectoryIs) {
  const std::string a = MakeRun("a");
  RememberRun({a, "/somewhere", 1, "s3://bucket/a"});
  EXPECT_TRUE(RecentRuns().back().here);
  std::filesystem::remove_all(a);
  ASSERT_THAT(Paths(), ElementsAre(a));
  EXPECT_FALSE(RecentRuns().back().here);
  EXPECT_EQ(RecentRuns().back().url, "s3://bucket/a");
}

TEST_F(RecentRunsTest, OddLinesAreSkippedAndTheFileStaysSmall) {
  const std::string a = MakeRun("a");
  RememberRun({"/not/there", "/", 1});
  std::ofstream(RecentRunsPath(), std::ios::app) << "no json\n{\"run\": 3}\n{\"run\": \"relative\"}\n[]\n\n";
  RememberRun({a, "/x\xff", 2});
  EXPECT_THAT(Paths(), ElementsAre(a));
  for (int64_t n = 0; n < 600; ++n) RememberRun({"/not/there", "/", n});
  RememberRun({a, "/", 700});
  EXPECT_THAT(Paths(), ElementsAre(a));
  EXPECT_LT(std::filesystem::file_size(RecentRunsPath()), 501 * 100u);
}

TEST_F(RecentRunsTest, AFileThatGrewBeyondItsLimitIsTrimmedAndTheNewestAreKept) {
  const std::string a = MakeRun("a"), b = MakeRun("b");
  RememberRun({a, "/", 1});
  std::ofstream file(RecentRunsPath(), std::ios::app);
  for (int i = 0; i < 100; ++i) file << std::string(50'000, 'x') << "\n";  // an editor's, a crashed disk's
  file.close();
  RememberRun({b, "/", 2});
  EXPECT_LT(std::filesystem::file_size(RecentRunsPath()), 3u << 20);
  EXPECT_THAT(Paths(), ElementsAre(b)) << "what came before it is older than what was kept";
  RememberRun({a, "/", 3});
  EXPECT_THAT(Paths(), ElementsAre(b, a));
  std::ofstream(RecentRunsPath()) << std::string(6u << 20, 'x');  // not even a line
  RememberRun({a, "/", 4});
  RememberRun({b, "/", 5});
  EXPECT_THAT(Paths(), ElementsAre(a, b));
}

TEST_F(RecentRunsTest, OfTwoWritersAtOnceNoneLosesALine) {
  constexpr int kWriters = 4, kRuns = 60;
  std::vector<std::string> mine;
  for (int n = 0; n < kWriters * kRuns; ++n) mine.push_back(MakeRun("run-" + std::to_string(n)));
  RememberRun({"/not/there", "/", 0});
  std::ofstream(RecentRunsPath(), std::ios::app) << [] {
    std::string lines;
    for (int n = 0; n < 470; ++n) lines += "{}\n";
    return lines;
  }();
  std::vector<pid_t> writers;
  for (int w = 0; w < kWriters; ++w) {
    writers.push_back(::fork());
    if (writers.back() != 0) continue;
    for (int n = 0; n < kRuns; ++n) {
      const int run = w * kRuns + n;
      RememberRun({mine[static_cast<size_t>(run)], "/", 1000 + run});
    }
    ::_exit(0);
  }
  for (const pid_t writer : writers) ::waitpid(writer, nullptr, 0);
  EXPECT_THAT(Paths(), testing::UnorderedElementsAreArray(mine)) << "trimmed once meanwhile";
}

TEST_F(RecentRunsTest, WithoutAPlaceForItNothingIsRemembered) {
  std::ofstream(root_ + "/file") << "x";
  ::setenv("XDG_STATE_HOME", (root_ + "/file").c_str(), 1);
  RememberRun({MakeRun("a"), "/", 1});
  EXPECT_THAT(Paths(), ElementsAre());
}

}  // namespace
}  // namespace tdbg::jobs
