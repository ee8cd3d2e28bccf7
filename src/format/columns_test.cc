#include "format/columns.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "base/testing.h"
#include "format/segment.h"

namespace tdbg {
extern const char* const kDocsDirectory;  // of this clone (tdbg_path in cmake/rooms.cmake)
}

namespace tdbg::format {
namespace {

std::string_view MergeText(ColumnMerge merge) {
  switch (merge) {
    case ColumnMerge::kEqual:
      return "where equal";
    case ColumnMerge::kLeast:
      return "least";
    case ColumnMerge::kGreatest:
      return "greatest";
    case ColumnMerge::kSum:
      return "sum";
    case ColumnMerge::kBits:
      return "bits of any";
    case ColumnMerge::kMoment:
      return "pairwise formula";
    case ColumnMerge::kNorm:
      return "root of the sum of squares";
    case ColumnMerge::kHistogram:
      return "counts by bucket";
  }
  return "";
}

std::string_view MissingText(ColumnNeed need) {
  switch (need) {
    case ColumnNeed::kKey:
      return "key";
    case ColumnNeed::kRequired:
      return "no";
    case ColumnNeed::kOptional:
      return "yes";
  }
  return "";
}

/// The table of docs/format.md.
std::string Table(std::string_view prefix, std::span<const Column> columns, bool merge) {
  std::string text = "| `" + std::string(prefix) + "` | type | |" + (merge ? " merged |" : "") +
                     " may be missing |\n|---|---|---|---|" + (merge ? "---|" : "") + "\n";
  for (const Column& column : columns) {
    text += "| `" + std::string(column.name) + "` | " + std::string(SegmentDType(column.dtype)) + " | " +
            std::string(column.says) + " | ";
    if (merge) text += std::string(MergeText(column.merge)) + " | ";
    text += std::string(MissingText(column.need)) + " |\n";
  }
  return text;
}

TEST(Columns, AreInTheDocumentAsTheyAreHere) {
  const std::string document = base::Slurp(std::string(kDocsDirectory) + "/format.md");
  for (const std::string& table :
       {Table("step/", kStepColumns, false), Table("summary/", kSummaryColumns, true),
        Table("scalar/", kScalarColumns, false)}) {
    EXPECT_NE(document.find("\n\n" + table + "\n"), std::string::npos)
        << "docs/format.md lacks this table:\n\n"
        << table;
  }
}

TEST(Columns, OfARowAreItsFieldsEachOnce) {
  const std::pair<std::span<const Column>, size_t> rows[] = {{kStepColumns, sizeof(Commit)},
                                                             {kSummaryColumns, sizeof(SummaryRow)},
                                                             {kScalarColumns, sizeof(ScalarRow)}};
  for (const auto& [columns, row_bytes] : rows) {
    std::set<std::string_view> keys;
    std::set<size_t> taken;  // bytes of the row
    for (const Column& column : columns) {
      EXPECT_TRUE(keys.insert(column.key).second) << column.key;
      EXPECT_TRUE(column.key.ends_with("/" + std::string(column.name)));
      EXPECT_NE(ItemSize(column.dtype), 0u) << column.key;
      EXPECT_FALSE(column.says.empty()) << column.key;
      if (column.field.empty()) continue;
      for (size_t i = 0; i < ItemSize(column.field_dtype); ++i) {
        EXPECT_TRUE(taken.insert(column.field_offset + i).second)
            << column.key << " lies where another field does";
        EXPECT_LT(column.field_offset + i, row_bytes);
      }
    }
  }
}

TEST(Columns, ASummaryIsTheSameAsARowAndBack) {
  Summary summary;
  uint64_t next = 3;
  ForEachStatistic(
      [&next](auto& number) { number = static_cast<std::remove_reference_t<decltype(number)>>(next++); },
      summary);
  EXPECT_EQ(summary.count, 3u);
  EXPECT_EQ(summary.abs_max, 17);
  const SummaryRow row = ToRow(7, {2, Point::kBeforeClip}, summary);
  EXPECT_EQ(row.tensor, 7u);
  EXPECT_EQ(row.sub, 2);
  EXPECT_EQ(row.l2, summary.l2);
  const Summary back = FromRow(row);
  ForEachStatistic([](auto a, auto b) { EXPECT_EQ(a, b); }, summary, back);
}

TEST(Columns, MasksAreThoseOfTheList) {
  EXPECT_EQ(kKeyColumns & kStatisticColumns, 0u);
  EXPECT_EQ(kStatisticColumns & ColumnBit(SummaryColumn::k_m3), ColumnBit(SummaryColumn::k_m3));
  EXPECT_EQ(ColumnOf(SummaryColumn::k_m3).name, "m3");
  EXPECT_EQ(kSummaryColumns.size(), static_cast<size_t>(SummaryColumn::kCount));
}

}  // namespace
}  // namespace tdbg::format
