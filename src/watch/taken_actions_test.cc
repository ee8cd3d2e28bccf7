#include "watch/taken_actions.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "base/testing.h"

namespace tdbg::watch {
namespace {

class Message : public actions::Action {
 public:
  std::string name() const override { return "webhook"; }
  Status Perform(const actions::Notice&) override { return OkStatus(); }
};

std::string Done(const std::string& rule, int64_t step) {
  ActionOutcome outcome;
  outcome.rule = rule;
  outcome.action = "webhook";
  outcome.global_step = step;
  return EventLine("action", 1, ActionFields(outcome)) + "\n";
}

TEST(TakenActionsTest, WhatWasDoneIsLeftOutAndReadOnceForAllRules) {
  base::ScratchDirectory run;
  const std::string path = run / "events.jsonl";
  base::Spill(path, Done("A", 5) + Done("B", 6));
  TakenActions taken(run.path());
  const auto left = [&](const std::string& rule, int64_t step) {
    actions::Notice notice;
    notice.run = run.path();
    notice.rule = rule;
    notice.global_step = step;
    std::vector<std::shared_ptr<actions::Action>> list{std::make_shared<Message>()};
    taken.LeaveOut(notice, 2, 0, [](const std::string&) {}, &list);
    return list.size();
  };
  EXPECT_EQ(left("A", 5), 0u);
  ASSERT_EQ(std::remove(path.c_str()), 0);  // a second look would find nothing
  EXPECT_EQ(left("B", 6), 0u);
  EXPECT_EQ(left("B", 7), 1u);
  EXPECT_EQ(left("C", 5), 1u);
}

}  // namespace
}  // namespace tdbg::watch
