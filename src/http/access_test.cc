#include "http/access.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace tdbg::http {
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

}  // namespace
}  // namespace tdbg::http
