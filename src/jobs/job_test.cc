#include "jobs/job.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <limits>
#include <thread>

#include "base/file.h"
#include "format/run_files.h"
#include "jobs/control_file.h"

namespace tdbg::jobs {
namespace {

using std::chrono::milliseconds;

class JobTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { BlockForwardedSignals(); }
  void SetUp() override {
    char name[] = "/tmp/tdbg-job-XXXXXX";
    directory_ = ::mkdtemp(name);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::unique_ptr<Job> Start(const std::string& script, int64_t grace_millis = 10'000,
                             std::function<void(const std::string&)> say = {}) {
    JobOptions options;
    options.say = std::move(say);
    options.command = {"sh", "-c", script};
    options.stop_grace_millis = grace_millis;
    options.leftover_grace_millis = 500;
    options.environment = {{"DIR", directory_}};
    auto job = Job::Start(std::move(options));
    EXPECT_TRUE(job.ok()) << job.status().message();
    return job.ok() ? std::move(*job) : nullptr;
  }
  // The script says when its traps are set: a signal before that would test the shell and not us.
  void WaitFor(const std::string& file) {
    for (int i = 0; i < 500 && !base::LocalFileSystem().Exists(directory_ + "/" + file); ++i) {
      std::this_thread::sleep_for(milliseconds(10));
    }
  }
  bool Exists(const std::string& file) { return base::LocalFileSystem().Exists(directory_ + "/" + file); }
  pid_t PidIn(const std::string& file) {
    std::ifstream stream(directory_ + "/" + file);
    pid_t pid = -1;
    stream >> pid;
    return pid;
  }
  // A zombie whose parent does not reap it is gone, too.
  static bool Alive(pid_t pid) {
    const auto stat = base::LocalFileSystem().ReadFile("/proc/" + std::to_string(pid) + "/stat");
    return stat.ok() && stat->find(") Z") == std::string::npos;
  }

  std::string directory_;
};

TEST_F(JobTest, KeepsTheCommandsExitCode) {
  EXPECT_EQ(Start("exit 7")->Wait().exit.shell_code(), 7);
  const JobResult killed = Start("kill -SEGV $$")->Wait();
  EXPECT_TRUE(killed.exit.signaled);
  EXPECT_EQ(killed.exit.shell_code(), 128 + SIGSEGV);
  EXPECT_EQ(killed.stop, JobStop::kNone);
}

TEST_F(JobTest, SaysWhatIsWrongWithACommandBeforeStartingIt) {
  EXPECT_EQ(CheckCommand("no-such-command-here").code(), Code::kNotFound);
  std::ofstream(directory_ + "/plain.py") << "print(1)\n";
  EXPECT_EQ(CheckCommand(directory_ + "/plain.py").code(), Code::kFailedPrecondition);
  EXPECT_TRUE(CheckCommand("sh").ok());
}

TEST_F(JobTest, AStopLetsAHandlerSaveItsCheckpoint) {
  const auto job = Start(
      "trap 'sleep 0.3; touch $DIR/saved; exit 0' TERM; touch $DIR/ready; while :; do sleep 0.05; done");
  WaitFor("ready");
  job->RequestStop("VanishingGradient");
  job->RequestStop("SomebodyElse");
  const JobResult result = job->Wait();
  EXPECT_TRUE(Exists("saved"));
  EXPECT_EQ(result.stop, JobStop::kRequested);
  EXPECT_EQ(result.stopped_by, "VanishingGradient");
  EXPECT_FALSE(result.killed);
}

TEST_F(JobTest, AGraceOfAgesHasNotRunOut) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  for (const int64_t grace_millis : {kMax, kMax / 1'000'000, kMax / 1'000'000 - 1000}) {
    std::filesystem::remove(directory_ + "/ready");
    const auto job =
        Start("trap 'sleep 0.3; exit 0' TERM; touch $DIR/ready; while :; do sleep 0.05; done", grace_millis);
    WaitFor("ready");
    job->RequestStop("rule");
    const JobResult result = job->Wait();
    EXPECT_FALSE(result.killed) << grace_millis;
    EXPECT_EQ(result.exit.shell_code(), 0) << grace_millis;
  }
}

TEST_F(JobTest, AStopThatIsIgnoredKillsTheWholeGroupAfterTheGrace) {
  const auto job = Start(
      "trap '' TERM; (trap '' TERM; echo $BASHPID; exec sleep 60) & echo $! > $DIR/child; touch $DIR/ready; "
      "while :; do sleep 0.05; done",
      /*grace_millis=*/200);
  WaitFor("ready");
  job->RequestStop("rule");
  const JobResult result = job->Wait();
  EXPECT_TRUE(result.killed);
  EXPECT_EQ(result.exit.shell_code(), 128 + SIGKILL);
  EXPECT_FALSE(Alive(PidIn("child")));
}

TEST_F(JobTest, ACrashLeavesNothingRunning) {
  const auto job = Start("sleep 60 & echo $! > $DIR/child; kill -KILL $$");
  const JobResult result = job->Wait();
  EXPECT_EQ(result.exit.shell_code(), 128 + SIGKILL);
  EXPECT_FALSE(Alive(PidIn("child")));
}

TEST_F(JobTest, WhatASuccessfulCommandLeftMayStay) {
  const auto job = Start("sleep 60 & echo $! > $DIR/child; exit 0");
  EXPECT_EQ(job->Wait().exit.shell_code(), 0);
  const pid_t child = PidIn("child");
  EXPECT_TRUE(Alive(child));
  ::kill(child, SIGKILL);
}

TEST_F(JobTest, SignalsToTheLauncherAreTheCommands) {
  const auto job = Start(
      "trap 'touch $DIR/usr1' USR1; trap 'exit 5' TERM; touch $DIR/ready; while :; do sleep 0.05; done");
  WaitFor("ready");
  ::kill(::getpid(), SIGUSR1);
  std::thread later([&] {
    WaitFor("usr1");
    ::kill(::getpid(), SIGTERM);
  });
  const JobResult result = job->Wait();
  later.join();
  EXPECT_TRUE(Exists("usr1"));
  EXPECT_EQ(result.exit.shell_code(), 5);
  EXPECT_EQ(result.stop, JobStop::kSignal);
  EXPECT_EQ(result.signal_number, SIGTERM);
}

TEST_F(JobTest, TheFirstInterruptIsTheCommandsTheSecondAsksTheThirdKills) {
  std::vector<std::string> said;
  const auto job = Start(
      "trap 'touch $DIR/first' INT; trap 'touch $DIR/second' TERM; touch $DIR/ready; "
      "while :; do sleep 0.05; done",
      10'000, [&said](const std::string& line) { said.push_back(line); });
  WaitFor("ready");
  std::thread presses([&] {
    for (const char* mark : {"first", "second"}) {
      ::kill(::getpid(), SIGINT);
      WaitFor(mark);
    }
    ::kill(::getpid(), SIGINT);
  });
  const JobResult result = job->Wait();
  presses.join();
  EXPECT_TRUE(Exists("first"));
  EXPECT_TRUE(Exists("second"));
  EXPECT_TRUE(result.killed);
  EXPECT_EQ(result.signal_number, SIGINT);
  // The grace may be long, and nothing else would be seen of the second press.
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("killed in 10 s"), std::string::npos) << said[0];
}

TEST_F(JobTest, ObeysAStopInTheControlFile) {
  const std::string control = directory_ + "/control";
  ASSERT_TRUE(base::LocalFileSystem().WriteFileAtomic(control, format::EncodeControlPage()).ok());
  const auto ask = [&](const std::string& by) {
    ASSERT_TRUE(base::LocalFileSystem()
                    .AppendLine(control, R"({"id":"1","action":"stop","by":")" + by + R"("})")
                    .ok());
    std::fstream file(control, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(format::kControlGenerationOffset);
    uint64_t generation = 0;
    file.read(reinterpret_cast<char*>(&generation), sizeof(generation));
    ++generation;
    file.seekp(format::kControlGenerationOffset);
    file.write(reinterpret_cast<const char*>(&generation), sizeof(generation));
  };
  ask("an earlier attempt's rule");
  JobOptions options;
  options.command = {"sleep", "60"};
  options.run_directory = directory_;
  auto job = Job::Start(std::move(options));
  ASSERT_TRUE(job.ok());
  std::thread later([&] {
    std::this_thread::sleep_for(milliseconds(500));
    ask("user");
  });
  const JobResult result = (*job)->Wait();
  later.join();
  EXPECT_EQ(result.stop, JobStop::kRequested);
  EXPECT_EQ(result.stopped_by, "user");
}

}  // namespace
}  // namespace tdbg::jobs
