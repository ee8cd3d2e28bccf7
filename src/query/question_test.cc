#include "query/question.h"

#include <gtest/gtest.h>

#include <string>

namespace tdbg::query {
namespace {

TEST(QuestionTest, RowsAreIdsAndRangesOfThem) {
  const auto rows = ParseRows("3;0-2,5;4", 6, 10);
  ASSERT_TRUE(rows.ok());
  EXPECT_EQ(*rows, (std::vector<std::vector<uint32_t>>{{3}, {0, 1, 2, 5}, {4}}));
  EXPECT_TRUE(ParseRows("", 6, 10)->empty());
  for (const char* bad : {"6", "-1", "2-1", "0-6", "a", "1-", "-", "1,,2", "99999999999999999999",
                          "0-4294967295", "0--1", "1 2"}) {
    EXPECT_EQ(ParseRows(bad, 6, 10).status().code(), Code::kInvalidArgument) << bad;
  }
}

TEST(QuestionTest, RowsCannotBeMadeToHoldMoreThanMemory) {
  EXPECT_FALSE(ParseRows("1;1;1", 6, 2).ok());
  std::string much;
  for (int i = 0; i < 3000; ++i) much += "0-99999,";
  EXPECT_EQ(ParseRows(much, 100'000, 4096).status().message(), "rows: too many members");
}

TEST(QuestionTest, ParametersAreCheckedAndNeverIgnored) {
  Question question{"matrix", {{"columns", "12"}, {"begin", "x"}}};
  EXPECT_EQ(*question.Integer("columns", 5, 1, 100), 12);
  EXPECT_EQ(*question.Integer("end", 5, 1, 100), 5);
  EXPECT_FALSE(question.Integer("columns", 5, 1, 11).ok());
  EXPECT_FALSE(question.Integer("begin", 5, 1, 100).ok());
  EXPECT_TRUE(question.CheckKeys({"columns", "begin"}).ok());
  EXPECT_EQ(question.CheckKeys({"columns"}).message(), "matrix: no parameter 'begin'; there are: columns");
}

}  // namespace
}  // namespace tdbg::query
