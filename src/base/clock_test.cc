#include "base/clock.h"

#include <gtest/gtest.h>

#include <string>

namespace tdbg::base {
namespace {

std::string Utc(int64_t nanos) {
  char buffer[32];
  return FormatUtc(nanos, buffer);
}

TEST(ClockTest, UtcIsPrintedToTheMillisecond) {
  EXPECT_EQ(Utc(1'795'274'403'123'999'999), "2026-11-21T15:20:03.123Z");
  EXPECT_EQ(Utc(0), "1970-01-01T00:00:00.000Z");
}

// Truncation towards zero would print 1970-01-01T00:00:00.000Z, a moment in the future of this one.
TEST(ClockTest, MomentsBeforeTheEpochRoundIntoThePast) {
  EXPECT_EQ(Utc(-1), "1969-12-31T23:59:59.999Z");
  EXPECT_EQ(Utc(-1'000'000'000), "1969-12-31T23:59:59.000Z");
}

TEST(ClockTest, ExtremesFitTheBuffer) {
  EXPECT_EQ(Utc(INT64_MAX), "2262-04-11T23:47:16.854Z");
  EXPECT_EQ(Utc(INT64_MIN), "1677-09-21T00:12:43.145Z");
}

TEST(ClockTest, MachineClockIsPlausibleAndNeverGoesBack) {
  const Clock& clock = SystemClock();
  EXPECT_GT(clock.WallNanos(), 1'600'000'000'000'000'000);
  int64_t before = clock.MonotonicNanos();
  for (int i = 0; i < 1000; ++i) {
    const int64_t now = clock.MonotonicNanos();
    ASSERT_GE(now, before);
    before = now;
  }
}

TEST(ClockTest, ManualClockMovesOnlyWhenTold) {
  ManualClock clock;
  const int64_t wall = clock.WallNanos();
  EXPECT_EQ(clock.WallNanos(), wall);
  clock.Advance(5);
  EXPECT_EQ(clock.WallNanos(), wall + 5);
  EXPECT_EQ(clock.MonotonicNanos(), 5);
}

}  // namespace
}  // namespace tdbg::base
