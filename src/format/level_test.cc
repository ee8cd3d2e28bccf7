#include "format/level.h"

#include <gtest/gtest.h>

#include <string>

#include "base/testing.h"
#include "format/marks.h"
#include "format/segment.h"

namespace tdbg::format {
namespace {

TEST(Level, ColumnsAreInTheDocumentAsTheyAreHere) {
  const std::string document = base::Slurp(TDBG_DOCS_DIRECTORY "/format.md");
  const auto row = [](std::string_view name, DType dtype, std::string_view says) {
    return "| `" + std::string(name) + "` | " + std::string(SegmentDType(dtype)) + " | " + std::string(says) +
           " |\n";
  };
  std::string groups = "| `group/` | type | |\n|---|---|---|\n",
              over = "| `over/` | type | |\n|---|---|---|\n",
              drawn = "| `drawn/` | of each row of level 0 |\n|---|---|\n";
#define TDBG_COLUMN(name, type, says) groups += row(#name, DTypeOf<type>(), says);
  TDBG_GROUP_COLUMNS(TDBG_COLUMN)
#undef TDBG_COLUMN
#define TDBG_COLUMN(name, type, says) over += row(#name, DTypeOf<type>(), says);
  TDBG_OVER_COLUMNS(TDBG_COLUMN)
#undef TDBG_COLUMN
#define TDBG_DRAWN(name, says) drawn += "| `" #name "` | " says " |\n";
  TDBG_DRAWN_STATISTICS(TDBG_DRAWN)
#undef TDBG_DRAWN
  for (const std::string& table : {groups, over, drawn}) {
    EXPECT_NE(document.find("\n\n" + table + "\n"), std::string::npos)
        << "docs/format.md lacks this table:\n\n"
        << table;
  }
}

TEST(Level, OnlyTheOneSpellingOfAFileNameIsAccepted) {
  const LevelFileName name{3, 17, 4711};
  EXPECT_EQ(name.ToString(), "3-00000000000000000017-00000000000000004711.safetensors");
  const auto parsed = LevelFileName::Parse(name.ToString());
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->level, 3u);
  EXPECT_EQ(parsed->first_step, 17);
  EXPECT_EQ(parsed->last_step, 4711);
  for (const char* const other : {"", "lock", "0-00000000000000000017-00000000000000004711.safetensors",
                                  ".tmp-3-00000000000000000017-00000000000000004711.safetensors",
                                  "3-00000000000000004711-00000000000000000017.safetensors",
                                  "3-0000000000000000001x-00000000000000004711.safetensors",
                                  "3-99999999999999999999-99999999999999999999.safetensors",
                                  "00000000000000000017-00000000000000004711.safetensors"}) {
    EXPECT_FALSE(LevelFileName::Parse(other)) << other;
  }
}

TEST(Level, WhatIsNotFiniteHasNoPartInADrawnStatistic) {
  Summary row;
  row.count = 4;
  row.nan_count = 1;
  row.pos_inf_count = 1;
  row.zero_count = 1;
  row.l1 = 3;
  row.variance = 9;
  EXPECT_EQ(DrawnValue(DrawnStatistic::k_mean_abs, row), 1.5);
  EXPECT_EQ(DrawnValue(DrawnStatistic::k_std, row), 3);
  EXPECT_EQ(DrawnValue(DrawnStatistic::k_zero_share, row), 0.25);
  EXPECT_EQ(DrawnValue(DrawnStatistic::k_nonfinite_share, row), 0.5);
}

TEST(Level, AMarkIsReadBackAndALineThatIsNoneIsSkipped) {
  const auto marks = ParseMarks(Mark{10, 20, 5}.ToJson() + "\nnonsense\n{\"first\":9,\"last\":3}\n[1]\n" +
                                Mark{7, 7, 6}.ToJson() + "\n{\"first\":1,\"last\":2}");
  ASSERT_EQ(marks.size(), 2u);
  EXPECT_EQ(marks[0].first, 10);
  EXPECT_EQ(marks[0].last, 20);
  EXPECT_EQ(marks[1].first, 7);
}

}  // namespace
}  // namespace tdbg::format
