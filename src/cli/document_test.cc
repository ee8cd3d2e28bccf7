#include "cli/document.h"

#include <gtest/gtest.h>

namespace tdbg::cli {
namespace {

TEST(Yaml, ValuesKnowTheirLines) {
  const auto document = ParseYaml(
      "# a comment\n"
      "summaries:\n"
      "  every: 5\n"
      "rules:\n"
      "  - rule: VanishingGradient\n"
      "    parameters:\n"
      "      threshold: 1e-6\n"
      "  - loss_not_decreasing\n"
      "collections:\n"
      "  a/b~c: {raw: true}\n",
      "debug.yaml");
  ASSERT_TRUE(document.ok()) << document.status().message();
  const plan::Source source = document->source();
  EXPECT_EQ(source.line_of("/summaries"), 2);
  EXPECT_EQ(source.line_of("/summaries/every"), 3);
  EXPECT_EQ(source.line_of("/rules/0/parameters/threshold"), 7);
  EXPECT_EQ(source.line_of("/rules/1"), 8);
  EXPECT_EQ(source.line_of("/collections/a~1b~0c/raw"), 10);
  EXPECT_EQ(source.line_of("/nothing"), 0);
}

TEST(Yaml, ScalarsAreWhatTheyLookLikeAndQuotedOnesAreText) {
  const auto document =
      ParseYaml("[1, 1.5, 1e-7, true, null, ~, 'true', \"12\", 0x10, 256MiB, .inf, '', -3, 1e3]", "x");
  ASSERT_TRUE(document.ok());
  EXPECT_EQ(document->value,
            nlohmann::json::parse(
                R"([1, 1.5, 1e-7, true, null, null, "true", "12", "0x10", "256MiB", ".inf", "", -3, 1e3])"));
}

TEST(Yaml, MistakesNameFileLineAndColumn) {
  const auto broken = ParseYaml("a: 1\nb: [1, 2\nc: 3\n", "debug.yaml");
  ASSERT_FALSE(broken.ok());
  EXPECT_EQ(broken.status().code(), Code::kInvalidArgument);
  EXPECT_EQ(broken.status().message().find("debug.yaml:"), 0u) << broken.status().message();

  const auto twice = ParseYaml("budget: 1\njournal: {}\nbudget: 2\n", "debug.yaml");
  ASSERT_FALSE(twice.ok());
  EXPECT_NE(twice.status().message().find("debug.yaml:3:1: the key \"budget\" is there twice"),
            std::string::npos)
      << twice.status().message();
}

TEST(Yaml, AQuotationMarkThatIsNeverClosedIsAMistake) {
  for (const char* text :
       {"dir: \"runs/a\n", "dir: 'runs/a\njournal: 1\n\n", "dir: \"runs/a", "- \"a\n  \n"}) {
    const auto open = ParseYaml(text, "debug.yaml");
    ASSERT_FALSE(open.ok()) << text << " is " << open->value;
    EXPECT_NE(open.status().message().find("never closed"), std::string::npos) << open.status().message();
  }
  const auto closed = ParseYaml("a: \"runs\n  b\"\nkept: |+\n  x\n\n", "debug.yaml");
  ASSERT_TRUE(closed.ok()) << closed.status().message();
  EXPECT_EQ(closed->value, (nlohmann::json{{"a", "runs b"}, {"kept", "x\n\n"}}));
}

TEST(Yaml, AFewLinesCannotBecomeAGigabyte) {
  std::string text = "a: &a [x, x, x, x, x, x, x, x, x, x]\n";
  for (char c = 'b'; c <= 'i'; ++c) {
    text += std::string(1, c) + ": &" + c + " [";
    for (int i = 0; i < 10; ++i) text += std::string(i ? ", *" : "*") + static_cast<char>(c - 1);
    text += "]\n";
  }
  EXPECT_FALSE(ParseYaml(text, "laughs.yaml").ok());
}

TEST(Yaml, AnEmptyFileIsNoConfiguration) {
  const auto document = ParseYaml("# nothing yet\n", "x");
  ASSERT_TRUE(document.ok());
  EXPECT_TRUE(document->value.is_null());
}

TEST(JsonDocument, KeepsLinesAndRefusesWhatOnlyYamlAllows) {
  const auto document = ParseJson("{\n  \"budget\": \"1GB\",\n  \"rules\": []\n}\n", "debug.json");
  ASSERT_TRUE(document.ok()) << document.status().message();
  EXPECT_EQ(document->source().line_of("/rules"), 3);

  const auto trailing = ParseJson("{\"budget\": 1,\n}", "debug.json");
  ASSERT_FALSE(trailing.ok());
  EXPECT_NE(trailing.status().message().find("line 2"), std::string::npos) << trailing.status().message();
  const auto twice = ParseJson("{\"a\": {\"x\": 1}, \"b\": {\"x\": 1}, \"a\": 2}", "debug.json");
  ASSERT_FALSE(twice.ok());
  EXPECT_NE(twice.status().message().find("\"a\" is there twice"), std::string::npos)
      << twice.status().message();
}

TEST(JsonDocument, NestsAsDeeplyAsYamlMay) {
  const auto nested = [](size_t levels) { return std::string(levels, '[') + std::string(levels, ']'); };
  for (const size_t levels : {65, 66, 100'000}) {
    const auto json = ParseJson(nested(levels), "deep.json");
    EXPECT_EQ(json.ok(), levels == 65) << levels << ": " << json.status().message();
    EXPECT_EQ(ParseYaml(nested(levels), "deep.yaml").ok(), json.ok()) << levels;
    if (json.ok()) continue;
    EXPECT_EQ(json.status().message(), "deep.json: too many or too deeply nested values");
  }
  const auto objects = [](int levels) {
    std::string text;
    for (int i = 0; i < levels; ++i) text += "{\"a\":";
    return text + "1" + std::string(static_cast<size_t>(levels), '}');
  };
  EXPECT_TRUE(ParseJson(objects(64), "deep.json").ok());
  EXPECT_FALSE(ParseJson(objects(65), "deep.json").ok());
}

TEST(ReadDocument, AMissingFileIsAUsageError) {
  EXPECT_EQ(ReadDocument("/nonexistent/debug.yaml").status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace tdbg::cli
