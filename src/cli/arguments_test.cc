#include "cli/arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tdbg::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

plan::RuleConfig Rule(const std::vector<std::string>& words) {
  const Arguments arguments = SplitArguments(words);
  for (size_t i = 0; i < arguments.ours.size(); ++i) {
    std::string text;
    if (arguments.ours[i] == "--rule")
      text = arguments.ours[i + 1];
    else if (arguments.ours[i].starts_with("--rule="))
      text = arguments.ours[i].substr(7);
    else
      continue;
    const auto rule = ParseRuleFlag(text);
    EXPECT_TRUE(rule.ok()) << rule.status().message();
    return rule.ok() ? *rule : plan::RuleConfig();
  }
  ADD_FAILURE() << "no --rule";
  return {};
}

TEST(SplitArguments, WhatFollowsTheDashesIsTheCommandWhateverItLooksLike) {
  const std::vector<std::string> words = {"--dir", "d", "--", "python", "--rule", "x", "--", "y=1"};
  const Arguments arguments = SplitArguments(words);
  EXPECT_THAT(arguments.ours, ElementsAre("--dir", "d"));
  EXPECT_TRUE(arguments.has_command);
  EXPECT_THAT(arguments.command, ElementsAre("python", "--rule", "x", "--", "y=1"));
}

TEST(SplitArguments, ParametersNeverSwallowWhatFollowsThem) {
  const std::vector<std::string> words = {"--rule", "r", "a=1", "b=2", "RUN", "--json"};
  const Arguments arguments = SplitArguments(words);
  ASSERT_EQ(arguments.ours.size(), 4u);
  EXPECT_EQ(arguments.ours[2], "RUN");
}

TEST(RuleFlag, BothSpellingsSayTheSame) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"--rule", "vanishing_gradient", "threshold=1e-6", "name=x"},
        std::vector<std::string>{"--rule", "vanishing_gradient:threshold=1e-6,name=x"},
        std::vector<std::string>{"--rule=vanishing_gradient:threshold=1e-6", "name=x"}}) {
    const plan::RuleConfig rule = Rule(words);
    EXPECT_EQ(rule.rule, "vanishing_gradient");
    EXPECT_EQ(rule.name, "x");
    EXPECT_THAT(rule.parameters, ElementsAre(Pair("threshold", "1e-6")));
  }
}

TEST(RuleFlag, CommasOfARegexAreItsOwn) {
  const plan::RuleConfig rule = Rule({"--rule", "exploding_tensor:tensor_regex=^a{1,3}$,.*b=,only_nan=True"});
  EXPECT_THAT(rule.parameters, ElementsAre(Pair("only_nan", "True"), Pair("tensor_regex", "^a{1,3}$,.*b=")));
}

TEST(RuleFlag, ActionsOfOneRule) {
  EXPECT_THAT(Rule({"--rule", "r", "on_issue=stop", "on_issue=exec:echo a=b"}).on_issue,
              ElementsAre("stop", "exec:echo a=b"));
}

TEST(RuleFlag, MistakesSayWhatToWrite) {
  EXPECT_THAT(ParseRuleFlag("r:threshold").status().message(), HasSubstr("key=value"));
  EXPECT_THAT(ParseRuleFlag("r:a=1,a=2").status().message(), HasSubstr("twice"));
  EXPECT_THAT(ParseRuleFlag(":a=1").status().message(), HasSubstr("tdbg rules"));
}

}  // namespace
}  // namespace tdbg::cli
