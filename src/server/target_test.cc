#include "server/target.h"

#include <gtest/gtest.h>

namespace tdbg::server {
namespace {

TEST(TargetTest, APathHasATokenAndAQuestion) {
  const auto target = ParseTarget("/abc/api/v1/matrix?run=a%2Fb&rows=0-3%3B4&x=+");
  ASSERT_TRUE(target);
  EXPECT_EQ(target->token, "abc");
  EXPECT_EQ(target->question.name, "matrix");
  EXPECT_EQ(target->question.Text("run"), "a/b");
  EXPECT_EQ(target->question.Text("rows"), "0-3;4");
  EXPECT_EQ(target->question.Text("x"), " ");
  EXPECT_EQ(ParseTarget("/abc/")->path, "");
  EXPECT_EQ(ParseTarget("/abc")->path, "/");
  for (const char* bad : {"", "abc", "*", "http://x/", "/a/b?x=%", "/a/b?x=%f", "/a/b?x=%zz", "/a/b?x=%ff",
                          "/a/b?x=%00", "/a/b?x=1&x=2"})
    EXPECT_FALSE(ParseTarget(bad)) << bad;
}

}  // namespace
}  // namespace tdbg::server
