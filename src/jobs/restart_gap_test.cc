#include "jobs/restart_gap.h"

#include <gtest/gtest.h>

#include <csignal>

#include "base/clock.h"
#include "base/testing.h"
#include "jobs/interrupts.h"

namespace tdbg::jobs {
namespace {

class RestartGapTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { BlockForwardedSignals(); }
  bool Wait(int64_t millis, const std::string& asked = "", int64_t ends_nanos = -1) {
    return WaitForRestart(millis, control_, [&] { return asked; }, ends_nanos, &result_);
  }

  base::ScratchDirectory directory_;
  ControlFollower control_{directory_.path()};
  JobResult result_;
};

TEST_F(RestartGapTest, ItGrowsWhileACommandFailsAtOnce) {
  RestartGap gap;
  EXPECT_EQ(gap.Millis(0), 100);
  EXPECT_EQ(gap.Millis(0), 200);
  for (int i = 0; i < 20; ++i) gap.Millis(0);
  EXPECT_EQ(gap.Millis(0), 60'000);
  EXPECT_EQ(gap.Millis(3'600'000'000'000), 100) << "it ran for an hour";
  EXPECT_EQ(gap.Millis(0), 200);
}

TEST_F(RestartGapTest, WhoAsksInItForTheEndGetsIt) {
  EXPECT_TRUE(Wait(1));
  EXPECT_EQ(result_.stop, JobStop::kNone);
  EXPECT_FALSE(Wait(60'000, "a rule"));
  EXPECT_EQ(result_.stop, JobStop::kRequested);
  EXPECT_EQ(result_.stopped_by, "a rule");
  EXPECT_FALSE(Wait(60'000, "", base::SystemClock().MonotonicNanos()));
  EXPECT_EQ(result_.stop, JobStop::kMaxRuntime);
  ::raise(SIGUSR1);
  EXPECT_TRUE(Wait(1)) << "a signal that asks for no end";
  ::raise(SIGTERM);
  EXPECT_FALSE(Wait(60'000));
  EXPECT_EQ(result_.stop, JobStop::kSignal);
  EXPECT_EQ(result_.signal_number, SIGTERM);
}

}  // namespace
}  // namespace tdbg::jobs
