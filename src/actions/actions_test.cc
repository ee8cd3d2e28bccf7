#include "actions/actions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "actions/command.h"
#include "actions/control_request.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/testing.h"
#include "format/run_files.h"

namespace tdbg::actions {
namespace {

using testing::HasSubstr;

Notice Hit() {
  Notice notice;
  notice.run = "/runs/a";
  notice.rule = "VanishingGradient";
  notice.status = "IssuesFound";
  notice.global_step = 17;
  notice.json = R"({"kind":"rule_status"})";
  return notice;
}

TEST(ParseActionTest, KnowsItsKindsAndNamesThemWhenAskedForAnother) {
  for (const char* text : {"stop", "exec:echo a: b", "webhook:https://example.com/x", "email:me@example.com",
                           "sms:+4912345", "capture:gradients", "capture:gradients+weights:20",
                           "checkpoint_stop", "checkpoint_stop:30", "pause", "pause:30", "blackbox"}) {
    TDBG_EXPECT_OK(ParseAction(text, {}));
  }
  for (const char* text : {"",
                           "halt",
                           "exec:",
                           "webhook:",
                           "stop:now",
                           "webhook:ftp://example.com",
                           "webhook:http://",
                           "webhook:http://a b",
                           "email:me",
                           "email:a b@c",
                           "sms:12345",
                           "capture::5",
                           "capture:gradients:0",
                           "checkpoint_stop:",
                           "checkpoint_stop:soon",
                           "pause:0",
                           "pause:",
                           "pause:soon",
                           "blackbox:1",
                           "blackbox:"}) {
    const auto action = ParseAction(text, {});
    ASSERT_FALSE(action.ok()) << text;
    EXPECT_EQ(action.status().code(), Code::kInvalidArgument) << text;
  }
  EXPECT_THAT(ParseAction("webhok:http://x", {}).status().message(), HasSubstr("did you mean webhook?"));
  EXPECT_THAT(ParseAction("halt", {}).status().message(), HasSubstr("exec:COMMAND LINE"));
}

TEST(ParseActionJsonTest, UnderstandsWhatSageMakersClientsSend) {
  const auto names = [](const std::string& text) {
    std::vector<std::string> skipped;
    std::string said;
    auto actions = ParseActionJson(text, {}, &skipped);
    TDBG_EXPECT_OK(actions);
    for (const auto& action : *actions) said += action->name() + " " + action->target() + ";";
    for (const std::string& what : skipped) said += "skipped " + what + ";";
    return said;
  };
  // As the SDK writes it, every quote escaped.
  EXPECT_EQ(names(R"([{\"name\": \"stoptraining\", \"training_job_prefix\": \"My-Job\"}, )"
                  R"({\"name\": \"email\", \"endpoint\": \"me@example.com\"}, )"
                  R"({\"name\": \"sms\", \"endpoint\": \"+4912345\"}])"),
            "stop ;email me@example.com;sms +4912345;");
  EXPECT_EQ(names(R"({"name": "StopTraining"})"), "stop ;");
  EXPECT_EQ(names(""), "");
  EXPECT_THAT(names(R"([{"name": "page"}, {"name": "email"}])"),
              HasSubstr("accepted: StopTraining, Email, SMS"));
  std::vector<std::string> skipped;
  EXPECT_EQ(ParseActionJson("stop!", {}, &skipped).status().code(), Code::kInvalidArgument);
}

TEST(StopTest, ACheckpointComesFirstAndItsFailureChangesNothing) {
  std::string done;
  JobControl job;
  job.stop = [&](const Notice&) {
    done += "stop;";
    return OkStatus();
  };
  job.checkpoint = [&](const Notice&, int64_t seconds) {
    done += "checkpoint " + std::to_string(seconds) + ";";
    return FailedPrecondition("nothing is registered");
  };
  const auto action = ParseAction("checkpoint_stop:7", job);
  TDBG_ASSERT_OK(action);
  TDBG_EXPECT_OK((*action)->Perform(Hit()));
  EXPECT_EQ(done, "checkpoint 7;stop;");
  EXPECT_EQ((*action)->output(), "no checkpoint: nothing is registered");
}

TEST(StopTest, CallsWhatItWasGiven) {
  std::string asked;
  JobControl job;
  job.stop = [&](const Notice& notice) {
    asked = notice.rule;
    return OkStatus();
  };
  const auto stop = ParseAction("stop", job);
  TDBG_ASSERT_OK(stop);
  TDBG_EXPECT_OK((*stop)->Perform(Hit()));
  EXPECT_EQ(asked, "VanishingGradient");
}

TEST(StopTest, WithoutAJobOfOursItWritesToTheControlFile) {
  base::ScratchDirectory run;
  const auto stop = ParseAction("stop", {});
  TDBG_ASSERT_OK(stop);
  Notice notice = Hit();
  notice.run = run.path();
  TDBG_ASSERT_OK((*stop)->Perform(notice));
  const std::string file = base::Slurp(run / "control");
  ASSERT_GT(file.size(), format::kControlPageBytes);
  EXPECT_EQ(base::Load<uint64_t>(file.data() + format::kControlGenerationOffset), 1u);
  const auto requests = format::DecodeControlLines(std::string_view(file).substr(format::kControlPageBytes));
  TDBG_ASSERT_OK(requests);
  ASSERT_EQ(requests->size(), 1u);
  EXPECT_EQ((*requests)[0].action, "stop");
  EXPECT_EQ((*requests)[0].by, "VanishingGradient");
}

TEST(ControlRequestTest, ConcurrentRequestsAreAllThereAndCounted) {
  base::ScratchDirectory run;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      for (int n = 0; n < 25; ++n) TDBG_EXPECT_OK(RequestStop(run.path(), "rule " + std::to_string(i)));
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string file = base::Slurp(run / "control");
  EXPECT_EQ(base::Load<uint64_t>(file.data() + format::kControlGenerationOffset), 200u);
  const auto requests = format::DecodeControlLines(std::string_view(file).substr(format::kControlPageBytes));
  TDBG_ASSERT_OK(requests);
  EXPECT_EQ(requests->size(), 200u);
}

TEST(ControlRequestTest, RefusesWhatIsNoRunAndWhatIsNoControlFile) {
  base::ScratchDirectory run;
  EXPECT_EQ(RequestStop(run / "missing", "me").code(), Code::kNotFound);
  base::Spill(run / "control", "my own notes");
  EXPECT_EQ(RequestStop(run.path(), "me").code(), Code::kDataLoss);
  EXPECT_EQ(base::Slurp(run / "control"), "my own notes");
}

TEST(ExecTest, TheCommandSeesTheHitAndItsOutputIsKept) {
  const auto exec = MakeExec("echo \"$TDBG_RUN $TDBG_RULE $TDBG_STEP $TDBG_STATUS\"; cat; echo oops >&2");
  TDBG_ASSERT_OK(exec->Perform(Hit()));
  EXPECT_EQ(exec->output(), "/runs/a VanishingGradient 17 IssuesFound\n{\"kind\":\"rule_status\"}\noops\n");
}

TEST(ExecTest, AFailingCommandIsAFailureThatNamesItsCode) {
  const auto exec = MakeExec("echo why; exit 3");
  const Status status = exec->Perform(Hit());
  EXPECT_THAT(status.message(), HasSubstr("exit code was 3"));
  EXPECT_EQ(exec->output(), "why\n");
  EXPECT_THAT(MakeExec("kill -9 $$")->Perform(Hit()).message(), HasSubstr("signal 9"));
}

TEST(ExecTest, TimeEndsTheWholeGroup) {
  const int64_t begin = base::SystemClock().MonotonicNanos();
  const auto exec = MakeExec("sleep 30 & sleep 30; echo never", {.limit_millis = 200});
  const Status status = exec->Perform(Hit());
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  EXPECT_LT(base::SystemClock().MonotonicNanos() - begin, 5'000'000'000);
}

TEST(ExecTest, ACommandWhoseTimeIsUpMayTidyUp) {
  const auto exec = MakeExec("trap 'echo tidied; exit 1' TERM; sleep 30 & wait", {.limit_millis = 200});
  EXPECT_EQ(exec->Perform(Hit()).code(), Code::kDeadlineExceeded);
  EXPECT_EQ(exec->output(), "tidied\n");
}

TEST(ExecTest, AChattyCommandDoesNotFillMemoryOrBlock) {
  const auto exec = MakeExec("head -c 10000000 /dev/zero | tr '\\0' x");
  TDBG_ASSERT_OK(exec->Perform(Hit()));
  EXPECT_EQ(exec->output().size(), kMaxOutput);
}

// The pipe is never empty: what is written is read at once, and more is there.
TEST(ExecTest, ACommandThatNeverStopsTalkingIsEndedInTime) {
  const int64_t begin = base::SystemClock().MonotonicNanos();
  const auto talks = MakeExec("yes & yes & yes", {.limit_millis = 500});
  EXPECT_EQ(talks->Perform(Hit()).code(), Code::kDeadlineExceeded);
  TDBG_EXPECT_OK(MakeExec("yes & yes & exit 0")->Perform(Hit()));  // they end when nobody reads any more
  EXPECT_LT(base::SystemClock().MonotonicNanos() - begin, 20'000'000'000);
}

TEST(ExecTest, WhatItLeavesInTheBackgroundIsNotWaitedFor) {
  const int64_t begin = base::SystemClock().MonotonicNanos();
  TDBG_EXPECT_OK(MakeExec("sleep 3 & exit 0")->Perform(Hit()));
  EXPECT_LT(base::SystemClock().MonotonicNanos() - begin, 2'000'000'000);
}

TEST(WebhookTest, ItsTargetHidesTheSecretInItsPath) {
  const auto webhook = MakeWebhook("https://me:pw@hooks.example.com:8443/services/T0/secret?x=1");
  TDBG_ASSERT_OK(webhook);
  EXPECT_EQ((*webhook)->target(), "https://hooks.example.com:8443");
}

TEST(WebhookTest, AMissingProgramIsAFailureAndNoMore) {
  const auto webhook = MakeWebhook("http://127.0.0.1:9/", {3, 10, 2000, "/nowhere/tdbg-webhook"});
  TDBG_ASSERT_OK(webhook);
  EXPECT_FALSE((*webhook)->Perform(Hit()).ok());
}

}  // namespace
}  // namespace tdbg::actions
