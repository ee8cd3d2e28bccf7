#include "watch/events.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/testing.h"

namespace tdbg::watch {
namespace {

std::string Line(const std::string& name, rules::RuleState state, int64_t step, int64_t incomplete = 0) {
  rules::RuleStatus status;
  status.name = name;
  status.code = "c0de";
  status.state = state;
  status.steps_incomplete = incomplete;
  return EventLine("rule_status", 1, StatusFields(status, step)) + "\n";
}

TEST(EventsTest, WhatWasJudgedWholeIsKnownOfFinalVerdictsOfALaunchedJob) {
  using enum rules::RuleState;
  base::ScratchDirectory run;
  const std::string path = run / "events.jsonl";
  base::Spill(path, Line("A", kNoIssuesFound, 5));
  auto judged = ReadJudgedWhole(run.path());
  ASSERT_TRUE(judged.ok());
  EXPECT_TRUE(judged->empty()) << "of which attempt nobody knows";
  base::Spill(path, EventLine("job_started", 1, R"({"attempt":2})") + "\n" + Line("A", kInProgress, -1) +
                        Line("A", kNoIssuesFound, 7) + Line("B", kNoIssuesFound, 7, 1) +
                        Line("C", kIssuesFound, 7) + Line("D", kError, 7) + "torn");
  judged = ReadJudgedWhole(run.path());
  ASSERT_TRUE(judged.ok());
  ASSERT_EQ(judged->size(), 1u);
  EXPECT_EQ(judged->front().name, "A");
  EXPECT_EQ(judged->front().code, "c0de");
  EXPECT_EQ(judged->front().until, 7);
  EXPECT_EQ(judged->front().attempt, 2);
}

TEST(EventsTest, OfSeveralEndsOfAnAttemptTheLastOneSaysWhetherItWasStopped) {
  base::ScratchDirectory run;
  const auto end = [](int attempt, const char* stop) {
    const std::string fields = fmt::format(R"({{"attempt":{},"exit_code":1,"stop":"{}"}})", attempt, stop);
    return EventLine("job_ended", 1, fields) + "\n";
  };
  base::Spill(run / "events.jsonl", end(0, "signal") + end(1, "none") + end(1, "requested") +
                                        end(2, "requested") + end(2, "none") + end(3, "none"));
  const auto decisions = ReadDecisions(run.path());
  ASSERT_TRUE(decisions.ok());
  EXPECT_EQ(decisions->stopped, (std::vector<int64_t>{0, 1}));
}

}  // namespace
}  // namespace tdbg::watch
