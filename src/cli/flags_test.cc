#include "cli/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tdbg::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// A command with each kind of flag.
struct Example {
  Flags flags{"show", "an example"};
  std::string run, field;
  std::optional<std::string> budget;
  std::vector<std::string> rules, words;
  int port = 0;
  int64_t attempt = -1;
  double tolerance = 0;
  bool json = false, secret = false;

  Example() {
    flags.AddOption("RUN", run, "which").Required();
    flags.AddOption("WORDS", words, "further ones").Words(0, 2);
    const Flag rule = flags.AddOption("--rule", rules, "rules").Repeatable();
    flags.AddOption("--field", field, "one of them").OneOf({"mean", "l2"}).Excludes(rule);
    flags.AddOption("--budget", budget, "how much").TypeName("SIZE");
    flags.AddOption("--port", port, "where").Between(0, 65535);
    flags.AddOption("--tolerance", tolerance, "how exact").Check(FiniteFrom0());
    AddAttempt(flags, attempt);
    flags.AddFlag("-j,--json", json, "for programs");
    flags.AddFlag("--secret", secret, "for ourselves").Hidden();
    flags.Footer("\nthe end");
  }

  // The mistake in these words, or the help text; nothing: it takes them.
  std::string Say(const std::vector<std::string>& given) {
    const Result<bool> help = flags.Parse(given, false);
    if (!help.ok()) return help.status().message();
    return *help ? flags.Help() : "";
  }
};

TEST(Flags, WhatIsGivenIsFilledInAndTheRestStays) {
  Example example;
  EXPECT_EQ(
      example.Say({"--rule", "a", "last", "--rule=b", "-j", "--port", "7", "--attempt", "3", "--secret"}),
      "");
  EXPECT_EQ(example.run, "last");
  EXPECT_THAT(example.rules, ElementsAre("a", "b"));
  EXPECT_THAT(example.words, ElementsAre());
  EXPECT_EQ(example.budget, std::nullopt);
  EXPECT_EQ(example.port, 7);
  EXPECT_EQ(example.attempt, 3);
  EXPECT_EQ(example.tolerance, 0);
  EXPECT_TRUE(example.json);
  EXPECT_TRUE(example.secret);
  Example other;
  EXPECT_EQ(other.Say({"r", "x", "y", "--budget=1GiB", "--tolerance", "1e-3"}), "");
  EXPECT_THAT(other.words, ElementsAre("x", "y"));
  EXPECT_EQ(other.budget, "1GiB");
  EXPECT_EQ(other.tolerance, 1e-3);
  EXPECT_EQ(other.attempt, -1);
}

TEST(Flags, AMistakeIsOneLineThatSaysWhatIsAccepted) {
  const auto say = [](const std::vector<std::string>& words) { return Example().Say(words); };
  EXPECT_EQ(say({"r", "--jsn"}), "show: unknown flag '--jsn'; did you mean '--json'?");
  EXPECT_EQ(say({"r", "--nothing=3"}),
            "show: unknown flag '--nothing'; `tdbg show --help` shows what is accepted");
  EXPECT_EQ(say({}), "show: RUN is required; `tdbg show --help` shows what is accepted");
  EXPECT_THAT(say({"r", "x", "y", "z"}), HasSubstr("WORDS: At Most 2 required but received 3;"));
  EXPECT_THAT(say({"r", "--port", "65536"}), HasSubstr("65536 not in range 0 to 65535"));
  EXPECT_THAT(say({"r", "--field", "mode"}), HasSubstr("mode not in {mean,l2}"));
  EXPECT_THAT(say({"r", "--field", "l2", "--rule", "a"}), HasSubstr("excludes"));
  EXPECT_THAT(say({"r", "--attempt", "-1"}), HasSubstr("found '-1', expected an integer of at least 0;"));
  EXPECT_THAT(say({"r", "--attempt", "99999999999999999999"}), HasSubstr("that 64 bits hold;"));
  EXPECT_THAT(say({"r", "--tolerance", "inf"}), HasSubstr("expected a number of at least 0;"));
}

TEST(Flags, AWordTooManyMayBeMeantAsACommand) {
  Flags plain("show", "an example"), starter("run", "an example");
  EXPECT_EQ(plain.Parse({"train.py"}, false).status().message(),
            "show: found 'train.py', one argument too many; `tdbg show --help` shows what is accepted");
  EXPECT_EQ(starter.Parse({"train.py"}, true).status().message(),
            "run: found 'train.py' where a flag was expected; put -- in front of the command: tdbg run -- "
            "train.py ...");
}

TEST(Flags, HelpNamesWhatIsAcceptedAndHidesWhatIsOurs) {
  const std::string help = Example().Say({"--help"});
  EXPECT_THAT(help, HasSubstr("--budget SIZE"));
  EXPECT_THAT(help, HasSubstr("[0 - 65535]"));
  EXPECT_THAT(help, HasSubstr("{mean,l2}"));
  EXPECT_THAT(help, HasSubstr("the end"));
  EXPECT_THAT(help, Not(HasSubstr("--secret")));
}

}  // namespace
}  // namespace tdbg::cli
