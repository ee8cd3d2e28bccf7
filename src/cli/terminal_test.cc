#include "cli/terminal.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tdbg::cli {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(Sparkline, RisesFromTheLowestBlockToTheHighest) {
  EXPECT_EQ(Sparkline({0, 1, 2, 3, 4, 5, 6, 7}, 80), "▁▂▃▄▅▆▇█");
  EXPECT_EQ(Sparkline({7, 0}, 80), "█▁");
}

TEST(Sparkline, FitsByAveragingStretches) {
  EXPECT_EQ(Sparkline({0, 0, 1, 1, 2, 2, 3, 3}, 4), "▁▃▆█");
  EXPECT_EQ(DisplayWidth(Sparkline(std::vector<double>(1000, 1.0), 17)), 17);
}

TEST(Sparkline, ShowsWhatIsNoNumberAndSurvivesExtremes) {
  EXPECT_EQ(Sparkline({1, std::nan(""), 2}, 80), "▁×█");
  EXPECT_EQ(Sparkline({kInfinity, kInfinity}, 80), "××");
  EXPECT_EQ(Sparkline({1, 1, 1, kInfinity}, 2), "▄×");
  const double huge = std::numeric_limits<double>::max();
  EXPECT_EQ(Sparkline({-huge, 0, huge}, 80), "▁▅█");
  EXPECT_EQ(Sparkline({5, 5, 5}, 80), "▄▄▄");
  EXPECT_EQ(Sparkline({}, 80), "");
  EXPECT_EQ(Sparkline({1}, 0), "");
}

TEST(Sparkline, IsPlainWhereTheTerminalIs) {
  EXPECT_EQ(Sparkline({0, 1, 2, 3, 4, 5, 6, 7, std::nan("")}, 80, /*ascii=*/true), "_.:-=+*#x");
}

TEST(Text, IsCutAtCodePoints) {
  EXPECT_EQ(Fit("größe", 5), "größe");
  EXPECT_EQ(Fit("größer", 4), "grö…");
  EXPECT_EQ(Fit("anything", 0), "anything");
}

TEST(Text, IsBrokenAtBlanks) {
  EXPECT_EQ(Wrapped("one two three", 4, 11), "one two\n    three");
  EXPECT_EQ(Wrapped("one two", 4, 11), "one two");
  EXPECT_EQ(Wrapped("größe größer", 2, 8), "größe\n  größer");
  EXPECT_EQ(Wrapped("anythingthatislong x", 2, 8), "anythingthatislong\n  x");
  EXPECT_EQ(Wrapped("a\nbc d", 2, 5), "a\n  bc\n  d");
  EXPECT_EQ(Wrapped("step 5  mean", 2, 80), "step 5  mean");
  EXPECT_EQ(Wrapped("", 2, 80), "");
}

TEST(Text, CannotSteerTheTerminal) {
  EXPECT_EQ(Printable("a\x1b[2Jb\n\x7f"), "a\\x1b[2Jb\\x0a\\x7f");
  EXPECT_EQ(Printable("größe/ \xff"), "größe/ \xEF\xBF\xBD");
}

TEST(Table, AlignsByWhatIsSeenAndCutsOnlyOnATerminal) {
  Table table({"NAME", "N"});
  table.AlignRight(1);
  table.Add({"größe", "5"});
  table.Add({"x", "12345"});
  Terminal terminal;
  terminal.columns = 0;
  EXPECT_EQ(table.Format(terminal), "NAME       N\ngröße      5\nx      12345\n");
  terminal.columns = 8;
  EXPECT_EQ(table.Format(terminal), "NAME   …\ngröße  …\nx      …\n");
}

TEST(Table, BreaksAColumnThatIsText) {
  Table table({"NAME", "SEES"});
  table.WrapLast();
  table.Add({"x", std::string(60, 'a') + " " + std::string(60, 'b')});
  Terminal terminal;
  terminal.columns = 0;
  EXPECT_EQ(table.Format(terminal),
            "NAME  SEES\nx     " + std::string(60, 'a') + "\n      " + std::string(60, 'b') + "\n");
}

TEST(Paint, IsSilentWithoutColour) {
  Terminal terminal;
  EXPECT_EQ(Paint(terminal, Colour::kRed, "x"), "x");
  terminal.colour = true;
  EXPECT_EQ(Paint(terminal, Colour::kRed, "x"), "\x1b[31mx\x1b[0m");
}

}  // namespace
}  // namespace tdbg::cli
