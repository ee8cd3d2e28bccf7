#include "cli/live_status.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>

namespace tdbg::cli {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

watch::Progress At(int64_t step) {
  watch::Progress progress;
  progress.global_step = step;
  progress.step = fmt::format("step {}", step);
  progress.steps_seen = step + 1;
  progress.loss = 0.5;
  return progress;
}

TEST(LiveStatus, SaysForHowLongNoStepCame) {
  LiveStatus live;
  EXPECT_EQ(live.Line(kSecond), " tdbg  waiting for the first step");
  live.Update(At(3));
  EXPECT_EQ(live.Line(1 * kSecond).find("no step for"), std::string::npos);
  EXPECT_EQ(live.Line(9 * kSecond).find("no step for"), std::string::npos);
  EXPECT_NE(live.Line(43 * kSecond).find("step 3  no step for 42 s  loss 0.5"), std::string::npos);
  live.Update(At(4));
  EXPECT_EQ(live.Line(44 * kSecond).find("no step for"), std::string::npos);
}

TEST(LiveStatus, SaysThatALossIsNoNumber) {
  LiveStatus live;
  watch::Progress progress = At(3);
  progress.loss = std::numeric_limits<double>::quiet_NaN();
  live.Update(progress);
  EXPECT_NE(live.Line(kSecond).find("  loss NaN  "), std::string::npos);
  progress.loss = -std::numeric_limits<double>::infinity();
  live.Update(progress);
  EXPECT_NE(live.Line(kSecond).find("  loss -inf  "), std::string::npos);
  progress.loss.reset();
  live.Update(progress);
  EXPECT_EQ(live.Line(kSecond).find("loss"), std::string::npos);
}

TEST(FoundLine, FitsATerminalAndIsOneLineElsewhere) {
  watch::Found found;
  for (int i = 0; i < 40; ++i) found.text += i ? " seven77" : "TRAIN step 3:";
  Terminal terminal;
  EXPECT_EQ(FoundLine(found, terminal), "tdbg: ISSUE  " + found.text);
  terminal.is_terminal = true;
  for (const int columns : {60, 90, 300}) {
    terminal.columns = columns;
    const std::string lines = FoundLine(found, terminal);
    EXPECT_TRUE(lines.starts_with("tdbg: ISSUE  TRAIN step 3: seven77"));
    EXPECT_NE(lines.find("\n             seven77"), std::string::npos);
    for (size_t at = 0, end; at < lines.size(); at = end + 1) {
      end = std::min(lines.find('\n', at), lines.size());
      EXPECT_LE(end - at, static_cast<size_t>(std::min(columns, 100)));
    }
  }
}

}  // namespace
}  // namespace tdbg::cli
