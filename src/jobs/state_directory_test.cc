#include "jobs/state_directory.h"

#include <gtest/gtest.h>
#include <pwd.h>
#include <stdlib.h>
#include <unistd.h>

#include <optional>

#include "jobs/recent_runs.h"

namespace tdbg::jobs {
namespace {

/// Sets a variable, or with null unsets it, and puts back what was there.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* before = ::getenv(name)) before_ = before;
    value != nullptr ? ::setenv(name, value, 1) : ::unsetenv(name);
  }
  ~Variable() { before_ ? ::setenv(name_, before_->c_str(), 1) : ::unsetenv(name_); }

 private:
  const char* const name_;
  std::optional<std::string> before_;
};

TEST(StateDirectoryTest, IsWhereTheVariablesSay) {
  const Variable home("HOME", "/mine");
  {
    const Variable state("XDG_STATE_HOME", "/state");
    EXPECT_EQ(StateDirectory(), "/state/tdbg");
  }
  for (const char* none : {static_cast<const char*>(nullptr), "", "relative"}) {
    const Variable state("XDG_STATE_HOME", none);
    EXPECT_EQ(StateDirectory(), "/mine/.local/state/tdbg");
  }
}

TEST(StateDirectoryTest, WithoutVariablesItIsInTheHomeOfThePasswordFile) {
  const passwd* const entry = ::getpwuid(::geteuid());
  const std::string home = entry != nullptr && entry->pw_dir[0] == '/' ? entry->pw_dir : "";
  const std::string expected =
      home.empty() ? "" : home + (home.ends_with('/') ? "" : "/") + ".local/state/tdbg";
  const Variable state("XDG_STATE_HOME", nullptr);
  for (const char* none : {static_cast<const char*>(nullptr), "", "relative"}) {
    const Variable variable("HOME", none);
    EXPECT_EQ(StateDirectory(), expected);
    EXPECT_EQ(RecentRunsPath(), expected.empty() ? "" : expected + "/recent-runs.jsonl")
        << "as every user of it";
  }
}

}  // namespace
}  // namespace tdbg::jobs
