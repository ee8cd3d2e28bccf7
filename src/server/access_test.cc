#include "server/access.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "server/target.h"

namespace tdbg::server {
namespace {

TEST(AccessTest, OnlyThisMachinesNamesAreItsHost) {
  for (const char* good : {"127.0.0.1", "127.0.0.1:1", "localhost", "LocalHost:65535", "[::1]", "[::1]:80"})
    EXPECT_TRUE(IsLoopbackHost(good)) << good;
  for (const char* bad :
       {"", ":80", "evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "evil@127.0.0.1",
        "127.0.0.1@evil", "127.0.0.1:", "127.0.0.1:80x", "127.0.0.1:999999", "localhost ", "[::1]x",
        "0.0.0.0", "127.0.0.1:80:80", "[::1", "localhost:80/x"}) {
    EXPECT_FALSE(IsLoopbackHost(bad)) << bad;
  }
}

TEST(AccessTest, OnlyItsOwnPageMayAsk) {
  EXPECT_TRUE(IsOwnOrigin("", "localhost:80", ""));
  EXPECT_TRUE(IsOwnOrigin("http://localhost:80", "localhost:80", "same-origin"));
  EXPECT_TRUE(IsOwnOrigin("", "localhost:80", "none"));
  EXPECT_FALSE(IsOwnOrigin("http://localhost:81", "localhost:80", ""));
  EXPECT_FALSE(IsOwnOrigin("null", "localhost:80", ""));
  EXPECT_FALSE(IsOwnOrigin("", "localhost:80", "cross-site"));
  EXPECT_FALSE(IsOwnOrigin("", "localhost:80", "same-site"));
}

TEST(AccessTest, TokensAreUnlikeEachOther) {
  std::set<std::string> tokens;
  for (int i = 0; i < 1000; ++i) tokens.insert(RandomToken());
  EXPECT_EQ(tokens.size(), 1000u);
  const std::string token = RandomToken();
  EXPECT_EQ(token.size(), 32u);
  EXPECT_TRUE(SameToken(token, token));
  for (const std::string& wrong : {token + "0", token.substr(1), std::string(), token.substr(0, 31) + "x"})
    EXPECT_FALSE(SameToken(wrong, token)) << wrong;
}

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
