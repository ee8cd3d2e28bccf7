#include "base/check.h"

#include <gtest/gtest.h>

namespace tdbg::base {
namespace {

TEST(CheckTest, BrokenInvariantEndsTheProcessAndNamesItself) {
  EXPECT_DEATH(TDBG_CHECK(1 + 1 == 3), "1 \\+ 1 == 3 does not hold .*check_test.cc");
}

TEST(CheckTest, ConditionIsEvaluatedOnce) {
  int calls = 0;
  TDBG_CHECK(++calls == 1);
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace tdbg::base
