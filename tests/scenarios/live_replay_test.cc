// A run is watched while it grows; whatever the timing, its watcher and a replay afterwards say the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "actions/control_request.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/testing.h"
#include "format/run_files.h"
#include "run_writer.h"
#include "scenario.h"
#include "verdict_text.h"
#include "watch/replay.h"
#include "watch/watcher.h"

namespace tdbg::scenarios {
namespace {

using std::chrono::microseconds;
using testing::HasSubstr;

Scenario Parsed(const std::string& text) {
  auto scenarios = ParseScenarios(text);
  EXPECT_TRUE(scenarios.ok()) << scenarios.status().ToString();
  return scenarios.ok() ? scenarios->at(0) : Scenario{};
}

std::vector<nlohmann::json> Events(const std::string& run, const std::string& kind) {
  std::vector<nlohmann::json> events;
  const std::string text = base::Slurp(run + "/events.jsonl");
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    const auto event = nlohmann::json::parse(text.substr(begin, end - begin));
    if (event.at("kind") == kind) events.push_back(event);
    begin = end + 1;
  }
  return events;
}

plan::RuleConfig Rule(const std::string& rule, const std::map<std::string, std::string>& parameters = {},
                      const std::vector<std::string>& on_issue = {}) {
  plan::RuleConfig config;
  config.rule = rule;
  config.parameters = parameters;
  // These tests want a hit at the step that they write.
  if (rule == "VanishingGradient") config.parameters.try_emplace("patience", "1");
  config.on_issue = on_issue;
  return config;
}

class WatchTest : public testing::Test {
 protected:
  std::unique_ptr<watch::Watcher> Watch(std::vector<plan::RuleConfig> configs) {
    watch::WatchOptions options;
    options.run = run_;
    options.rules = std::move(configs);
    return Watch(std::move(options));
  }
  std::unique_ptr<watch::Watcher> Watch(watch::WatchOptions options) {
    options.log = [this](const std::string& line) { log_ += line + "\n"; };
    auto watcher = watch::Watcher::Create(std::move(options));
    EXPECT_TRUE(watcher.ok()) << watcher.status().ToString();
    return watcher.ok() ? *std::move(watcher) : nullptr;
  }
  std::string Replayed(const std::vector<plan::RuleConfig>& configs) {
    auto trial = Trial::Open(run_);
    EXPECT_TRUE(trial.ok()) << trial.status().ToString();
    auto statuses = watch::Replay(**trial, configs, 1);
    EXPECT_TRUE(statuses.ok()) << statuses.status().ToString();
    return VerdictText(*statuses);
  }

  base::ScratchDirectory scratch_;
  const std::string run_ = scratch_ / "run";
  std::string log_;
};

// A rule of each kind of ending: a hit early, a hit late, none, never judged.
const std::vector<plan::RuleConfig> kRules = {
    Rule("VanishingGradient", {{"threshold", "0.1"}}),
    Rule("ExplodingTensor", {{"only_nan", "True"}}),
    Rule("LossNotDecreasing", {{"interval", "20"}}),
    Rule("UnchangedTensor", {{"collection_names", "gradients"}, {"interval", "50"}}),
    Rule("Overfit"),
    Rule("Overtraining", {{"interval", "10"}})};

constexpr const char* kGrowing = R"(
scenario: two workers, three modes of trouble
rule VanishingGradient
workers 2
tensor gradient/a in gradients kind gradient
tensor loss in losses kind loss
steps 0..149 raw
  gradient/a = 1 -1
  loss = 3-0.01*s
steps 150..159 EVAL
  loss = 2
steps 160..199
  gradient/a worker 0 = 1
  gradient/a worker 1 = 1.75-0.01*s
  loss = 1.5
step 200
  gradient/a = 1
  loss worker 1 = nan
  loss worker 0 = 1
steps 201..249
  gradient/a = 1
  loss = 1.5
expect NoIssuesFound
)";

TEST_F(WatchTest, LiveEqualsReplayWhateverTheTiming) {
  const Scenario scenario = Parsed(kGrowing);
  for (unsigned seed = 1; seed <= 6; ++seed) {
    std::filesystem::remove_all(run_);
    const auto watcher = Watch(kRules);
    Status followed;
    std::thread watching([&] { followed = watcher->Follow(); });
    // The watcher may come first, or the run.
    std::mt19937 random(seed);
    std::this_thread::sleep_for(microseconds(random() % 20'000));
    auto writer = RunWriter::Create(run_, scenario);
    TDBG_EXPECT_OK(writer);
    std::vector<std::thread> workers;
    for (int64_t worker = 0; worker < scenario.workers; ++worker) {
      workers.emplace_back([&, worker, seed] {
        std::mt19937 own(seed * 100 + static_cast<unsigned>(worker));
        for (const Step& step : scenario.steps) {
          TDBG_EXPECT_OK((*writer)->Write(worker, step));
          if (own() % 4 == 0) std::this_thread::sleep_for(microseconds(own() % 3000));
        }
      });
    }
    for (std::thread& worker : workers) worker.join();
    (*writer)->End();
    watching.join();
    TDBG_EXPECT_OK(followed);
    const std::string live = VerdictText(watcher->statuses());
    EXPECT_EQ(live, Replayed(kRules)) << "seed " << seed;
    EXPECT_THAT(live, HasSubstr("VanishingGradient IssuesFound"));
    EXPECT_THAT(live, HasSubstr("nan_count 1 > 0 worker_1"));
    EXPECT_THAT(live, HasSubstr("gradient/a unchanged_values 3 >= 3\n"));
    auto read_back = watch::ReadStatuses(run_);
    TDBG_ASSERT_OK(read_back);
    EXPECT_EQ(live, VerdictText(*read_back)) << "events carry everything";
  }
}

TEST_F(WatchTest, AFindingReachesTheEventsWithinMillisecondsOfItsCommit) {
  Scenario scenario = Parsed(
      "scenario: x\nrule VanishingGradient\ntensor gradient/a in gradients\nsteps 0..99\n  gradient/a = 0\n"
      "expect NoIssuesFound\n");
  auto writer = RunWriter::Create(run_, scenario);
  TDBG_ASSERT_OK(writer);
  // One rule per step, so that every step has a finding of its own to be timed.
  watch::WatchOptions options;
  options.run = run_;
  for (int step = 0; step < 100; ++step) {
    auto rule = Rule("VanishingGradient", {{"start_step", std::to_string(step)}});
    rule.name = "rule " + std::to_string(step);
    options.rules.push_back(rule);
  }
  const auto watcher = Watch(std::move(options));
  std::thread watching([&] { TDBG_EXPECT_OK(watcher->Follow()); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  std::vector<int64_t> committed;
  for (const Step& step : scenario.steps) {
    committed.push_back(base::SystemClock().WallNanos());
    TDBG_EXPECT_OK((*writer)->Write(0, step));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  (*writer)->End();
  watching.join();
  std::vector<double> millis;
  for (const auto& event : Events(run_, "rule_status")) {
    if (event.at("status") != "IssuesFound") continue;
    const auto step = event.at("global_step").get<size_t>();
    millis.push_back(static_cast<double>(event.at("wall_nanos").get<int64_t>() - committed[step]) / 1e6);
  }
  ASSERT_EQ(millis.size(), 100u);
  std::sort(millis.begin(), millis.end());
  RecordProperty("median_millis", std::to_string(millis[50]));
  std::printf("commit to event: median %.3f ms, p95 %.3f ms, max %.3f ms\n", millis[50], millis[95],
              millis[99]);
  // bench/latency.py has the promise (20 ms). Here only: it is the doorbell that wakes the watcher, and not
  // the polling that stands in where there is none.
  EXPECT_LT(millis[50], 150.0);
}

TEST_F(WatchTest, ActionsArePerformedInOrderAndTheirFailuresAreEvents) {
  Scenario scenario = Parsed(
      "scenario: x\nrule VanishingGradient\ntensor gradient/a in gradients\nstep 0 EVAL\n  gradient/a = 1\n"
      "steps 1..4\n  gradient/a = 0\nexpect NoIssuesFound\n");
  const auto watcher =
      Watch({Rule("VanishingGradient", {}, {"exec:cat; echo; echo \"$TDBG_STEP\"", "exec:exit 7"})});
  auto writer = RunWriter::Create(run_, scenario);
  TDBG_ASSERT_OK(writer);
  for (const Step& step : scenario.steps) TDBG_ASSERT_OK((*writer)->Write(0, step));
  (*writer)->End();
  TDBG_EXPECT_OK(watcher->Follow());
  const auto actions = Events(run_, "action");
  ASSERT_EQ(actions.size(), 2u);
  EXPECT_EQ(actions[0].at("ok"), true);
  EXPECT_EQ(actions[0].at("name"), "VanishingGradient");
  const auto notice = nlohmann::json::parse(actions[0].at("output").get<std::string>(), nullptr, false);
  EXPECT_THAT(actions[0].at("output").get<std::string>(), HasSubstr("\"status\":\"IssuesFound\""));
  EXPECT_THAT(actions[0].at("output").get<std::string>(), HasSubstr(run_));
  EXPECT_THAT(actions[0].at("output").get<std::string>(),
              HasSubstr("\"step_name\":\"TRAIN step 0 (global 1)\""))
      << "for receivers that know only this";
  EXPECT_EQ(actions[1].at("ok"), false);
  EXPECT_THAT(log_, HasSubstr("exec for rule VanishingGradient failed: the command's exit code was 7"));
  EXPECT_EQ(watcher->statuses()[0].state, rules::RuleState::kIssuesFound);
}

// ctrl-C of a watcher beside the job's own: the run goes on, and is not said to have been judged.
TEST_F(WatchTest, WhoeverStopsWatchingDecidesNothing) {
  Scenario scenario = Parsed(
      "scenario: x\nrule VanishingGradient\ntensor gradient/a in gradients\nsteps 0..3\n  gradient/a = 0\n"
      "expect NoIssuesFound\n");
  auto writer = RunWriter::Create(run_, scenario);
  TDBG_ASSERT_OK(writer);
  // It would be found at the end, of a run that is so short.
  auto patient = Rule("VanishingGradient", {{"patience", "100"}}, {"exec:true"});
  const auto watcher = Watch({patient});
  std::thread watching([&] { TDBG_EXPECT_OK(watcher->Follow()); });
  for (const Step& step : scenario.steps) TDBG_EXPECT_OK((*writer)->Write(0, step));
  while (Events(run_, "rule_status").empty()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  watcher->StopWatching();
  watching.join();
  EXPECT_EQ(watcher->statuses()[0].state, rules::RuleState::kIssuesFound);
  const auto said = watch::ReadStatuses(run_);
  TDBG_ASSERT_OK(said);
  ASSERT_EQ(said->size(), 1u);
  EXPECT_EQ(said->front().state, rules::RuleState::kInProgress);
  EXPECT_TRUE(Events(run_, "action").empty());
  (*writer)->End();
}

// Both see the step at the same instant, before either has said that it has done anything.
TEST_F(WatchTest, TwoWatchersActOnceTogether) {
  Scenario scenario = Parsed(
      "scenario: x\nrule VanishingGradient\ntensor gradient/a in gradients\nsteps 0..3\n  gradient/a = 0\n"
      "expect NoIssuesFound\n");
  auto writer = RunWriter::Create(run_, scenario);
  TDBG_ASSERT_OK(writer);
  const std::string done = scratch_ / "done";
  std::vector<std::unique_ptr<watch::Watcher>> watchers;
  for (int i = 0; i < 3; ++i)
    watchers.push_back(Watch({Rule("VanishingGradient", {}, {"exec:sleep 0.5; echo x >> " + done})}));
  std::vector<std::thread> watching;
  for (const auto& watcher : watchers) watching.emplace_back([&] { TDBG_EXPECT_OK(watcher->Follow()); });
  for (const Step& step : scenario.steps) TDBG_EXPECT_OK((*writer)->Write(0, step));
  (*writer)->End();
  for (std::thread& thread : watching) thread.join();
  EXPECT_EQ(base::Slurp(done), "x\n");
  EXPECT_EQ(Events(run_, "action").size(), 1u);
}

// The profile changes at each of its findings and once more at the end; it is acted on at the first one.
TEST_F(WatchTest, ARuleThatGoesOnIsActedOnOnceEvenIfTheActionFails) {
  Scenario scenario = Parsed(
      "scenario: x\nrule VanishingGradient\ntensor loss in losses kind loss\nsteps 0..4\n  loss = nan\n"
      "steps 5..59\n  loss = 1\nsteps 60..69\n  loss = nan\nexpect NoIssuesFound\n");
  const auto watcher = Watch({Rule("Profile", {}, {"exec:exit 7", "stop"})});
  auto writer = RunWriter::Create(run_, scenario);
  TDBG_ASSERT_OK(writer);
  for (const Step& step : scenario.steps) TDBG_ASSERT_OK((*writer)->Write(0, step));
  (*writer)->End();
  TDBG_EXPECT_OK(watcher->Follow());
  EXPECT_EQ(watcher->statuses()[0].findings.size(), 2u);
  const auto actions = Events(run_, "action");
  ASSERT_EQ(actions.size(), 1u) << "and nothing is left to stop";
  EXPECT_EQ(actions[0].at("action"), "exec");
  EXPECT_EQ(watcher->stopped_by(), "");
}

TEST_F(WatchTest, StopIsAskedForOnceByName) {
  Scenario scenario = Parsed(
      "scenario: x\nrule VanishingGradient\ntensor gradient/a in gradients\nsteps 0..3\n  gradient/a = 0\n"
      "expect NoIssuesFound\n");
  auto writer = RunWriter::Create(run_, scenario);
  TDBG_ASSERT_OK(writer);
  watch::WatchOptions options;
  options.run = run_;
  options.rules = {Rule("VanishingGradient", {}, {"stop"}), Rule("LossNotDecreasing", {}, {"stop"})};
  std::atomic<int> asked{0};
  options.stop = [&](const std::string& rule) {
    EXPECT_EQ(rule, "VanishingGradient");
    ++asked;
    return OkStatus();
  };
  const auto watcher = Watch(std::move(options));
  std::thread watching([&] { TDBG_EXPECT_OK(watcher->Follow()); });
  for (const Step& step : scenario.steps) TDBG_EXPECT_OK((*writer)->Write(0, step));
  for (int i = 0; i < 500 && asked == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  (*writer)->End();
  watcher->JobEnded(rules::JobEnd::kStopped);
  watching.join();
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(watcher->stopped_by(), "VanishingGradient");
  EXPECT_EQ(watcher->statuses()[1].state, rules::RuleState::kStopped) << "it was never judged";
}

TEST_F(WatchTest, WhatAnEarlierAttemptDidStopsNoJob) {
  Scenario scenario = Parsed(
      "scenario: x\nrule VanishingGradient\ntensor gradient/a in gradients\nsteps 0..3\n  gradient/a = 0\n"
      "expect NoIssuesFound\n");
  auto earlier = RunWriter::Create(run_, scenario);
  TDBG_ASSERT_OK(earlier);
  for (const Step& step : scenario.steps) TDBG_ASSERT_OK((*earlier)->Write(0, step));
  (*earlier)->End();
  std::filesystem::create_directories(run_ + "/1");
  format::AttemptInfo attempt;
  attempt.attempt = 1;
  base::Spill(run_ + "/1/attempt.json", attempt.ToJson());
  watch::WatchOptions options;
  options.run = run_;
  options.rules = {Rule("VanishingGradient", {}, {"stop"})};
  std::atomic<int> asked{0};
  options.stop = [&](const std::string&) {
    ++asked;
    return OkStatus();
  };
  const auto watcher = Watch(std::move(options));
  std::thread watching([&] { TDBG_EXPECT_OK(watcher->Follow()); });
  for (int i = 0; i < 500 && watcher->statuses()[0].state != rules::RuleState::kIssuesFound; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(watcher->statuses()[0].state, rules::RuleState::kIssuesFound);
  watcher->JobEnded(rules::JobEnd::kCompleted);
  watching.join();
  EXPECT_EQ(asked, 0);
}

TEST_F(WatchTest, WithoutAJobOfItsOwnStopGoesThroughTheControlFile) {
  Scenario scenario = Parsed(
      "scenario: x\nrule VanishingGradient\ntensor gradient/a in gradients\nsteps 0..3\n  gradient/a = 0\n"
      "expect NoIssuesFound\n");
  auto writer = RunWriter::Create(run_, scenario);
  TDBG_ASSERT_OK(writer);
  const auto watcher = Watch({Rule("VanishingGradient", {}, {"stop"})});
  std::thread watching([&] { TDBG_EXPECT_OK(watcher->Follow()); });
  for (const Step& step : scenario.steps) TDBG_EXPECT_OK((*writer)->Write(0, step));
  for (int i = 0; i < 500 && watcher->stopped_by().empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  (*writer)->End();
  watching.join();
  EXPECT_THAT(base::Slurp(run_ + "/control"), HasSubstr("\"action\":\"stop\""));
}

TEST_F(WatchTest, AWorkerThatNeverComesIsDeclaredLostAndReplayObeys) {
  Scenario scenario = Parsed(
      "scenario: x\nrule VanishingGradient\nworkers 2\ntensor gradient/a in gradients\nsteps 0..9\n"
      "  gradient/a worker 0 = 1\n  gradient/a worker 1 = 0\nexpect NoIssuesFound\n");
  auto writer = RunWriter::Create(run_, scenario);
  TDBG_ASSERT_OK(writer);
  // Announced, and not there yet.
  std::filesystem::rename(run_ + "/0/worker_1", scratch_ / "worker_1");
  watch::WatchOptions options;
  options.run = run_;
  options.rules = {Rule("VanishingGradient")};
  options.lost_after_millis = 100;
  const auto watcher = Watch(options);
  std::thread watching([&] { TDBG_EXPECT_OK(watcher->Follow()); });
  for (const Step& step : scenario.steps) TDBG_EXPECT_OK((*writer)->Write(0, step));
  for (int i = 0; i < 500 && Events(run_, "worker_lost").empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  // It turns up after all, with a gradient that would have been a hit.
  std::filesystem::rename(scratch_ / "worker_1", run_ + "/0/worker_1");
  for (const Step& step : scenario.steps) TDBG_EXPECT_OK((*writer)->Write(1, step));
  (*writer)->End();
  watching.join();
  const auto lost = Events(run_, "worker_lost");
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].at("worker"), "rank 1");
  EXPECT_EQ(lost[0].at("from_step"), 0);
  const std::string live = VerdictText(watcher->statuses());
  EXPECT_THAT(live, HasSubstr("VanishingGradient NoIssuesFound judged 10"));
  EXPECT_EQ(live, Replayed({Rule("VanishingGradient")}));
}

TEST_F(WatchTest, AStandstillIsFoundByTheClockAndReplayObeys) {
  const Scenario scenario = Parsed(
      "scenario: x\nrule StalledTrainingRule\ntensor loss in losses\nsteps 0..9\n  loss = 1\n"
      "expect NoIssuesFound\n");
  watch::WatchOptions options;
  options.run = run_;
  options.rules = {Rule("StalledTrainingRule", {{"threshold", "0.3"}, {"stop_training_on_fire", "True"}}),
                   Rule("VanishingGradient")};
  std::atomic<int> asked{0};
  options.stop = [&](const std::string& rule) {
    EXPECT_EQ(rule, "StalledTrainingRule");
    ++asked;
    return OkStatus();
  };
  auto writer = RunWriter::Create(run_, scenario);
  TDBG_ASSERT_OK(writer);
  const auto watcher = Watch(options);
  std::thread watching([&] { TDBG_EXPECT_OK(watcher->Follow()); });
  for (size_t i = 0; i < 5; ++i) TDBG_EXPECT_OK((*writer)->Write(0, scenario.steps[i]));
  for (int i = 0; i < 500 && asked == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  // It moves again, too late.
  for (size_t i = 5; i < 10; ++i) TDBG_EXPECT_OK((*writer)->Write(0, scenario.steps[i]));
  (*writer)->End();
  watcher->JobEnded(rules::JobEnd::kCompleted);
  watching.join();
  EXPECT_EQ(asked, 1);
  const auto stalled = Events(run_, "stalled");
  ASSERT_EQ(stalled.size(), 1u);
  EXPECT_EQ(stalled[0].at("after_step"), 4);
  EXPECT_GE(stalled[0].at("seconds").get<double>(), 0.3);
  const std::string live = VerdictText(watcher->statuses());
  EXPECT_THAT(live, HasSubstr("StalledTrainingRule IssuesFound"));
  EXPECT_THAT(live, HasSubstr("at step 4 resulted"));
  EXPECT_EQ(live, Replayed(options.rules));
  EXPECT_THAT(Replayed({Rule("StalledTrainingRule", {{"threshold", "3600"}})}), HasSubstr("NoIssuesFound"));
}

TEST_F(WatchTest, AWorkerFoundOnlyAtTheVeryEndIsStillJudged) {
  Scenario scenario = Parsed(
      "scenario: x\nrule VanishingGradient\nworkers 2\ntensor gradient/a in gradients\nsteps 0..9\n"
      "  gradient/a worker 0 = 1\n  gradient/a worker 1 = 0\nexpect NoIssuesFound\n");
  auto writer = RunWriter::Create(run_, scenario);
  TDBG_ASSERT_OK(writer);
  std::filesystem::rename(run_ + "/0/worker_1", scratch_ / "worker_1");
  const auto watcher = Watch({Rule("VanishingGradient")});
  std::thread watching([&] { TDBG_EXPECT_OK(watcher->Follow()); });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  std::filesystem::rename(scratch_ / "worker_1", run_ + "/0/worker_1");
  for (const Step& step : scenario.steps) {
    for (int64_t worker = 0; worker < 2; ++worker) TDBG_EXPECT_OK((*writer)->Write(worker, step));
  }
  (*writer)->End();
  watching.join();
  const std::string live = VerdictText(watcher->statuses());
  EXPECT_THAT(live, HasSubstr("VanishingGradient IssuesFound judged 1"));
  EXPECT_EQ(live, Replayed({Rule("VanishingGradient")}));
}

TEST_F(WatchTest, AnIdleWatcherSleeps) {
  const Scenario scenario = Parsed(kGrowing);
  auto writer = RunWriter::Create(run_, scenario);
  TDBG_ASSERT_OK(writer);
  for (int64_t worker = 0; worker < 2; ++worker) TDBG_ASSERT_OK((*writer)->Write(worker, scenario.steps[0]));
  const auto watcher = Watch(kRules);
  std::thread watching([&] { TDBG_EXPECT_OK(watcher->Follow()); });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const auto cpu_millis = [] {
    timespec used;
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return static_cast<double>(used.tv_sec) * 1e3 + static_cast<double>(used.tv_nsec) / 1e6;
  };
  const double before = cpu_millis();
  std::this_thread::sleep_for(std::chrono::seconds(3));
  const double used = cpu_millis() - before;
  std::printf("idle for 3 s: %.2f ms of CPU, the writers' threads included\n", used);
  EXPECT_LT(used, 60) << "2 %";
  (*writer)->End();
  watching.join();
}

TEST_F(WatchTest, AJobThatNeverWroteSettlesItsRules) {
  watch::WatchOptions options;
  options.run = run_;
  options.rules = {Rule("VanishingGradient")};
  options.stop = [](const std::string&) { return OkStatus(); };
  const auto watcher = Watch(std::move(options));
  Status followed;
  std::thread watching([&] { followed = watcher->Follow(); });
  watcher->JobEnded(rules::JobEnd::kFailed);
  watching.join();
  EXPECT_EQ(followed.code(), Code::kNotFound);
  EXPECT_EQ(watcher->statuses()[0].state, rules::RuleState::kError);
}

TEST_F(WatchTest, RulesAndActionsAreRefusedBeforeTraining) {
  watch::WatchOptions options;
  options.run = run_;
  options.rules = {Rule("VanishingGradient", {}, {"explode"})};
  options.rules[0].where = "debug.yaml:3";
  const auto watcher = watch::Watcher::Create(options);
  ASSERT_FALSE(watcher.ok());
  EXPECT_EQ(watcher.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(watcher.status().message(), HasSubstr("debug.yaml:3"));
  EXPECT_THAT(watcher.status().message(), HasSubstr("explode"));
}

TEST_F(WatchTest, ARunThatIsGoneIsWaitedForAndThenAnError) {
  const Scenario scenario = Parsed(kGrowing);
  auto writer = RunWriter::Create(run_, scenario);
  TDBG_ASSERT_OK(writer);
  for (size_t i = 0; i < 40; ++i) {
    for (int64_t worker = 0; worker < 2; ++worker)
      TDBG_ASSERT_OK((*writer)->Write(worker, scenario.steps[i]));
  }
  for (const bool comes_back : {true, false}) {
    watch::WatchOptions options;
    options.run = run_;
    options.rules = {Rule("ExplodingTensor")};
    options.gone_after_millis = comes_back ? 60'000 : 1000;
    std::atomic<int> looks = 0;
    options.on_progress = [&](const watch::Progress&) { ++looks; };
    const auto watcher = Watch(std::move(options));
    std::atomic<bool> over = false;
    std::thread watching([&] {
      TDBG_EXPECT_OK(watcher->Follow());
      over = true;
    });
    while (looks == 0) std::this_thread::sleep_for(microseconds(1000));
    std::filesystem::rename(run_, run_ + "-away");
    if (comes_back) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1500));
      EXPECT_FALSE(over);
      std::filesystem::rename(run_ + "-away", run_);
      const int before = looks;
      while (looks == before) std::this_thread::sleep_for(microseconds(1000));
      EXPECT_FALSE(over);
      watcher->JobEnded(rules::JobEnd::kCompleted);
    }
    watching.join();
    const rules::RuleStatus status = watcher->statuses().at(0);
    EXPECT_EQ(status.state, comes_back ? rules::RuleState::kNoIssuesFound : rules::RuleState::kError);
    EXPECT_EQ(status.steps_judged, 40);
    EXPECT_THAT(status.details, HasSubstr(comes_back ? "" : "cannot list"));
  }
  std::filesystem::rename(run_ + "-away", run_);
  (*writer)->End();
}

TEST_F(WatchTest, ProgressTellsTheLatestLoss) {
  const Scenario scenario = Parsed(kGrowing);
  auto writer = RunWriter::Create(run_, scenario);
  TDBG_ASSERT_OK(writer);
  for (const Step& step : scenario.steps) {
    for (int64_t worker = 0; worker < 2; ++worker) TDBG_ASSERT_OK((*writer)->Write(worker, step));
  }
  (*writer)->End();
  watch::WatchOptions options;
  options.run = run_;
  options.rules = kRules;
  options.only_reads = true;
  watch::Progress last;
  options.on_progress = [&](const watch::Progress& progress) { last = progress; };
  const auto watcher = Watch(std::move(options));
  TDBG_EXPECT_OK(watcher->Follow());
  EXPECT_EQ(last.global_step, 249);
  EXPECT_EQ(last.steps_seen, 250);
  EXPECT_EQ(last.loss, 1.5);
  EXPECT_FALSE(std::filesystem::exists(run_ + "/events.jsonl"));
}

}  // namespace
}  // namespace tdbg::scenarios
