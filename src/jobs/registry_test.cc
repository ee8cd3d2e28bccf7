#include "jobs/registry.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <random>

#include "base/file.h"
#include "base/process.h"
#include "base/testing.h"
#include "jobs/job_life.h"

namespace tdbg::jobs {
namespace {

using testing::HasSubstr;
using testing::Not;

class RegistryTest : public testing::Test {
 protected:
  RegistryTest() : path_(directory_.path() + "/state/jobs.sqlite") {}

  Registry Open() {
    auto registry = Registry::Open(path_);
    EXPECT_TRUE(registry.ok()) << registry.status().message();
    return *std::move(registry);
  }
  static JobRecord Job(const std::string& run_id, const std::string& directory = "/runs/train") {
    JobRecord job;
    job.run_id = run_id;
    job.run_directory = directory;
    job.working_directory = "/elsewhere";
    job.command = {"python", "train.py", "a word"};
    job.flags = {"--rule", "exploding_tensor"};
    job.environment = {{"LANG", "C"}};
    job.settings = R"({"max_restarts":3})";
    return job;
  }

  base::ScratchDirectory directory_;
  std::string path_;
};

TEST_F(RegistryTest, AJobIsWhatWasLaunchedAndEachTransitionHasItsTime) {
  Registry registry = Open();
  ASSERT_EQ(*registry.Launch(Job("r1"), "starting", 10), "train");
  TDBG_ASSERT_OK(registry.SetProcess("r1", {42, 7, "boot"}));
  TDBG_ASSERT_OK(registry.Move("r1", JobPhase::kTraining, "pid 42", 20));
  TDBG_ASSERT_OK(registry.Move("r1", JobPhase::kTraining, "pid 42", 21));  // nothing new
  TDBG_ASSERT_OK(registry.EndAttempt("r1", 0, 1, "exit code 1", 29));
  TDBG_ASSERT_OK(registry.Move("r1", JobPhase::kFailed, "exit code 1", 30));
  const auto job = Open().Find("train");
  TDBG_ASSERT_OK(job);
  EXPECT_EQ(job->command, (std::vector<std::string>{"python", "train.py", "a word"}));
  EXPECT_EQ(job->environment.at("LANG"), "C");
  EXPECT_EQ(job->settings, R"({"max_restarts":3})");
  EXPECT_EQ(job->status, JobStatus::kFailed);
  EXPECT_EQ(job->ended_wall_nanos, 30);
  EXPECT_EQ(job->exit_code, 1);
  const auto transitions = registry.Transitions(job->id);
  TDBG_ASSERT_OK(transitions);
  ASSERT_EQ(transitions->size(), 3u);
  EXPECT_EQ((*transitions)[0].phase, JobPhase::kStarting);
  EXPECT_EQ((*transitions)[0].ended_wall_nanos, 20);
  EXPECT_EQ((*transitions)[2].message, "exit code 1");
  EXPECT_EQ((*transitions)[2].ended_wall_nanos, 30);
}

TEST_F(RegistryTest, AnEndIsLeftByANewLaunchOnlyAndThatIsTheSameJob) {
  Registry registry = Open();
  TDBG_ASSERT_OK(registry.Launch(Job("r1"), "", 1));
  TDBG_ASSERT_OK(registry.Move("r1", JobPhase::kStopping, "user", 2));
  EXPECT_EQ(registry.Move("r1", JobPhase::kTraining, "", 3).code(), Code::kFailedPrecondition);
  TDBG_ASSERT_OK(registry.Move("r1", JobPhase::kMaxRuntimeExceeded, "", 4));
  EXPECT_EQ(registry.Find("train")->status, JobStatus::kStopped);
  EXPECT_EQ(registry.Move("r1", JobPhase::kCompleted, "", 5).code(), Code::kFailedPrecondition);
  JobRecord again = Job("r1", "/moved/train");
  again.attempt = 1;
  EXPECT_EQ(*registry.Launch(again, "", 6), "train");
  const auto job = registry.Find("train");
  EXPECT_EQ(job->status, JobStatus::kInProgress);
  EXPECT_EQ(job->run_directory, "/moved/train");
  EXPECT_EQ(job->ended_wall_nanos, 0);
  EXPECT_EQ(registry.Attempts(job->id)->size(), 2u);
  EXPECT_EQ(registry.Move("r2", JobPhase::kTraining, "", 3).code(), Code::kNotFound);
}

TEST_F(RegistryTest, OneThatHasEndedIsForgottenWithAllThatBelongsToIt) {
  Registry registry = Open();
  TDBG_ASSERT_OK(registry.Launch(Job("r1"), "", 1));
  EXPECT_EQ(registry.Forget("r1").code(), Code::kFailedPrecondition);
  TDBG_ASSERT_OK(registry.Move("r1", JobPhase::kCompleted, "", 2));
  const int64_t id = registry.Find("train")->id;
  TDBG_ASSERT_OK(registry.Forget("r1"));
  EXPECT_EQ(registry.Forget("r1").code(), Code::kNotFound);
  EXPECT_TRUE(registry.Transitions(id)->empty());
  EXPECT_TRUE(registry.Attempts(id)->empty());
}

TEST_F(RegistryTest, TwoJobsHaveTwoNames) {
  Registry registry = Open();
  EXPECT_EQ(*registry.Launch(Job("r1"), "", 1), "train");
  EXPECT_EQ(*registry.Launch(Job("r2", "/elsewhere/train"), "", 2), "train-2");
  const auto jobs = registry.List();
  ASSERT_EQ(jobs->size(), 2u);
  EXPECT_EQ(jobs->front().name, "train-2");  // the one started last first
}

TEST_F(RegistryTest, WhatIsNoRegistryIsRefusedAndLeftAsItIs) {
  TDBG_ASSERT_OK(base::LocalFileSystem().CreateDirectories(directory_.path() + "/state"));
  base::Spill(path_, std::string(8192, 'x'));
  EXPECT_EQ(Registry::Open(path_).status().code(), Code::kDataLoss);
  EXPECT_THAT(Registry::Open(path_).status().message(), HasSubstr("may be deleted"));
  EXPECT_EQ(base::LocalFileSystem().ReadFile(path_)->size(), 8192u);
  EXPECT_EQ(Registry::Open("").status().code(), Code::kUnavailable);
  EXPECT_FALSE(Registry::Open("/proc/nowhere/jobs.sqlite").ok());
}

// A mapping of a file that another process cuts short is a SIGBUS.
TEST_F(RegistryTest, NothingOfItIsMapped) {
  Registry registry = Open();
  TDBG_ASSERT_OK(registry.Launch(Job("r1"), "starting", 10));
  EXPECT_THAT(*base::LocalFileSystem().ReadFile("/proc/self/maps"), Not(HasSubstr("jobs.sqlite")));
}

TEST_F(RegistryTest, OneThatAnEarlierTdbgMappedIsMappedNoLonger) {
  {
    Registry registry = Open();
    TDBG_ASSERT_OK(registry.Launch(Job("r1"), "starting", 10));
    TDBG_ASSERT_OK(Database::Open(path_, 0)->Execute("PRAGMA journal_mode=WAL"));
  }
  Registry registry = Open();
  TDBG_ASSERT_OK(registry.Launch(Job("r2"), "starting", 20));
  EXPECT_EQ(registry.List({})->size(), 2u);
  EXPECT_THAT(*base::LocalFileSystem().ReadFile("/proc/self/maps"), Not(HasSubstr("jobs.sqlite")));
}

TEST_F(RegistryTest, ANewerVersionIsRefusedByName) {
  Open();
  TDBG_ASSERT_OK(Database::Open(path_, 0)->Execute("PRAGMA user_version=7"));
  const Status status = Registry::Open(path_).status();
  EXPECT_EQ(status.code(), Code::kUnimplemented);
  EXPECT_THAT(status.message(), HasSubstr("version 7"));
}

// What tdbg 0.1.0 wrote, of a job that was started again once; its environment is shortened.
constexpr char kVersion1[] = R"(
CREATE TABLE jobs(
  id INTEGER PRIMARY KEY, run_id TEXT NOT NULL UNIQUE, name TEXT NOT NULL UNIQUE, run_directory TEXT NOT NULL,
  working_directory TEXT NOT NULL, command TEXT NOT NULL, flags TEXT NOT NULL, environment TEXT NOT NULL,
  settings TEXT NOT NULL, host TEXT NOT NULL, detached INTEGER NOT NULL, attempt INTEGER NOT NULL,
  status TEXT NOT NULL, phase TEXT NOT NULL, message TEXT NOT NULL, pid INTEGER NOT NULL DEFAULT 0,
  start_ticks INTEGER NOT NULL DEFAULT 0, boot_id TEXT NOT NULL DEFAULT '', created INTEGER NOT NULL,
  launched INTEGER NOT NULL, changed INTEGER NOT NULL, ended INTEGER NOT NULL DEFAULT 0,
  exit_code INTEGER NOT NULL DEFAULT -1);
CREATE INDEX jobs_by_launch ON jobs(launched);
CREATE INDEX jobs_by_status ON jobs(status, launched);
CREATE TABLE transitions(
  job INTEGER NOT NULL REFERENCES jobs(id) ON DELETE CASCADE, sequence INTEGER NOT NULL, status TEXT NOT NULL,
  phase TEXT NOT NULL, message TEXT NOT NULL, began INTEGER NOT NULL, PRIMARY KEY(job, sequence)) WITHOUT ROWID;
CREATE TABLE attempts(
  job INTEGER NOT NULL REFERENCES jobs(id) ON DELETE CASCADE, attempt INTEGER NOT NULL, began INTEGER NOT NULL,
  ended INTEGER NOT NULL DEFAULT 0, exit_code INTEGER NOT NULL DEFAULT -1, message TEXT NOT NULL DEFAULT '',
  PRIMARY KEY(job, attempt)) WITHOUT ROWID;
INSERT INTO jobs VALUES(1,'798ce0d8ca80c6011b746b0096de50fc','early','/runs/early','/elsewhere',
  '{"words":["sh","-c","echo hi; exit 3"]}','{"words":["--dir","/runs/early","--max-restarts","1"]}','{"LANG":"C"}',
  '{"max_restarts":1}','vm',0,1,'Failed','Failed','exit code 3',0,6569513,'300a115c',10,10,60,60,3);
INSERT INTO attempts VALUES(1,0,10,20,3,'exit code 3');
INSERT INTO attempts VALUES(1,1,30,60,3,'exit code 3');
INSERT INTO transitions VALUES(1,1,'InProgress','Starting','starting',10);
INSERT INTO transitions VALUES(1,2,'Failed','Failed','exit code 3',60);
PRAGMA user_version=1;
)";

TEST_F(RegistryTest, OneThatAnEarlierTdbgWroteIsBroughtUpToDateWithAllThatItHas) {
  TDBG_ASSERT_OK(base::LocalFileSystem().CreateDirectories(directory_.path() + "/state"));
  TDBG_ASSERT_OK(Database::Open(path_, 0)->Execute(kVersion1));
  Registry registry = Open();
  const auto job = registry.Find("early");
  TDBG_ASSERT_OK(job);
  EXPECT_EQ(job->command, (std::vector<std::string>{"sh", "-c", "echo hi; exit 3"}));
  EXPECT_EQ(job->exit_code, 3);
  EXPECT_EQ(job->url, "");
  EXPECT_EQ(registry.Attempts(job->id)->size(), 2u);
  EXPECT_EQ(registry.Transitions(job->id)->size(), 2u);
  EXPECT_EQ(registry.FindDirectory("/runs/early")->name, "early");
  JobRecord again = *job;
  again.url = "s3://bucket/early";
  TDBG_ASSERT_OK(registry.Launch(again, "starting", 70));
  EXPECT_EQ(Open().FindUrl("s3://bucket/early")->name, "early");
  const auto plans = registry.QueryPlans();
  for (const std::string& step : *plans) EXPECT_THAT(step, HasSubstr("USING"));
}

TEST_F(RegistryTest, OfTheJobsOfOneUrlTheLatestIsFound) {
  Registry registry = Open();
  JobRecord job = Job("r1", "/runs/a");
  job.url = "s3://bucket/a";
  TDBG_ASSERT_OK(registry.Launch(job, "starting", 10));
  job.run_id = "r2";
  TDBG_ASSERT_OK(registry.Launch(job, "starting", 20));
  EXPECT_EQ(registry.FindUrl("s3://bucket/a")->run_id, "r2");
  EXPECT_EQ(registry.FindDirectory("/runs/a")->run_id, "r2");
  EXPECT_EQ(registry.FindUrl("s3://bucket/b").status().code(), Code::kNotFound);
}

TEST_F(RegistryTest, TextsOfAnyBytesAreKept) {
  Registry registry = Open();
  JobRecord job = Job("r'1", "/runs/it's \xff");
  job.command = {"sh", "-c", "echo '\"\n\t\xff"};
  const auto name = registry.Launch(job, std::string("m\0m", 3), 1);
  TDBG_ASSERT_OK(name);
  TDBG_ASSERT_OK(registry.Find(*name));
  EXPECT_EQ(registry.Find(*name)->command.size(), 3u);
}

// A launcher waits for whoever writes and, where that one never ends, starts its job without a record.
TEST_F(RegistryTest, OneThatIsHeldForEverIsAnErrorAfterAWhile) {
  Open();
  auto registry = Registry::Open(path_, 100);
  TDBG_ASSERT_OK(registry);
  const auto holder = Database::Open(path_, 0);
  const auto held = Transaction::Begin(*holder);
  TDBG_ASSERT_OK(held);
  EXPECT_EQ(registry->Launch(Job("r1"), "", 1).status().code(), Code::kUnavailable);
}

TEST_F(RegistryTest, QuestionsGoByAnIndex) {
  const Registry registry = Open();
  const auto plans = registry.QueryPlans();
  TDBG_ASSERT_OK(plans);
  ASSERT_GE(plans->size(), 4u);
  for (const std::string& step : *plans) {
    EXPECT_THAT(step, HasSubstr("USING")) << "reads the whole table";
    EXPECT_THAT(step, testing::Not(HasSubstr("TEMP B-TREE"))) << "sorts it";
  }
}

TEST_F(RegistryTest, TenThousandJobsAreListedAndFound) {
  Registry registry = Open();
  {
    // In one transaction, as no launcher does: a test need not wait ten thousand times for the disk.
    const auto database = Database::Open(path_, 0);
    auto all = Transaction::Begin(*database);
    auto insert = database->Prepare(
        "INSERT INTO jobs(run_id, name, run_directory, working_directory, command, flags, environment, "
        "settings, host, detached, attempt, status, phase, message, created, launched, changed) VALUES(?1, "
        "?1, "
        "'/r', '/w', '{}', '{}', '{}', '{}', 'h', 0, 0, ?2, ?3, '', ?4, ?4, ?4)");
    TDBG_ASSERT_OK(insert);
    for (int64_t i = 0; i < 10'000; ++i) {
      TDBG_ASSERT_OK(insert->Bind(1, fmt::format("job-{}", i))
                         .Bind(2, i % 100 == 0 ? "InProgress" : "Completed")
                         .Bind(3, i % 100 == 0 ? "Training" : "Completed")
                         .Bind(4, i)
                         .Run());
    }
    TDBG_ASSERT_OK(all->Commit());
  }
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(registry.Find(fmt::format("job-{}", i * 97))->created_wall_nanos, i * 97);
  }
  const auto newest = registry.List();
  ASSERT_EQ(newest->size(), 100u);
  EXPECT_EQ(newest->front().name, "job-9999");
  JobQuery running;
  running.status = JobStatus::kInProgress;
  running.limit = 1000;
  EXPECT_EQ(registry.List(running)->size(), 100u);
  // Ten thousand rows read a hundred times would be seconds.
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(1));
}

// Records jobs one after the other for as long as it lives; says each transaction that was kept with a byte
// on `said`.
[[noreturn]] void RecordJobs(const std::string& path, const std::string& prefix, const JobRecord& like,
                             int said) {
  auto registry = Registry::Open(path);
  if (!registry.ok()) ::_exit(1);
  const auto kept = [said](char what, bool ok) {
    if (!ok || ::write(said, &what, 1) != 1) ::_exit(1);
  };
  for (int n = 0;; ++n) {
    JobRecord job = like;
    job.run_id = fmt::format("{}-{}", prefix, n);
    job.run_directory = "/runs/" + job.run_id;
    kept('L', registry->Launch(job, "", 1).ok());
    kept('T', registry->Move(job.run_id, JobPhase::kTraining, "", 2).ok());
    kept('E', registry->EndAttempt(job.run_id, 0, 0, "", 3).ok());
    kept('C', registry->Move(job.run_id, JobPhase::kCompleted, "", 4).ok());
  }
}

// Writers that die in the middle of anything: the file stays a registry, what was kept is there, and each job
// is whole.
TEST_F(RegistryTest, WritersThatAreKilledLeaveEachJobWhole) {
  Open();
  std::mt19937 random(7);
  size_t launched = 0;
  size_t completed = 0;
  const size_t rounds = 40;
  for (size_t round = 0; round < rounds; ++round) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    std::vector<pid_t> writers;
    for (int writer = 0; writer < 2; ++writer) {
      const pid_t pid = ::fork();
      if (pid == 0) {
        ::close(ends[0]);
        RecordJobs(path_, fmt::format("{}-{}", round, writer), Job(""), ends[1]);
      }
      writers.push_back(pid);
    }
    ::close(ends[1]);
    // However busy the machine: so many transactions, and then at any point of the next ones.
    const auto hear = [&] {
      char what = 0;
      if (::read(ends[0], &what, 1) != 1) return false;
      launched += what == 'L';
      completed += what == 'C';
      return true;
    };
    for (uint32_t wanted = random() % 8; wanted > 0 && hear(); --wanted) {
    }
    ::usleep(random() % 2'000);
    for (const pid_t pid : writers) {
      ::kill(pid, SIGKILL);
      int status = 0;
      ::waitpid(pid, &status, 0);
      EXPECT_TRUE(WIFSIGNALED(status)) << "a writer gave up in round " << round;
    }
    while (hear()) {
    }
    ::close(ends[0]);
  }
  const Registry registry = Open();
  auto check = Database::Open(path_, 0)->Prepare("PRAGMA integrity_check");
  ASSERT_TRUE(*check->Step());
  EXPECT_EQ(check->Text(0), "ok");
  JobQuery all;
  all.limit = 1'000'000;
  const auto jobs = registry.List(all);
  TDBG_ASSERT_OK(jobs);
  size_t ended = 0;
  for (const JobRecord& job : *jobs) {
    const auto transitions = registry.Transitions(job.id);
    const size_t expected = job.phase == JobPhase::kStarting ? 1 : job.phase == JobPhase::kTraining ? 2 : 3;
    ASSERT_EQ(transitions->size(), expected) << job.name;
    ASSERT_EQ(transitions->back().phase, job.phase);
    ASSERT_EQ(registry.Attempts(job.id)->size(), 1u);
    ended += job.phase == JobPhase::kCompleted;
  }
  // A writer may have died between what it kept and the byte that says so.
  EXPECT_GE(jobs->size(), launched);
  EXPECT_LE(jobs->size(), launched + 2 * rounds);
  EXPECT_GE(ended, completed);
  EXPECT_GT(completed, 0u);
}

TEST_F(RegistryTest, TheEndsOfManyJobsThatAreGoneAreOneWrite) {
  Registry registry = Open();
  const int jobs = 50;
  for (int i = 0; i < jobs; ++i) {
    JobRecord job = Job(fmt::format("r{}", i), "/nowhere/" + std::to_string(i));
    job.host = base::HostName();
    TDBG_ASSERT_OK(registry.Launch(job, "", 1));
    TDBG_ASSERT_OK(registry.Move(job.run_id, JobPhase::kTraining, "", 2));
  }
  auto listed = registry.List();
  TDBG_ASSERT_OK(listed);
  // SQLite's header counts the transactions that have changed the file.
  const auto writes = [this] {
    const std::string file = base::Slurp(path_);
    return static_cast<unsigned char>(file[26]) << 8 | static_cast<unsigned char>(file[27]);
  };
  const int before = writes();
  TDBG_ASSERT_OK(Reconcile(registry, *listed, 3));
  EXPECT_EQ(writes(), before + 1);
  for (const JobRecord& job : *listed) {
    EXPECT_EQ(job.status, JobStatus::kFailed);
    EXPECT_EQ(job.message, "the launcher and the run directory are gone");
    EXPECT_EQ(registry.Transitions(job.id)->size(), 3u);
  }
}

TEST(ProcessIdentityTest, IsOfOneProcessAndNotOfItsNumber) {
  ProcessIdentity self = IdentityOf(::getpid());
  EXPECT_TRUE(IsAlive(self));
  --self.start_ticks;
  EXPECT_FALSE(IsAlive(self));
  EXPECT_FALSE(IsAlive({}));
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(0);
  siginfo_t info;
  ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT);
  EXPECT_EQ(IdentityOf(pid).pid, 0) << "a zombie is no living process";
  ::waitpid(pid, nullptr, 0);
}

}  // namespace
}  // namespace tdbg::jobs
