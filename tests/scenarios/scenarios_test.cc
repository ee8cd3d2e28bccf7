// Every src/rules/builtin/<rule>/scenarios.txt, each scenario a test of its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "base/testing.h"
#include "rules/judged_run.h"
#include "run_writer.h"
#include "scenario.h"

namespace tdbg {
extern const char* const kBuiltinRulesDirectory;  // of this clone (tdbg_path in cmake/rooms.cmake)
}

namespace tdbg::scenarios {
namespace {

class ScenarioTest : public testing::Test {
 public:
  explicit ScenarioTest(Scenario scenario) : scenario_(std::move(scenario)) {}

  void TestBody() override {
    const Expectation& expected = scenario_.expected;
    plan::RuleConfig config;
    config.rule = scenario_.rule;
    config.parameters = scenario_.parameters;
    base::ScratchDirectory scratch;
    const std::string run = scratch / "run";
    auto engine = rules::Engine::Create({config}, rules::BuiltinRules(), rules::EnvironmentOf(run));
    if (expected.refused) {
      ASSERT_FALSE(engine.ok()) << "was accepted";
      EXPECT_EQ(engine.status().code(), Code::kInvalidArgument);
      EXPECT_NE(engine.status().message().find(expected.contains), std::string::npos)
          << engine.status().message();
      return;
    }
    TDBG_ASSERT_OK(engine);
    TDBG_ASSERT_OK(WriteRuns(scenario_, run));
    if (const auto plan = rules::PlanOf(run)) (*engine)->UsePlan(*plan);
    for (const rules::Stall& stall : scenario_.stalls) (*engine)->DeclareStalled(stall);
    auto trial = Trial::Open(run);
    TDBG_ASSERT_OK(trial);
    TDBG_ASSERT_OK((*trial)->Refresh());
    TDBG_ASSERT_OK((*engine)->Advance(**trial, 1));
    TDBG_ASSERT_OK((*engine)->Finish(**trial, scenario_.end, 2));
    Compare((*engine)->statuses()[0]);
  }

 private:
  void Compare(const rules::RuleStatus& status) {
    const Expectation& expected = scenario_.expected;
    EXPECT_EQ(rules::RuleStateName(status.state), rules::RuleStateName(expected.state)) << status.details;
    if (expected.judged >= 0) {
      EXPECT_EQ(status.steps_judged, expected.judged);
    }
    EXPECT_NE(status.details.find(expected.contains), std::string::npos) << status.details;
    std::vector<std::string> findings;
    for (const rules::Finding& finding : status.findings) findings.push_back(FindingText(finding));
    if (!expected.findings.empty() || expected.state != rules::RuleState::kIssuesFound) {
      EXPECT_EQ(findings, expected.findings);
    }
    if (expected.state != rules::RuleState::kIssuesFound) return;
    ASSERT_FALSE(status.findings.empty());
    if (expected.step >= 0) {
      EXPECT_EQ(status.findings[0].global_step, expected.step);
    }
    const std::string first_line = "RuleEvaluationConditionMet: Evaluation of the rule " + status.rule +
                                   " at step " + std::to_string(status.findings[0].global_step) +
                                   " resulted in the condition being met\n";
    EXPECT_TRUE(status.details.starts_with(first_line)) << status.details;
    EXPECT_LE(status.details.size(), 1024u);
  }

  const Scenario scenario_;
};

// Test filters know letters and digits.
std::string TestName(const std::string& sentence) {
  std::string name;
  bool capital = true;
  for (const char c : sentence) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (plain) name += capital ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    capital = !plain;
  }
  return name;
}

// Returns what cannot be read, as a test that says so.
void Register(const std::filesystem::path& file) {
  const std::string suite = TestName(file.parent_path().filename().string()) + "Scenarios";
  auto scenarios = ParseScenarios(base::Slurp(file.string()));
  if (!scenarios.ok()) {
    const std::string message = file.filename().string() + ": " + scenarios.status().ToString();
    class Unreadable : public testing::Test {
     public:
      explicit Unreadable(std::string why) : why_(std::move(why)) {}
      void TestBody() override { FAIL() << why_; }
      std::string why_;
    };
    testing::RegisterTest(suite.c_str(), "CanBeRead", nullptr, nullptr, __FILE__, __LINE__,
                          [message]() -> testing::Test* { return new Unreadable(message); });
    return;
  }
  for (const Scenario& scenario : *scenarios) {
    testing::RegisterTest(suite.c_str(), TestName(scenario.name).c_str(), nullptr, nullptr, __FILE__,
                          __LINE__, [scenario]() -> testing::Test* { return new ScenarioTest(scenario); });
  }
}

}  // namespace
}  // namespace tdbg::scenarios

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  std::vector<std::filesystem::path> files;
  for (const auto& folder : std::filesystem::directory_iterator(tdbg::kBuiltinRulesDirectory)) {
    const auto file = folder.path() / "scenarios.txt";
    if (std::filesystem::exists(file)) files.push_back(file);
  }
  std::sort(files.begin(), files.end());
  for (const auto& file : files) tdbg::scenarios::Register(file);
  return RUN_ALL_TESTS();
}
