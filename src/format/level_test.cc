#include "format/level.h"

#include <gtest/gtest.h>

#include <string>

#include "base/testing.h"
#include "format/level_header.h"
#include "format/marks.h"
#include "format/segment.h"

namespace tdbg {
extern const char* const kDocsDirectory;  // of this clone (tdbg_path in cmake/rooms.cmake)
}

namespace tdbg::format {
namespace {

TEST(Level, ColumnsAreInTheDocumentAsTheyAreHere) {
  const std::string document = base::Slurp(std::string(kDocsDirectory) + "/format.md");
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

constexpr const char* kFileName = "1-00000000000000000000-00000000000000000015.safetensors";

std::string FileOf(const std::vector<TensorDef>& tensors, const std::string& run) {
  LevelContent content;
  content.meta.run_id = run;
  content.meta.worker = "worker_0";
  content.meta.level = 1;
  content.meta.tensors = tensors;
  return EncodeLevel(content);
}

TensorDef Named(TensorId id, std::string name) {
  TensorDef def;
  def.id = id;
  def.name = std::move(name);
  def.dtype = DType::kFloat32;
  def.shape = {4, 4};
  return def;
}

std::vector<std::string> NamesIn(LevelHeaders* headers, const std::string& file) {
  const auto read = headers->Decode(std::as_bytes(std::span(file)), file.size(), kFileName);
  if (!read.ok()) return {read.status().ToString()};
  EXPECT_TRUE(read->meta.tensors.empty());
  std::vector<std::string> names = {read->meta.run_id};
  for (const TensorDef& def : *read->tensors) names.push_back(def.name);
  return names;
}

// Names that look like what lies around the definitions.
const std::vector<std::string> kOddNames = {R"(a],"worker":"b"}]})",
                                            R"("tensors":[)",
                                            R"(\"tensors\":[{}])",
                                            "line\nand\ttab",
                                            R"(\)",
                                            R"(\\")",
                                            "\x01\x1f",
                                            "\u2028 \u00fc \U0001F600",
                                            "]}[{",
                                            "",
                                            ","};

TEST(LevelHeaders, WhatIsKnownIsNotParsedOnceMoreWhateverNamesAreLike) {
  std::vector<TensorDef> tensors;
  for (const std::string& name : kOddNames) tensors.push_back(Named(tensors.size(), name));
  LevelHeaders headers;
  for (int i = 0; i < 3; ++i) {
    std::vector<std::string> expected = {"run " + std::to_string(i)};
    expected.insert(expected.end(), kOddNames.begin(), kOddNames.end());
    EXPECT_EQ(NamesIn(&headers, FileOf(tensors, expected.front())), expected);
  }
  EXPECT_EQ(headers.parsed(), tensors.size());
}

TEST(LevelHeaders, TheBeginningOfWhatIsKnownIsSomethingElse) {
  LevelHeaders headers;
  const std::vector<TensorDef> two = {Named(0, "a"), Named(1, "b")}, one = {Named(0, "a")}, none;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(NamesIn(&headers, FileOf(two, "r")), (std::vector<std::string>{"r", "a", "b"}));
    EXPECT_EQ(NamesIn(&headers, FileOf(one, "r")), (std::vector<std::string>{"r", "a"}));
    EXPECT_EQ(NamesIn(&headers, FileOf(none, "r")), (std::vector<std::string>{"r"}));
  }
  EXPECT_EQ(headers.parsed(), 3u);
}

TEST(LevelHeaders, OnlySoManyTextsAreRememberedTheLatestOnes) {
  LevelHeaders headers;
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 20; ++i) NamesIn(&headers, FileOf({Named(0, std::to_string(i))}, "r"));
  }
  EXPECT_EQ(headers.parsed(), 40u);
  NamesIn(&headers, FileOf({Named(0, "19")}, "r"));
  EXPECT_EQ(headers.parsed(), 40u);
}

}  // namespace
}  // namespace tdbg::format
