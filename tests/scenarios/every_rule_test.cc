// Every built-in rule, over its own scenarios: watched while the run grows, with random timing, and judged
// again afterwards. A rule without scenarios fails here.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <thread>

#include "base/file.h"
#include "base/testing.h"
#include "run_writer.h"
#include "scenario.h"
#include "verdict_text.h"
#include "watch/replay.h"
#include "watch/watcher.h"

namespace tdbg {
extern const char* const kBuiltinRulesDirectory;  // of this clone (tdbg_path in cmake/rooms.cmake)
}

namespace tdbg::scenarios {
namespace {

constexpr size_t kHits = 6, kOthers = 4;  // of each rule: enough for every way to end, in a second or two

// Hits first, then the others; refused configurations have no run.
std::vector<Scenario> ChosenOf(std::vector<Scenario> all) {
  std::vector<Scenario> chosen;
  size_t hits = 0, others = 0;
  for (Scenario& scenario : all) {
    if (scenario.expected.refused || scenario.steps.empty()) continue;
    const bool hit = scenario.expected.state == rules::RuleState::kIssuesFound;
    if (hit ? ++hits > kHits : ++others > kOthers) continue;
    chosen.push_back(std::move(scenario));
  }
  return chosen;
}

// One worker's part, in bursts; the whole takes a tenth of a second at most.
void Grow(RunWriter& writer, const Scenario& scenario, int64_t worker, unsigned seed) {
  std::mt19937 random(seed);
  const auto pauses = std::max<size_t>(4, scenario.steps.size() / 50);
  for (const Step& step : scenario.steps) {
    TDBG_EXPECT_OK(writer.Write(worker, step));
    if (random() % pauses == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
  }
}

void WatchAndReplay(const Scenario& scenario, unsigned seed) {
  SCOPED_TRACE(scenario.name + ", seed " + std::to_string(seed));
  base::ScratchDirectory scratch;
  const std::string run = scratch / "run";
  TDBG_ASSERT_OK(WriteOther(scenario, run));
  plan::RuleConfig config;
  config.rule = scenario.rule;
  config.parameters = scenario.parameters;
  watch::WatchOptions options;
  options.run = run;
  options.rules = {config};
  options.log = [](const std::string&) {};
  auto watcher = watch::Watcher::Create(options);
  TDBG_ASSERT_OK(watcher);
  Status followed;
  std::thread watching([&] { followed = (*watcher)->Follow(); });
  auto writer = RunWriter::Create(run, scenario);
  TDBG_EXPECT_OK(writer);
  std::vector<std::thread> workers;
  for (int64_t worker = 0; worker < scenario.workers; ++worker) {
    workers.emplace_back(
        [&, worker] { Grow(**writer, scenario, worker, seed * 100 + static_cast<unsigned>(worker)); });
  }
  for (std::thread& worker : workers) worker.join();
  (*writer)->End();
  watching.join();
  TDBG_EXPECT_OK(followed);
  auto trial = Trial::Open(run);
  TDBG_ASSERT_OK(trial);
  std::vector<std::pair<size_t, rules::Report>> reports;
  auto replayed = watch::Replay(**trial, {config}, 1, &reports);
  TDBG_ASSERT_OK(replayed);
  EXPECT_EQ(VerdictText((*watcher)->statuses()), VerdictText(*replayed));
  for (const auto& [rule, report] : reports) {
    EXPECT_EQ(base::Slurp(run + "/rule-output/" + scenario.rule + "/" + report.file_name), report.text);
  }
}

class EveryRuleTest : public testing::TestWithParam<std::string> {};

TEST_P(EveryRuleTest, IsWatchedAsItIsReplayed) {
  const std::filesystem::path file =
      std::filesystem::path(kBuiltinRulesDirectory) / GetParam() / "scenarios.txt";
  ASSERT_TRUE(std::filesystem::exists(file)) << "a rule comes with scenarios: " << file;
  auto all = ParseScenarios(base::Slurp(file.string()));
  TDBG_ASSERT_OK(all);
  const std::vector<Scenario> chosen = ChosenOf(*std::move(all));
  ASSERT_FALSE(chosen.empty());
  unsigned seed = 1;
  for (const Scenario& scenario : chosen) WatchAndReplay(scenario, seed++);
}

TEST_P(EveryRuleTest, HasAPictureOfARunThatTripsIt) {
  const std::filesystem::path folder = std::filesystem::path(kBuiltinRulesDirectory) / GetParam();
  EXPECT_NE(base::Slurp((folder / "README.md").string()).find("](picture.svg)"), std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(folder / "picture.svg")) << "tools/rule_picture.py " << GetParam();
}

std::vector<std::string> SnakeNames() {
  std::vector<std::string> names;
  for (const rules::RuleInfo* info : rules::BuiltinRules().All()) names.push_back(info->snake_name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Builtin, EveryRuleTest, testing::ValuesIn(SnakeNames()),
                         [](const auto& tested) { return tested.param; });

}  // namespace
}  // namespace tdbg::scenarios
