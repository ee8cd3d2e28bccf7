#include "jobs/run_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/testing.h"
#include "format/run_files.h"
#include "store/writer/worker_writer.h"

namespace tdbg::jobs {
namespace {

using testing::HasSubstr;

class RunDirectoryTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/tdbg-jobs-XXXXXX";
    root_ = ::mkdtemp(name);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  Result<PreparedAttempt> Prepare(const std::string& name) {
    PrepareOptions options;
    options.run_directory = root_ + "/" + name;
    options.command = {"python", "train.py"};
    options.plan_json = "{}";
    options.wall_nanos = 1'700'000'000'000'000'000;
    return PrepareAttempt(options);
  }
  // A worker as the training process leaves it: a directory with a lock file.
  std::string MakeWorker(const std::string& run, const std::string& attempt) {
    const std::string directory = root_ + "/" + run + "/" + attempt + "/worker_0";
    EXPECT_TRUE(base::LocalFileSystem().CreateDirectories(directory).ok());
    EXPECT_TRUE(base::LocalFileSystem().WriteFileAtomic(directory + "/lock", "").ok());
    return directory + "/lock";
  }

  std::string root_;
};

TEST(ScriptOf, IsTheSameWhateverTheArgumentsAndTheDirectoryItIsStartedFrom) {
  EXPECT_EQ(ScriptOf({"python", "train.py", "--lr", "10"}, "/no/where"), "/no/where/train.py");
  EXPECT_EQ(ScriptOf({"torchrun", "--nproc_per_node", "2", "../where/train.py"}, "/no/one"),
            "/no/where/train.py");
  EXPECT_EQ(ScriptOf({"/usr/bin/python3", "-u", "/no/where/train.py"}, "/"), "/no/where/train.py");
  EXPECT_EQ(ScriptOf({"python", "-m", "pkg.train", "--lr", "1"}, "/no"), "pkg.train in /no");
  EXPECT_NE(ScriptOf({"python", "a/train.py"}, "/no"), ScriptOf({"python", "b/train.py"}, "/no"));
  EXPECT_EQ(ScriptOf({"python", "-c", "pass"}, "/no"), "python in /no");
}

TEST(CommandName, IsTheScriptsOrModulesAndNeverTheInterpreters) {
  EXPECT_EQ(CommandName({"python", "train.py", "--lr", "10"}), "train");
  EXPECT_EQ(CommandName({"/usr/bin/python3.11", "-u", "dir/train.py"}), "train");
  EXPECT_EQ(CommandName({"python", "-m", "pkg.train"}), "pkg.train");
  EXPECT_EQ(CommandName({"python", "-m", "torch.distributed.run"}), "torch.distributed.run");
  EXPECT_EQ(CommandName({"env", "A=1", "python", "x.py"}), "x");
  EXPECT_EQ(CommandName({"torchrun", "--nproc_per_node", "2", "train.py"}), "train");
  EXPECT_EQ(CommandName({"torchrun", "--nproc_per_node", "2", "-m", "pkg.train"}), "pkg.train");
  EXPECT_EQ(CommandName({"accelerate", "launch", "dir/train.py", "--config", "c.py"}), "train");
  EXPECT_EQ(CommandName({"python", "-m", "torch.distributed.run", "--nnodes", "1", "train.py"}), "train");
  EXPECT_EQ(CommandName({"uv", "run", "train.py"}), "train");
  EXPECT_EQ(CommandName({"make", "train"}), "make");
  EXPECT_EQ(CommandName({"./a.out"}), "a.out");
  EXPECT_EQ(CommandName({"python", "-c", "print(1)"}), "python");
  EXPECT_EQ(CommandName({"/opt/übung/größe spiel"}), "gr-e-spiel");
  EXPECT_EQ(CommandName({"..."}), "run");
}

TEST_F(RunDirectoryTest, OfManyThatStartInOneSecondEachHasADirectoryOfItsOwn) {
  constexpr int kThreads = 8, kEach = 25;
  std::vector<std::optional<FreshRunDirectory>> taken(kThreads * kEach);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        auto fresh = FreshRunDirectory::Take(root_ + "/runs", {"train"}, 0, /*shared=*/false);
        ASSERT_TRUE(fresh.ok()) << fresh.status().message();
        taken[static_cast<size_t>(t * kEach + i)].emplace(*std::move(fresh));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<std::string> paths;
  for (const auto& fresh : taken) {
    EXPECT_TRUE(std::filesystem::is_directory(fresh->path()));
    paths.insert(fresh->path());
  }
  EXPECT_EQ(paths.size(), taken.size());
  EXPECT_TRUE(paths.contains(*paths.begin() + "-2") && paths.contains(*paths.begin() + "-200"));
}

TEST_F(RunDirectoryTest, AFreshDirectoryInWhichNothingCameToLieGoesAgain) {
  const std::string runs = root_ + "/runs";
  std::string kept;
  {
    const auto empty = FreshRunDirectory::Take(runs, {"train"}, 0, /*shared=*/false);
    ASSERT_TRUE(empty.ok());
    EXPECT_TRUE(std::filesystem::is_directory(empty->path()));
  }
  EXPECT_FALSE(std::filesystem::exists(runs));
  {
    const auto used = FreshRunDirectory::Take(runs, {"train"}, 0, /*shared=*/false);
    ASSERT_TRUE(used.ok());
    kept = used->path();
    TDBG_EXPECT_OK(base::LocalFileSystem().WriteFileAtomic(kept + "/run.json", "{}"));
  }
  EXPECT_TRUE(std::filesystem::exists(kept + "/run.json"));
}

TEST_F(RunDirectoryTest, WhileAnotherLaysARunOutThereItIsBusyAndNotForeign) {
  const std::string directory = root_ + "/run";
  std::filesystem::create_directory(directory);
  const auto lock = base::LocalFileSystem().Lock(base::JoinPath(directory, format::kLauncherLockFile));
  ASSERT_TRUE(lock.ok());
  TDBG_EXPECT_OK(base::LocalFileSystem().WriteFileAtomic(directory + "/plan.json", "{}"));
  const auto prepared = Prepare("run");
  EXPECT_EQ(prepared.status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(prepared.status().message(), HasSubstr("another tdbg is running a job in this run"));
}

TEST_F(RunDirectoryTest, HoldsEverythingATrainingProcessLooksFor) {
  const auto prepared = Prepare("run");
  ASSERT_TRUE(prepared.ok()) << prepared.status().message();
  EXPECT_EQ(prepared->attempt, 0);
  for (const char* file : {"run.json", "plan.json", "control", "0/attempt.json"}) {
    EXPECT_TRUE(base::LocalFileSystem().Exists(root_ + "/run/" + file)) << file;
  }
  const auto info = format::RunInfo::FromJson(*base::LocalFileSystem().ReadFile(root_ + "/run/run.json"));
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->name, "run");
  EXPECT_EQ(info->id.size(), 32u);
}

TEST_F(RunDirectoryTest, ASecondStartIsTheNextAttemptOfTheSameRun) {
  std::string id;
  {
    const auto first = Prepare("run");
    ASSERT_TRUE(first.ok());
    id = format::RunInfo::FromJson(*base::LocalFileSystem().ReadFile(root_ + "/run/run.json"))->id;
  }
  const auto second = Prepare("run");
  ASSERT_TRUE(second.ok()) << second.status().message();
  EXPECT_EQ(second->attempt, 1);
  const auto attempt =
      format::AttemptInfo::FromJson(*base::LocalFileSystem().ReadFile(root_ + "/run/1/attempt.json"));
  ASSERT_TRUE(attempt.ok());
  EXPECT_EQ(attempt->parent, 0);
  EXPECT_FALSE(attempt->world_size || attempt->step_base) << "a launcher knows neither";
  EXPECT_EQ(format::RunInfo::FromJson(*base::LocalFileSystem().ReadFile(root_ + "/run/run.json"))->id, id);
}

TEST_F(RunDirectoryTest, IsRefusedWhileALauncherHoldsIt) {
  const auto first = Prepare("run");
  ASSERT_TRUE(first.ok());
  EXPECT_TRUE(LauncherAlive(root_ + "/run"));
  EXPECT_EQ(Prepare("run").status().code(), Code::kFailedPrecondition);
}

TEST_F(RunDirectoryTest, IsRefusedWhileAWorkerTrains) {
  ASSERT_TRUE(Prepare("run").ok());
  const std::string lock_path = MakeWorker("run", "0");
  {
    const auto lock = base::LocalFileSystem().Lock(lock_path);
    ASSERT_TRUE(lock.ok());
    EXPECT_TRUE(AnyWorkerAlive(root_ + "/run", 0));
    const auto refused = Prepare("run");
    EXPECT_EQ(refused.status().code(), Code::kFailedPrecondition);
    EXPECT_NE(refused.status().message().find("worker_0"), std::string::npos);
  }
  EXPECT_TRUE(Prepare("run").ok());
}

TEST_F(RunDirectoryTest, WhatTheDeadOfEveryAttemptLeftIsSealed) {
  ASSERT_TRUE(Prepare("run").ok());
  // As a killed process leaves it: copied while the writer lives.
  const std::string live = root_ + "/live", run = root_ + "/run";
  std::filesystem::create_directories(live);
  store::WriterOptions options;
  options.worker_directory = live;
  options.journal_path = live + "/journal";
  options.worker.worker = "worker_0";
  options.journal_bytes = 1 << 20;
  auto writer = store::WorkerWriter::Open(options);
  ASSERT_TRUE(writer.ok());
  (*writer)->Commit({});
  const char* const workers[] = {"0/worker_0", "1/worker_0", "1/worker_1", "2/worker_0", "2/worker_1"};
  for (const char* worker : workers) {
    std::filesystem::create_directories(run + "/" + std::string(worker).substr(0, 1));
    std::filesystem::copy(live, run + "/" + worker, std::filesystem::copy_options::recursive);
  }
  const auto sealed = [&] {
    std::vector<std::string> out;
    for (const char* worker : workers) {
      if (!std::filesystem::is_empty(run + "/" + worker + "/segments")) out.push_back(worker);
    }
    return out;
  };
  const auto alive = base::LocalFileSystem().Lock(run + "/2/worker_0/lock");
  ASSERT_TRUE(alive.ok());
  const std::string damaged = run + "/1/worker_1/journal";
  base::Spill(damaged, base::Slurp(damaged).replace(64, 8, 8, '\x01'));
  const Status status = SealOtherAttempts(run, 0);
  EXPECT_NE(status.message().find("attempt 1, worker_1"), std::string::npos) << status.ToString();
  EXPECT_EQ(sealed(), (std::vector<std::string>{"1/worker_0", "2/worker_1"}));

  // What somebody archived is left in peace, by others than root too.
  for (const char* worker : {"0/worker_0", "1/worker_1"}) ::chmod((run + "/" + worker).c_str(), 0555);
  ::chmod(root_.c_str(), 0755);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::geteuid() == 0 && ::setuid(65534) != 0) ::_exit(2);
    ::_exit(SealOtherAttempts(run, 2).ok() ? 0 : 1);
  }
  int how = 0;
  ::waitpid(child, &how, 0);
  EXPECT_EQ(how, 0);
  for (const char* worker : {"0/worker_0", "1/worker_1"}) ::chmod((run + "/" + worker).c_str(), 0755);
}

TEST_F(RunDirectoryTest, SomebodysFilesAreNotMadeARun) {
  std::filesystem::create_directory(root_ + "/thesis");
  ASSERT_TRUE(base::LocalFileSystem().WriteFileAtomic(root_ + "/thesis/chapter.tex", "x").ok());
  const auto refused = Prepare("thesis");
  EXPECT_EQ(refused.status().code(), Code::kAlreadyExists);
  EXPECT_NE(refused.status().message().find("chapter.tex"), std::string::npos);
}

TEST_F(RunDirectoryTest, ARunOfANewerFormatIsNotTouched) {
  {
    ASSERT_TRUE(Prepare("run").ok());
  }
  std::string text = *base::LocalFileSystem().ReadFile(root_ + "/run/run.json");
  const size_t major = text.find("\"major\": 1");
  ASSERT_NE(major, std::string::npos) << text;
  text.replace(major, 10, "\"major\": 9");
  ASSERT_TRUE(base::LocalFileSystem().WriteFileAtomic(root_ + "/run/run.json", text).ok());
  EXPECT_EQ(Prepare("run").status().code(), Code::kUnimplemented);
}

TEST_F(RunDirectoryTest, RunsAreListedByAge) {
  {
    ASSERT_TRUE(Prepare("b").ok());
  }
  PrepareOptions later;
  later.run_directory = root_ + "/a";
  later.wall_nanos = 1'800'000'000'000'000'000;
  {
    ASSERT_TRUE(PrepareAttempt(later).ok());
  }
  std::filesystem::create_directories(root_ + "/not-a-run");
  EXPECT_EQ(ListRuns(root_), (std::vector<std::string>{root_ + "/b", root_ + "/a"}));
  // Runs of one experiment lie in a folder of their own.
  later.run_directory = root_ + "/experiment/c";
  later.wall_nanos += 1'000'000'000;
  {
    ASSERT_TRUE(PrepareAttempt(later).ok());
  }
  std::filesystem::create_directories(root_ + "/too/deep");
  std::filesystem::copy(root_ + "/experiment/c", root_ + "/too/deep/d",
                        std::filesystem::copy_options::recursive);
  EXPECT_EQ(ListRuns(root_), (std::vector<std::string>{root_ + "/b", root_ + "/a", root_ + "/experiment/c"}));
  EXPECT_EQ(ListRuns(root_ + "/a"), (std::vector<std::string>{root_ + "/a"}));
}

}  // namespace
}  // namespace tdbg::jobs
