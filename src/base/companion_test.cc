#include "base/companion.h"

#include <gtest/gtest.h>

namespace tdbg::base {
namespace {

TEST(CompanionTest, AnAnswerIsATextOrAnErrorAndAnythingElseIsNone) {
  EXPECT_EQ(**ParseAnswer("ok"), "");
  EXPECT_EQ(**ParseAnswer("ok two words"), "two words");
  const Status refused = ParseAnswer("error 2 no such run")->status();
  EXPECT_EQ(refused.code(), static_cast<Code>(2));
  EXPECT_EQ(refused.message(), "no such run");
  for (const char* const line :
       {"", "okay", "error", "error 2", "error x y", "error 0 y", "error 99 y", "killed"})
    EXPECT_FALSE(ParseAnswer(line)) << line;
}

}  // namespace
}  // namespace tdbg::base
