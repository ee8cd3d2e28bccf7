#include "events/change.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace tdbg::events {
namespace {

// Every event tells all transitions: a job that is started again for weeks must not write its events without
// end.
TEST(ChangeJournalTest, EventsOfAJobThatIsAlwaysStartedAgainStayShort) {
  std::string last;
  int64_t written = 0;
  ChangeJournal journal({}, [&](const std::string&, int64_t, const std::string& fields) {
    last = fields;
    ++written;
  });
  journal.JobMoved("InProgress", "Starting", "starting", "");
  for (int attempt = 0; attempt < 1000; ++attempt) {
    journal.JobMoved("InProgress", "Training", "attempt " + std::to_string(attempt), "");
    journal.JobMoved("InProgress", "Interrupted", "exit code 1", "");
  }
  EXPECT_EQ(written, 2001);
  EXPECT_LT(last.size(), 32u << 10);
  const auto detail = nlohmann::json::parse(last)["event"]["detail"];
  const auto& transitions = detail["SecondaryStatusTransitions"];
  ASSERT_EQ(transitions.size(), 100u);
  EXPECT_EQ(transitions.front()["Status"], "Starting");
  EXPECT_EQ(transitions[98]["StatusMessage"], "attempt 999");
  EXPECT_EQ(transitions.back()["Status"], "Interrupted");
}

}  // namespace
}  // namespace tdbg::events
