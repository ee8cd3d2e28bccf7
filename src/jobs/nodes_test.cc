#include "jobs/nodes.h"

#include <gmock/gmock.h>

#include <chrono>
#include <future>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "base/testing.h"

namespace tdbg::jobs {
namespace {

using testing::HasSubstr;
using Turn = NodeLaunch::Turn;

// As many as a busy machine may keep a thread waiting, and a test wants to wait.
constexpr int64_t kTimeoutMillis = 600;

class NodesTest : public testing::Test {
 protected:
  struct Node {
    Status status;
    std::unique_ptr<NodeLaunch> launch;
    PreparedAttempt prepared;
  };

  Node Join(int64_t node, int64_t nodes = 2, bool adopts = false) {
    NodeOptions options;
    options.adopts = adopts;
    options.prepare.run_directory = Run();
    options.prepare.command = {"python", "train.py"};
    options.prepare.plan_json = "{}";
    options.prepare.wall_nanos = 1;
    options.place = {node, nodes};
    options.timeout_millis = kTimeoutMillis;
    options.on_event = [this](const std::string& kind, int64_t of) {
      const std::lock_guard lock(mutex_);
      events_.insert({kind, of});
    };
    Node joined;
    auto launch = NodeLaunch::Join(options, &joined.prepared);
    joined.status = launch.status();
    if (launch.ok()) joined.launch = *std::move(launch);
    return joined;
  }
  std::string Run() const { return directory_.path() + "/run"; }
  bool Happened(const std::string& kind, int64_t node) {
    const std::lock_guard lock(mutex_);
    return events_.contains({kind, node});
  }
  // Both at once, as machines that boot do.
  std::vector<Node> JoinBoth() {
    auto other = std::async(std::launch::async, [this] { return Join(1); });
    std::vector<Node> both;
    both.push_back(Join(0));
    both.push_back(other.get());
    return both;
  }

  base::ScratchDirectory directory_;
  std::mutex mutex_;
  std::set<std::pair<std::string, int64_t>> events_;
};

TEST_F(NodesTest, WhoeverComesFirstLaysTheRunOutAndOneJudges) {
  std::vector<Node> nodes = JoinBoth();
  for (const Node& node : nodes) TDBG_ASSERT_OK(node.status);
  EXPECT_EQ(nodes[0].launch->laid_out() + nodes[1].launch->laid_out(), 1);
  EXPECT_EQ(nodes[0].launch->judges() + nodes[1].launch->judges(), 1);
  for (const Node& node : nodes) {
    EXPECT_EQ(node.prepared.attempt, 0);
    EXPECT_EQ(node.prepared.run_directory, Run());
  }
  EXPECT_EQ(ListAttempts(Run()), std::vector<int64_t>{0});
  EXPECT_TRUE(LauncherAlive(Run()));
}

TEST_F(NodesTest, APlaceThatIsTakenAndAnotherNumberOfNodesAreRefused) {
  Node first = Join(0);
  TDBG_ASSERT_OK(first.status);
  EXPECT_THAT(Join(0).status.message(), HasSubstr("node 0 of this run has a launcher already"));
  EXPECT_THAT(Join(1, 3).status.message(), HasSubstr("has 2 nodes, and --node says 3"));
  PrepareOptions alone;
  alone.run_directory = Run();
  alone.plan_json = "{}";
  EXPECT_EQ(PrepareAttempt(alone).status().code(), Code::kFailedPrecondition);
}

TEST_F(NodesTest, WhoCannotLayOutTellsTheOthersAndLeavesNothing) {
  TDBG_ASSERT_OK(base::LocalFileSystem().CreateDirectories(Run()));
  TDBG_ASSERT_OK(base::LocalFileSystem().WriteFileAtomic(Run() + "/thesis.tex", "x"));
  EXPECT_EQ(Join(0).status.code(), Code::kAlreadyExists);
  EXPECT_FALSE(base::LocalFileSystem().Exists(Run() + "/nodes"));
}

TEST_F(NodesTest, AJudgeThatDiesIsFollowedByAnother) {
  Node first = Join(0), second = Join(1);
  TDBG_ASSERT_OK(second.status);
  ASSERT_EQ(first.launch->AwaitTurn(), Turn::kJudge);
  EXPECT_FALSE(second.launch->judges());
  first.launch.reset();  // without a word
  EXPECT_EQ(second.launch->AwaitTurn(), Turn::kJudge);
  TDBG_EXPECT_OK(second.launch->MayJudge());
  // Its own thread writes that down, once it may have had a processor.
  for (int i = 0; i < 500 && !Happened("judge", 1); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(Happened("judge", 1));
}

TEST_F(NodesTest, TheEndIsThatOfAllNodesAndIsWaitedForByTheOneThatJudges) {
  Node first = Join(0), second = Join(1);
  TDBG_ASSERT_OK(second.status);
  first.launch->Ended({0, "none", ""});
  auto whole = std::async(std::launch::async, [&] { return first.launch->AwaitEnd(); });
  EXPECT_EQ(whole.wait_for(std::chrono::milliseconds(2 * kTimeoutMillis)), std::future_status::timeout);
  second.launch->Ended({3, "requested", "exploding_tensor"});
  auto other = std::async(std::launch::async, [&] { return second.launch->AwaitEnd(); });
  const NodeLaunch::Outcome outcome = whole.get();
  EXPECT_TRUE(outcome.judges);
  EXPECT_FALSE(outcome.all_completed);
  EXPECT_TRUE(outcome.any_stopped);
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_EQ(outcome.stopped_by, "exploding_tensor");
  EXPECT_EQ(other.wait_for(std::chrono::milliseconds(200)), std::future_status::timeout);
  first.launch->SetOver();
  EXPECT_FALSE(other.get().judges);
  EXPECT_EQ(second.launch->AwaitTurn(), Turn::kOver);
}

TEST_F(NodesTest, ANodeThatNeverComesIsNamedAndEndsNothingBeforeTheOthers) {
  Node first = Join(0);
  first.launch->Ended({0, "none", ""});
  const NodeLaunch::Outcome outcome = first.launch->AwaitEnd();
  EXPECT_FALSE(outcome.all_completed);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_TRUE(Happened("node_missing", 1));
}

TEST_F(NodesTest, ANodeThatComesLateOrAgainJoinsAndIsNamed) {
  Node first = Join(0);
  while (!Happened("node_missing", 1)) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  Node second = Join(1);
  TDBG_ASSERT_OK(second.status);
  while (!Happened("node_joined", 1)) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  second.launch.reset();
  while (!Happened("node_lost", 1)) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  Node again = Join(1);
  TDBG_ASSERT_OK(again.status);
  EXPECT_EQ(again.prepared.attempt, 0);
  EXPECT_FALSE(again.launch->judges());
}

TEST_F(NodesTest, TheNextLaunchIsTheNextAttemptAlsoWhereTheOneBeforeLeftNoWord) {
  Join(0).launch.reset();
  std::vector<Node> nodes = JoinBoth();  // both see an earlier launch's files, and nobody behind them
  for (const Node& node : nodes) {
    TDBG_ASSERT_OK(node.status);
    EXPECT_EQ(node.prepared.attempt, 1);
  }
  EXPECT_EQ(nodes[0].launch->judges() + nodes[1].launch->judges(), 1);
  for (Node& node : nodes) node.launch->SetOver();
  nodes.clear();
  EXPECT_EQ(Join(1).prepared.attempt, 2);
}

TEST_F(NodesTest, WhoLooksAfterACommandThatRunsBeginsNoAttempt) {
  Node first = Join(0);
  EXPECT_TRUE(NodeLauncherAlive(Run(), 0));
  Node second = Join(1);
  second.launch.reset();
  EXPECT_TRUE(NodeLauncherAlive(Run(), 0));
  EXPECT_FALSE(NodeLauncherAlive(Run(), 1));
  Node again = Join(1, 2, /*adopts=*/true);
  TDBG_ASSERT_OK(again.status);
  EXPECT_FALSE(again.launch->laid_out());
  again.launch.reset();
  first.launch.reset();
  Node alone = Join(0, 2, /*adopts=*/true);  // nobody is left
  TDBG_ASSERT_OK(alone.status);
  EXPECT_TRUE(alone.launch->judges());
  EXPECT_EQ(alone.prepared.attempt, 0);
  EXPECT_EQ(Join(1, 2, /*adopts=*/true).prepared.attempt, 0);
  EXPECT_EQ(ListAttempts(Run()), std::vector<int64_t>{0});
}

TEST_F(NodesTest, NodesThatStartAgainAgreeOnTheAttempt) {
  Node first = Join(0), second = Join(1);
  TDBG_ASSERT_OK(second.status);
  auto other = std::async(std::launch::async, [&] { return second.launch->BeginNext(&second.prepared, 2); });
  TDBG_ASSERT_OK(first.launch->BeginNext(&first.prepared, 2));
  TDBG_ASSERT_OK(other.get());
  EXPECT_EQ(first.prepared.attempt, 1);
  EXPECT_EQ(second.prepared.attempt, 1);
  TDBG_ASSERT_OK(second.launch->BeginNext(&second.prepared, 3));
  TDBG_ASSERT_OK(second.launch->BeginNext(&second.prepared, 4));
  TDBG_ASSERT_OK(first.launch->BeginNext(&first.prepared, 5));
  EXPECT_EQ(first.prepared.attempt, second.prepared.attempt);
  EXPECT_EQ(ListAttempts(Run()), (std::vector<int64_t>{0, 1, 2, 3}));
}

TEST(NodePlaceTest, IsANumberBelowAnother) {
  EXPECT_EQ(ParseNodePlace("1/2")->node, 1);
  for (const char* const text : {"", "1", "2/2", "-1/2", "0/0", "a/b", "1/2/3", "0/5000", "/2", "1/"}) {
    EXPECT_EQ(ParseNodePlace(text).status().code(), Code::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace tdbg::jobs
