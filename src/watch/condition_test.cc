#include "watch/condition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/testing.h"
#include "watch/breakpoints.h"

namespace tdbg::watch {
namespace {

using testing::HasSubstr;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::string Again(std::string_view text) {
  const auto condition = Condition::Parse(text);
  return condition.ok() ? condition->text() : condition.status().message();
}

TEST(ConditionTest, IsAPatternAStatisticAComparisonAndANumber) {
  EXPECT_EQ(Again("gradient/*.l2 > 100"), "gradient/*.l2 > 100");
  EXPECT_EQ(Again("  gradient/Net_l1.weight.abs_max>=1e-3 "), "gradient/Net_l1.weight.abs_max >= 0.001");
  EXPECT_EQ(Again("*loss*.value < -inf"), "*loss*.value < -inf");
  EXPECT_EQ(Again("a.nan_count != 0"), "a.nan_count != 0");
  EXPECT_EQ(Again("a.l2 > 3 x median"), "a.l2 > 3 x median");
  EXPECT_EQ(Again("a.l2 > 3*median"), "a.l2 > 3 x median");
  EXPECT_EQ(Again("a.l2 <= median"), "a.l2 <= 1 x median");
}

TEST(ConditionTest, SaysWhichPartIsWrongAndWhatIsAccepted) {
  for (const auto& [text, wrong] : {std::pair("", "there is no comparison"),
                                    {"gradient/*.l2", "there is no comparison"},
                                    {"> 5", "'' has no statistic"},
                                    {"loss > 5", "'loss' has no statistic"},
                                    {"loss. > 5", "'loss.' has no statistic"},
                                    {".l2 > 5", "'.l2' has no statistic"},
                                    {"a.l2 = 5", "'=' is no comparison"},
                                    {"a.l2 ! 5", "'!' is no comparison"},
                                    {"a.l2 >", "'' is no number"},
                                    {"a.l2 > b.l2", "'b.l2' is no number"},
                                    {"a.l2 > nan", "'nan' is no number"},
                                    {"a.l2 > 3 median", "'3' is not a number and an x"},
                                    {"a.l2 > x median", "'' is no number"},
                                    {"\xff.l2 > 1", "no text in UTF-8"}}) {
    const auto condition = Condition::Parse(text);
    ASSERT_FALSE(condition.ok()) << text;
    EXPECT_EQ(condition.status().code(), Code::kInvalidArgument) << text;
    EXPECT_THAT(condition.status().message(), HasSubstr(wrong)) << text;
    EXPECT_THAT(condition.status().message(), HasSubstr("PATTERN.STATISTIC > NUMBER")) << text;
  }
}

TEST(ConditionTest, PatternsMatchWholeNamesInBoundedTime) {
  Condition condition;
  const auto matches = [&](const std::string& pattern, const std::string& name) {
    condition.pattern = pattern;
    return condition.Matches(name);
  };
  EXPECT_TRUE(matches("gradient/*", "gradient/Net_l1.weight"));
  EXPECT_FALSE(matches("gradient/*", "a/gradient/Net_l1.weight"));
  EXPECT_TRUE(matches("*.weight", "Net_l1.weight"));
  EXPECT_FALSE(matches("*.weight", "Net_l1.weights"));
  EXPECT_TRUE(matches("Net_l?.*", "Net_l1.bias"));
  EXPECT_TRUE(matches("*", ""));
  EXPECT_FALSE(matches("", "a"));
  EXPECT_FALSE(matches("(.*", "abc"));  // no regular expression
  std::string stars;
  for (int i = 0; i < 200; ++i) stars += "*a";
  EXPECT_FALSE(matches(stars + "b", std::string(2000, 'a')));
}

TEST(ConditionTest, WhatIsNoNumberMeetsNothingButUnequal) {
  Condition condition;
  for (const auto comparison :
       {Condition::Comparison::kGreater, Condition::Comparison::kGreaterEqual, Condition::Comparison::kLess,
        Condition::Comparison::kLessEqual, Condition::Comparison::kEqual}) {
    condition.comparison = comparison;
    EXPECT_FALSE(condition.Holds(kNaN, 1));
  }
  condition.comparison = Condition::Comparison::kNotEqual;
  EXPECT_TRUE(condition.Holds(kNaN, 1));
}

TEST(HistoryTest, TheMedianIsOfFiniteValuesAndOfTheLastOnes) {
  History history;
  for (int i = 0; i < 9; ++i) history.Add(1);
  history.Add(kNaN);
  history.Add(std::numeric_limits<double>::infinity());
  EXPECT_FALSE(history.has_median());
  history.Add(3);
  ASSERT_TRUE(history.has_median());
  EXPECT_EQ(history.Median(), 1);
  for (size_t i = 0; i < History::kMost / 2; ++i) history.Add(5);
  for (size_t i = 0; i < History::kMost / 2; ++i) history.Add(7);
  EXPECT_EQ(history.Median(), 6);
}

TEST(BreakTest, ActsOnTheJobAndOnNothingElse) {
  for (const char* then : {"pause", "pause:30", "blackbox", "stop", "capture", "capture:gradients:5",
                           "capture:gradients+weights", "checkpoint_stop"}) {
    const auto parsed = ParseBreak(std::string("a.l2 > 1 then ") + then);
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    EXPECT_EQ(parsed->second, then);
  }
  EXPECT_EQ(ParseBreak("a.l2 > 1")->second, "pause");
  for (const char* then : {"exec:touch x", "webhook:http://example.com", "email:me@example.com", "halt", "",
                           "pause:0", "pause:soon", "blackbox:1", "capture::5"}) {
    EXPECT_EQ(ParseBreak(std::string("a.l2 > 1 then ") + then).status().code(), Code::kInvalidArgument)
        << then;
  }
  EXPECT_THAT(ParseBreak("a.l2 > 1 then exec:x").status().message(), HasSubstr("accepted: pause[:SECONDS]"));
  EXPECT_THAT(ParseBreak("a.l3 > 1").status().message(), HasSubstr("did you mean"));
}

}  // namespace
}  // namespace tdbg::watch
