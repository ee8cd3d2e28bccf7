#include "jobs/recent_runs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

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

TEST_F(RecentRunsTest, WithoutAPlaceForItNothingIsRemembered) {
  std::ofstream(root_ + "/file") << "x";
  ::setenv("XDG_STATE_HOME", (root_ + "/file").c_str(), 1);
  RememberRun({MakeRun("a"), "/", 1});
  EXPECT_THAT(Paths(), ElementsAre());
}

}  // namespace
}  // namespace tdbg::jobs
