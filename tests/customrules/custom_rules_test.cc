// Users' own rules beside built-in ones, live and again: what they find, and that what they break is theirs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <random>
#include <thread>

#include "base/file.h"
#include "base/testing.h"
#include "run_writer.h"
#include "scenario.h"
#include "watch/replay.h"
#include "watch/watcher.h"

namespace tdbg {
extern const char* const kMisbehavingRules;  // of this clone (tdbg_path in cmake/rooms.cmake)
}

namespace tdbg::scenarios {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr const char* kGrowing = R"(
scenario: gradients that grow
rule VanishingGradient
workers 2
tensor gradient/a in gradients kind gradient
steps 0..99 raw
  gradient/a = 1+0.25*s -1
expect NoIssuesFound
)";

plan::RuleConfig Own(const std::string& name, const std::map<std::string, std::string>& parameters = {}) {
  plan::RuleConfig config;
  config.file = kMisbehavingRules;
  config.rule = name;
  config.parameters = parameters;
  config.where = "debug.yaml:7";
  return config;
}

plan::RuleConfig Builtin(const std::string& name, const std::map<std::string, std::string>& parameters = {}) {
  plan::RuleConfig config;
  config.rule = name;
  config.parameters = parameters;
  return config;
}

std::string Verdict(const std::vector<rules::RuleStatus>& statuses) {
  std::string text;
  for (const rules::RuleStatus& status : statuses) {
    text += status.name + " " + std::string(rules::RuleStateName(status.state)) + " judged " +
            std::to_string(status.steps_judged) + "\n" + status.details + "\n";
    for (const rules::Finding& finding : status.findings) text += FindingText(finding) + "\n";
  }
  return text;
}

class CustomRulesTest : public testing::Test {
 protected:
  void SetUp() override {
    auto scenarios = ParseScenarios(kGrowing);
    TDBG_ASSERT_OK(scenarios);
    scenario_ = scenarios->at(0);
  }

  // Watches while both workers write, each at its own pace.
  std::vector<rules::RuleStatus> Live(const std::vector<plan::RuleConfig>& configs, unsigned seed = 1) {
    watch::WatchOptions options;
    options.run = run_;
    options.rules = configs;
    options.log = [this](const std::string& line) { log_ += line + "\n"; };
    auto watcher = watch::Watcher::Create(std::move(options));
    EXPECT_TRUE(watcher.ok()) << watcher.status().ToString();
    if (!watcher.ok()) return {};
    auto writer = RunWriter::Create(run_, scenario_);
    TDBG_EXPECT_OK(writer);
    std::thread watching([&] { TDBG_EXPECT_OK((*watcher)->Follow()); });
    std::vector<std::thread> workers;
    for (int64_t worker = 0; worker < scenario_.workers; ++worker) {
      workers.emplace_back([&, worker] {
        std::mt19937 own(seed * 100 + static_cast<unsigned>(worker));
        for (const Step& step : scenario_.steps) {
          TDBG_EXPECT_OK((*writer)->Write(worker, step));
          if (own() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 3000));
        }
      });
    }
    for (std::thread& worker : workers) worker.join();
    (*writer)->End();
    watching.join();
    return (*watcher)->statuses();
  }

  std::string Replayed(const std::vector<plan::RuleConfig>& configs) {
    auto trial = Trial::Open(run_);
    EXPECT_TRUE(trial.ok()) << trial.status().ToString();
    auto statuses = watch::Replay(**trial, configs, 1);
    EXPECT_TRUE(statuses.ok()) << statuses.status().ToString();
    return statuses.ok() ? Verdict(*statuses) : "";
  }

  static std::string Refusal(const plan::RuleConfig& config) {
    watch::WatchOptions options;
    options.run = "nowhere";
    options.rules = {config};
    const auto watcher = watch::Watcher::Create(std::move(options));
    EXPECT_FALSE(watcher.ok());
    EXPECT_EQ(watcher.status().code(), Code::kInvalidArgument);
    return watcher.status().message();
  }

  base::ScratchDirectory scratch_;
  const std::string run_ = scratch_ / "run";
  Scenario scenario_;
  std::string log_;
};

TEST_F(CustomRulesTest, ALibrarysRuleFindsWhatABuiltInOneWouldLiveAndAgain) {
  const std::vector<plan::RuleConfig> configs = {Own("LargeGradient"), Builtin("VanishingGradient"),
                                                 Own("Values")};
  const auto statuses = Live(configs);
  ASSERT_EQ(statuses.size(), 3u);
  EXPECT_EQ(statuses[0].state, rules::RuleState::kIssuesFound);
  ASSERT_EQ(statuses[0].findings.size(), 2u) << "one for each worker";
  // 1 + 0.25 s > 20 from s = 77 on.
  EXPECT_EQ(statuses[0].findings[0].global_step, 77);
  EXPECT_EQ(FindingText(statuses[0].findings[1]), "gradient/a abs_max 20.25 > 20 worker_1");
  EXPECT_THAT(statuses[0].details,
              StartsWith("RuleEvaluationConditionMet: Evaluation of the rule LargeGradient at "
                         "step 77 resulted in the condition being met\n"));
  EXPECT_EQ(statuses[0].steps_judged, 78);
  EXPECT_EQ(statuses[1].state, rules::RuleState::kNoIssuesFound);
  // Two workers, s from 0 to 99: 2 * sum(1 + 0.25 s - 1).
  ASSERT_EQ(statuses[2].findings.size(), 1u) << statuses[2].details;
  EXPECT_EQ(statuses[2].findings[0].value, 2 * 0.25 * 99 * 100 / 2);
  EXPECT_EQ(Verdict(statuses), Replayed(configs));
}

TEST_F(CustomRulesTest, WhateverALibrarysRuleDoesItIsItsErrorAndNobodyElses) {
  struct Case {
    std::string how, details;
  };
  const Case cases[] = {
      {"throw", "at step 3: thrown on purpose"},
      {"throw an int", "at step 3: an exception that is no std::exception"},
      {"segfault", "its process was ended by signal 11 SIGSEGV at step 3"},
      {"hang", "it was still busy after 1 s (limit_seconds) at step 3, and was ended"},
      {"exit", "its process exited with code 7 at step 3"},
#ifndef __SANITIZE_ADDRESS__
      {"allocate", "at step 3: std::bad_alloc"},
#endif
  };
  std::vector<plan::RuleConfig> configs;
  for (const Case& c : cases) {
    auto config = Own("Saboteur", {{"how", c.how}});
    config.name = c.how;
    config.limit_seconds = c.how == "hang" ? 1 : 60;  // the others end by themselves, on a busy machine later
    config.limit_memory = 256u << 20;
    configs.push_back(config);
  }
  configs.push_back(Own("LargeGradient"));
  configs.push_back(Builtin("VanishingGradient"));
  configs.push_back(Builtin("UnchangedTensor", {{"collection_names", "gradients"}, {"interval", "10"}}));
  const auto statuses = Live(configs);
  ASSERT_EQ(statuses.size(), configs.size());
  for (size_t i = 0; i < std::size(cases); ++i) {
    EXPECT_EQ(statuses[i].state, rules::RuleState::kError) << cases[i].how;
    EXPECT_THAT(statuses[i].details, StartsWith(cases[i].details)) << cases[i].how;
    EXPECT_EQ(statuses[i].steps_judged, 3) << cases[i].how;
    EXPECT_THAT(statuses[i].output, HasSubstr("about to " + cases[i].how));
  }
  EXPECT_THAT(statuses[2].details, HasSubstr("  at ")) << "where it was";
  EXPECT_THAT(statuses[2].details, HasSubstr("libmisbehaving_rules.so"));
  EXPECT_THAT(statuses[3].details, HasSubstr("libmisbehaving_rules.so"));
  const size_t others = std::size(cases);
  EXPECT_EQ(statuses[others].state, rules::RuleState::kIssuesFound);
  EXPECT_EQ(statuses[others + 1].state, rules::RuleState::kNoIssuesFound);
  EXPECT_EQ(statuses[others + 2].state, rules::RuleState::kNoIssuesFound);
  EXPECT_EQ(Verdict(statuses), Replayed(configs));
}

TEST_F(CustomRulesTest, WhateverTheTimingLiveIsReplay) {
  const std::vector<plan::RuleConfig> configs = {Own("LargeGradient", {{"threshold", "12"}}),
                                                 Own("Saboteur", {{"how", "throw"}})};
  for (unsigned seed = 2; seed < 8; ++seed) {
    std::filesystem::remove_all(run_);
    const std::string live = Verdict(Live(configs, seed));
    EXPECT_EQ(live, Replayed(configs)) << "seed " << seed;
  }
}

TEST_F(CustomRulesTest, ATimeLimitThatWasReachedIsAnEventAndReplayObeys) {
  std::vector<plan::RuleConfig> configs;
  for (const char* how : {"slow at the start", "slow at step 3", "slow at the end"}) {
    auto config = Own("Saboteur", {{"how", how}});
    config.name = how;
    config.limit_seconds = config.limit_start_seconds = 1;
    configs.push_back(config);
  }
  ::setenv("TDBG_TEST_HANG", "1", 1);
  const auto statuses = Live(configs);
  ::unsetenv("TDBG_TEST_HANG");
  ASSERT_EQ(statuses.size(), 3u);
  EXPECT_THAT(statuses[0].details,
              StartsWith("it was still busy after 1 s (limit_start_seconds) while it started"));
  EXPECT_THAT(statuses[1].details, StartsWith("it was still busy after 1 s (limit_seconds) at step 3,"));
  EXPECT_THAT(statuses[2].details,
              StartsWith("it was still busy after 1 s (limit_seconds) at the end of the run,"));
  EXPECT_EQ(statuses[1].steps_judged, 3);
  EXPECT_EQ(statuses[2].steps_judged, 100);
  // Nothing holds these rules up any more: what they say now is what the events tell.
  EXPECT_EQ(Verdict(statuses), Replayed(configs));

  auto other = configs[1];
  other.limit_seconds = 2;
  EXPECT_THAT(Replayed({other}), StartsWith("slow at step 3 NoIssuesFound judged 100")) << "more time";
  other.limit_seconds = 1;
  other.parameters["how"] = "nothing";
  EXPECT_THAT(Replayed({other}), StartsWith("slow at step 3 NoIssuesFound judged 100")) << "another rule";

  watch::WatchOptions options;
  options.run = run_;
  options.rules = configs;
  auto again = watch::Watcher::Create(std::move(options));
  TDBG_ASSERT_OK(again);
  TDBG_EXPECT_OK((*again)->Follow());
  EXPECT_THAT(Verdict((*again)->statuses()), Not(HasSubstr("Error")));
  EXPECT_EQ(Verdict((*again)->statuses()), Replayed(configs)) << "the last watcher's verdict holds";
}

TEST_F(CustomRulesTest, StepsOutsideOfStartAndEndAreNotHandedOver) {
  const auto statuses = Live({Own("LargeGradient", {{"start_step", "90"}, {"end_step", "95"}}), [] {
                                auto none = Own("LargeGradient", {{"start_step", "500"}});
                                none.name = "never";
                                return none;
                              }()});
  EXPECT_EQ(statuses[0].findings.at(0).global_step, 90);
  EXPECT_EQ(statuses[0].steps_judged, 1);
  EXPECT_EQ(statuses[1].state, rules::RuleState::kError);
  EXPECT_THAT(statuses[1].details, HasSubstr("it would have needed a step with statistics of gradients"));
}

TEST_F(CustomRulesTest, RefusalsComeBeforeTrainingAndNameWhatIsThere) {
  auto missing = Own("LargeGradient");
  missing.file = "/nowhere/libmine.so";
  EXPECT_THAT(Refusal(missing), AllOf(StartsWith("debug.yaml:7: "), HasSubstr("no such file of rules")));
  EXPECT_THAT(Refusal(Own("LargeGradients")),
              HasSubstr("holds no rule 'LargeGradients'; there are LargeGradient, Saboteur, Values"));
  EXPECT_THAT(Refusal(Own("LargeGradient", {{"treshold", "1"}})), HasSubstr("did you mean threshold?"));
  EXPECT_THAT(Refusal(Own("LargeGradient", {{"threshold", "x"}})),
              HasSubstr("parameter threshold: 'x' is not a number, at least 0"));
  EXPECT_THAT(Refusal(Own("Saboteur")), HasSubstr("parameter how: missing"));
  auto not_a_library = Own("X");
  not_a_library.file = scratch_ / "text.so";
  TDBG_ASSERT_OK(base::LocalFileSystem().WriteFileAtomic(not_a_library.file, "text"));
  EXPECT_THAT(Refusal(not_a_library), HasSubstr("cannot be loaded"));
}

}  // namespace
}  // namespace tdbg::scenarios
