#include "base/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/printable.h"

namespace tdbg::base {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(TextTest, ListsAreTrimmedAndLoseTheirEmptyItems) {
  EXPECT_THAT(SplitList(" a, b c ,,d,"), ElementsAre("a", "b c", "d"));
  EXPECT_THAT(SplitList(" , "), IsEmpty());
  EXPECT_THAT(SplitList(""), IsEmpty());
  EXPECT_THAT(SplitList("a;b", ';'), ElementsAre("a", "b"));
}

TEST(TextTest, IntegersAreTheWholeTextOrNothing) {
  EXPECT_EQ(ParseInt("-42"), -42);
  EXPECT_EQ(ParseInt("+42"), 42);
  EXPECT_EQ(ParseInt("9223372036854775807"), INT64_MAX);
  for (const char* text :
       {"", " 1", "1 ", "1x", "1.0", "+", "-", "+-1", "++1", "0x10", "9223372036854775808"}) {
    EXPECT_EQ(ParseInt(text), std::nullopt) << text;
  }
}

TEST(TextTest, NumbersAreTheWholeTextOrNothing) {
  EXPECT_EQ(ParseDouble("1e-7"), 1e-7);
  EXPECT_EQ(ParseDouble("+.5"), 0.5);
  EXPECT_EQ(ParseDouble("-inf"), -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(ParseDouble("nan").value()));
  for (const char* text : {"", "1x", "1,5", "nan(1)", " 1", "--1", "e5", "1e"}) {
    EXPECT_EQ(ParseDouble(text), std::nullopt) << text;
  }
}

TEST(TextTest, BooleansAreTheSpellingsOfSmdebugAndNoOthers) {
  for (const char* text : {"True", "true", "1"}) EXPECT_EQ(ParseBool(text), true) << text;
  for (const char* text : {"False", "false", "0"}) EXPECT_EQ(ParseBool(text), false) << text;
  for (const char* text : {"", "TRUE", "yes", "2", " true"}) EXPECT_EQ(ParseBool(text), std::nullopt) << text;
}

TEST(TextTest, SizesTakeBinaryAndDecimalUnits) {
  EXPECT_EQ(ParseBytes("4096"), 4096u);
  EXPECT_EQ(ParseBytes("256MiB"), 256u << 20);
  EXPECT_EQ(ParseBytes("1.5 GB"), 1'500'000'000u);
  EXPECT_EQ(ParseBytes(" 2 kib "), 2048u);
  EXPECT_EQ(ParseBytes("3k"), 3000u);
  EXPECT_EQ(ParseBytes("10B"), 10u);
  EXPECT_EQ(ParseBytes("18446744073709551615"), UINT64_MAX);
  for (const char* text :
       {"", "MiB", "-1", "1.5", "1.2.3 kB", "5 bananas", "5 kbps", "1e3", "99999999999 PB"}) {
    EXPECT_EQ(ParseBytes(text), std::nullopt) << text;
  }
}

TEST(TextTest, SizesArePrintedWithOneDigitAndNoThousands) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(999), "999 B");
  EXPECT_EQ(FormatBytes(1000), "1.0 kB");
  EXPECT_EQ(FormatBytes(7'600'000), "7.6 MB");
  EXPECT_EQ(FormatBytes(999'960), "1.0 MB");
  EXPECT_EQ(FormatBytes(UINT64_MAX), "18.4 EB");
}

TEST(TextTest, WhatIsCountedAgreesWithItsNumber) {
  EXPECT_EQ(Counted(0, "step"), "0 steps");
  EXPECT_EQ(Counted(1, "step"), "1 step");
  EXPECT_EQ(Counted(2, "step"), "2 steps");
  EXPECT_EQ(Counted(1, "class", "classes"), "1 class");
  EXPECT_EQ(Counted(10, "class", "classes"), "10 classes");
}

TEST(TextTest, NearestFindsTheLikelyTypo) {
  const std::vector<std::string> names{"vanishing_gradient", "exploding_tensor", "loss_not_decreasing",
                                       "relu"};
  EXPECT_EQ(Nearest("vanishing_gradeint", names), "vanishing_gradient");
  EXPECT_EQ(Nearest("Exploding-Tensor", names), "exploding_tensor");
  EXPECT_EQ(Nearest("loss_not_decresing", names), "loss_not_decreasing");
  EXPECT_EQ(Nearest("rely", names), "relu");
}

TEST(TextTest, NearestKnowsTheBeginningOrAWordOfOne) {
  const std::vector<std::string> names = {"vanishing_gradient", "exploding_tensor", "tensor_variance"};
  EXPECT_EQ(Nearest("vanishing", names), "vanishing_gradient");
  EXPECT_EQ(Nearest("variance", names), "tensor_variance");
  EXPECT_EQ(Nearest("tensor", names), std::nullopt) << "two have it";
  EXPECT_EQ(Nearest("va", names), std::nullopt) << "too little to go by";
}

TEST(TextTest, NearestStaysSilentRatherThanGuessWildly) {
  const std::vector<std::string> names{"vanishing_gradient", "a"};
  EXPECT_EQ(Nearest("overfit", names), std::nullopt);
  EXPECT_EQ(Nearest("x", names), std::nullopt);
  EXPECT_EQ(Nearest("", names), std::nullopt);
  EXPECT_EQ(Nearest("x", {}), std::nullopt);
}

TEST(TextTest, NamesAreValidUtf8WithoutNul) {
  EXPECT_TRUE(IsValidName("gradient/fc.weight"));
  EXPECT_TRUE(IsValidName("größe/\xF0\x9F\x98\x80"));
  EXPECT_FALSE(IsValidName(std::string_view("a\0b", 3)));
  for (const char* text :
       {"\xff", "\xc0\xaf", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf0\x9f\x98", "\x80"}) {
    EXPECT_FALSE(IsValidName(text)) << ToValidUtf8(text);
  }
}

// Expected values are Python's bytes.decode(errors="replace").
TEST(TextTest, InvalidBytesAreReplacedAsPythonReplacesThem) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(ToValidUtf8("plain é"), "plain é");
  EXPECT_EQ(ToValidUtf8("a\xff"
                        "b"),
            "a" + r + "b");
  EXPECT_EQ(ToValidUtf8("\xf0\x9f\x98"), r);
  EXPECT_EQ(ToValidUtf8("\xe2\x82z"), r + "z");
  EXPECT_EQ(ToValidUtf8("\xed\xa0\x80"), r + r + r);
  EXPECT_EQ(ToValidUtf8("\xc0\xaf"), r + r);
  EXPECT_TRUE(IsValidName(ToValidUtf8("\xf1\x80\x80\xe1\x80\xc2")));
}

TEST(TextTest, JsonNumbersAreShortestAndNonFiniteOnesAreStrings) {
  EXPECT_EQ(JsonNumber(0.1), "0.1");
  EXPECT_EQ(JsonNumber(1), "1");
  EXPECT_EQ(JsonNumber(1e22), "1e+22");
  EXPECT_EQ(JsonNumber(-0.0), "-0.0");
  EXPECT_EQ(JsonNumber(std::nan("")), "\"NaN\"");
  EXPECT_EQ(JsonNumber(std::numeric_limits<double>::infinity()), "\"Infinity\"");
  EXPECT_EQ(JsonNumber(-std::numeric_limits<double>::infinity()), "\"-Infinity\"");
}

TEST(TextTest, JsonNumbersComeBackBitByBit) {
  for (const double value : {1.0 / 3, 5e-324, 1.7976931348623157e308, -2.5e-7, 123456789012345680.0}) {
    EXPECT_EQ(ParseDouble(JsonNumber(value)), value);
  }
}

TEST(PrintableTest, WhatSteersATerminalIsSpelledOut) {
  EXPECT_EQ(Printable("a\x1b[2Jb\r\n\t\x7f"), "a\\x1b[2Jb\\x0d\\x0a\\x09\\x7f");
  EXPECT_EQ(Printable("\xc2\x9b\x32J"), "\\u009b2J");  // ESC [ in one character
}

TEST(PrintableTest, WhatDeceivesAReaderIsSpelledOut) {
  EXPECT_EQ(Printable("a\u202Eb\u2066c\u061C\u200F"), "a\\u202eb\\u2066c\\u061c\\u200f");
  EXPECT_EQ(Printable("x\u200By\u2060\uFEFF\u00AD\u3164"), "x\\u200by\\u2060\\ufeff\\u00ad\\u3164");
  EXPECT_EQ(Printable("\u2028\U000E0041"), "\\u2028\\U000e0041");
}

TEST(PrintableTest, OrdinaryTextOfAnyScriptStays) {
  for (const char* text : {"conv1.weight", "größe/Ø", "損失 потери", "▁▂▃█ …×", "😀", "a\u0301", ""}) {
    EXPECT_EQ(Printable(text), text);
    EXPECT_EQ(PrintableJson(text), text);
    EXPECT_EQ(PrintableOutput(text), text);
  }
  EXPECT_EQ(Printable("\xff\xc3"), "\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(PrintableTest, LinesKeepTheirEndsAndOutputItsColours) {
  EXPECT_EQ(PrintableLines("a\n\tb\x1b[1mc"), "a\n\tb\\x1b[1mc");
  EXPECT_EQ(PrintableOutput("\x1b[1;31ma\x1b[0m\n"), "\x1b[1;31ma\x1b[0m\n");
  EXPECT_EQ(PrintableOutput("\x1b[2J\x1b]0;t\x07\r\x1b[31"), "\\x1b[2J\\x1b]0;t\\x07\\x0d\\x1b[31");
}

TEST(PrintableTest, JsonReadsAsTheSameValues) {
  const std::string safe = PrintableJson("{\n \"a\u202E\": \"\xc2\x9b\U000E0041\x7f\"}");
  EXPECT_EQ(safe, "{\n \"a\\u202e\": \"\\u009b\\udb40\\udc41\\u007f\"}");
}

}  // namespace
}  // namespace tdbg::base
