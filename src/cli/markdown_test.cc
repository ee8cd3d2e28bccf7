#include "cli/markdown.h"

#include <gtest/gtest.h>

#include "rules/pages.h"
#include "rules/rule.h"

namespace tdbg::cli {
namespace {

Terminal Wide(int columns, bool colour = false) {
  Terminal terminal;
  terminal.columns = columns;
  terminal.colour = colour;
  return terminal;
}

TEST(Markdown, ParagraphsAreFilledAndMarksAreGone) {
  EXPECT_EQ(FormatMarkdown("# AllZero (`all_zero`)\n\n**Sees** tensors, all\nof `them` here.\n", Wide(16)),
            "AllZero (all_zero)\n\nSees tensors,\nall of them\nhere.\n");
  EXPECT_EQ(FormatMarkdown("- one, and\n  more\n- two\n", Wide(9)), "- one,\n  and\n  more\n- two\n");
  EXPECT_EQ(FormatMarkdown("see [the page](x.md), ![a run](run.svg)\n", Wide(80)),
            "see the page, [picture: a run (run.svg)]\n");
  EXPECT_EQ(FormatMarkdown("a ** b ` c [d\n", Wide(80)), "a ** b ` c [d\n")
      << "marks without an end are text";
}

TEST(Markdown, CodeKeepsItsLinesAndIsNotFilled) {
  EXPECT_EQ(FormatMarkdown("Hit if\n\n    a  <  b *\n\nthen\n", Wide(8)),
            "Hit if\n\n    a  <  b *\n\nthen\n");
  EXPECT_EQ(FormatMarkdown("```\nx  y\n```\n", Wide(8)), "    x  y\n");
}

TEST(Markdown, TablesAreAlignedAndTheirLastColumnIsFilled) {
  EXPECT_EQ(FormatMarkdown(
                "| name | default | meaning |\n|---|---|---|\n| `a\\|b` | 1 | one two three four five six "
                "seven eight |\n| c | | |\n",
                Wide(47)),
            "name  default  meaning\n"
            "a|b   1        one two three four five six\n"
            "               seven eight\n"
            "c              \n");
}

TEST(Markdown, ColourGoesByWords) {
  EXPECT_EQ(FormatMarkdown("**a b** c\n", Wide(80, true)), "\033[1ma\033[0m \033[1mb\033[0m c\n");
}

TEST(Markdown, EveryRuleHasAPageThatFits) {
  for (const rules::RuleInfo* info : rules::BuiltinRules().All()) {
    const std::string_view page = rules::RulePage(info->snake_name);
    ASSERT_TRUE(page.starts_with("# " + info->class_name + " (`" + info->snake_name + "`)"))
        << info->class_name;
    const std::string text = FormatMarkdown(page, Wide(100));
    EXPECT_EQ(text.find("**"), std::string::npos) << text;
    for (const rules::ParameterSpec& parameter : info->parameters)
      EXPECT_NE(text.find(parameter.name), std::string::npos) << info->class_name << ": " << parameter.name;
    for (const char* part : {"Sees", "Why it matters.", "When to change it.", "What to do next."})
      EXPECT_NE(text.find(part), std::string::npos) << info->class_name << ": " << part;
  }
}

}  // namespace
}  // namespace tdbg::cli
