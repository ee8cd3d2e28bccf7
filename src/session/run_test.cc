// What a run does to directories, processes and requests. What it keeps is read back in tests/roundtrip.
#include "tdbg/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/file.h"
#include "base/testing.h"
#include "format/run_files.h"
#include "plan/plan.h"

namespace tdbg {
namespace {

namespace fs = std::filesystem;
using TheRun = tdbg::Run;  // a fixture has a Run of its own
using testing::HasSubstr;
using testing::Not;

class RunTest : public testing::Test {
 protected:
  RunTest() {
    ::unsetenv("TDBG_RUN");
    ::unsetenv("TDBG_ATTEMPT");
    char pattern[] = "/tmp/tdbg-run-test-XXXXXX";
    scratch_ = ::mkdtemp(pattern);
    directory_ = scratch_ + "/run";
  }
  ~RunTest() override { fs::remove_all(scratch_); }

  RunOptions Options(int64_t rank = 0) {
    plan::Plan plan = plan::Plan::Default();
    plan.journal_bytes = 1u << 20;
    RunOptions options;
    options.directory = directory_;
    options.plan_json = plan.ToJson();
    options.rank = rank;
    return options;
  }
  std::unique_ptr<TheRun> Open(int64_t rank = 0) {
    auto run = TheRun::Open(Options(rank));
    EXPECT_TRUE(run.ok()) << run.status().ToString();
    return run.ok() ? *std::move(run) : nullptr;
  }
  int opened_ = 0;
  static void Step(TheRun* run) {
    const auto w = run->Define({.name = "w", .kind = "weight", .dtype = DType::kFloat32, .shape = {1}});
    const float value = 1;
    const int64_t shape[] = {1};
    if (run->BeginStep(ModeKey::kTrain)) run->Put(w, {&value, DType::kFloat32, shape, {}});
    run->EndStep();
  }
  /// The exit code of `body` in a forked child, or -signal. A child that hangs is killed by its alarm.
  static int InChild(const std::function<int()>& body) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20);
      ::_exit(body());
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  void Request(const std::string& line) {
    const std::string path = directory_ + "/control";
    ASSERT_TRUE(base::LocalFileSystem().AppendLine(path, line).ok());
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    uint64_t generation = 0;
    file.seekg(format::kControlGenerationOffset).read(reinterpret_cast<char*>(&generation), 8);
    ++generation;
    file.seekp(format::kControlGenerationOffset).write(reinterpret_cast<char*>(&generation), 8);
  }
  nlohmann::json Json(const std::string& path) {
    return nlohmann::json::parse(std::ifstream(directory_ + "/" + path), nullptr, false);
  }

  std::string scratch_, directory_;
};

TEST_F(RunTest, TheFirstWorkerMakesTheDirectoryARun) {
  auto options = Options();
  options.command = {"python", "train.py"};
  options.step_base = 40;
  options.world_size = 2;
  auto run = *TheRun::Open(options);
  EXPECT_EQ(run->directory(), directory_);
  EXPECT_EQ(run->attempt(), 0);
  EXPECT_EQ(run->global_step(), 39);
  EXPECT_EQ(Json("run.json")["command"][1], "train.py");
  for (const char* file : {"0/attempt.json", "0/worker_0/worker.json"}) {
    EXPECT_EQ(Json(file)["step_base"], 40) << file;
    EXPECT_EQ(Json(file)["world_size"], 2) << file;
  }
  EXPECT_EQ(Json("plan.json"), nlohmann::json::parse(options.plan_json));
  EXPECT_TRUE(fs::exists(directory_ + "/control"));
}

TEST_F(RunTest, AnAttemptFileThatIsThereIsLeftAlone) {
  const std::string file = directory_ + "/0/attempt.json";
  const std::string launchers = R"({"format": {"major": 1, "minor": 1}, "kind": "attempt", "attempt": 0})";
  fs::create_directories(directory_ + "/0");
  std::ofstream(file) << launchers;
  auto options = Options();
  options.among_other_files = true;
  options.rank = 1;
  options.world_size = 2;
  options.step_base = 40;
  const auto run = *TheRun::Open(options);
  EXPECT_EQ(base::Slurp(file), launchers);
  EXPECT_EQ(Json("0/worker_1/worker.json")["world_size"], 2);
  EXPECT_EQ(Json("0/worker_1/worker.json")["step_base"], 40);
}

TEST_F(RunTest, ARunThatEndedGetsAFurtherAttempt) {
  Open()->End("completed");
  const auto run = Open();
  EXPECT_EQ(run->attempt(), 1);
  EXPECT_EQ(run->directory(), directory_);
  EXPECT_EQ(Json("1/attempt.json")["parent"], 0);
}

TEST_F(RunTest, TheWorkersOfAnAttemptBeginAtOneStep) {
  const auto rank = [this](int64_t number, int64_t base,
                           std::vector<std::pair<ModeKey, int64_t>> modes = {}) {
    RunOptions options = Options();
    options.rank = number;
    options.world_size = 4;
    options.step_base = base;
    options.mode_step_bases = std::move(modes);
    if (base >= 0) options.step_base_from = "script";
    options.step_base = std::max<int64_t>(0, base);
    return *TheRun::Open(options);
  };
  const auto first = rank(1, 12, {{ModeKey::kTrain, 10}, {ModeKey::kEval, 2}});
  // One that is told nothing, one that is told something else, and one that is told the same.
  const auto silent = rank(0, -1), other = rank(2, 7), same = rank(3, 12, {{ModeKey::kTrain, 11}});
  for (const TheRun* run : {first.get(), silent.get(), other.get(), same.get()}) {
    EXPECT_EQ(run->global_step(), 11);
    EXPECT_EQ(run->mode_step(ModeKey::kTrain), run == same.get() ? 10 : 9);
    EXPECT_EQ(run->mode_step(ModeKey::kEval), run == same.get() ? -1 : 1);
  }
  EXPECT_EQ(Json("0/worker_0/worker.json")["step_base_from"], "script");
  EXPECT_EQ(Json("0/worker_2/worker.json")["step_base"], 12);
  EXPECT_EQ(Json("0/worker_2/worker.json")["step_base_said"], 7);
  for (const char* file : {"0/worker_0/worker.json", "0/worker_1/worker.json", "0/worker_3/worker.json"})
    EXPECT_FALSE(Json(file).contains("step_base_said")) << file;
}

TEST_F(RunTest, AnAttemptBeginsWhereItsCallerSaysElseBehindWhatIsThere) {
  ASSERT_EQ(InChild([&] {
              const auto run = Open();
              for (int i = 0; i < 3; ++i) Step(run.get());
              ::raise(SIGKILL);  // its steps are in the journal alone
              return 0;
            }),
            -SIGKILL);
  {
    const auto run = Open();
    EXPECT_EQ(run->global_step(), 2) << "the step before its first";
    EXPECT_EQ(run->mode_step(ModeKey::kEval), 2);
    EXPECT_EQ(Json("1/worker_0/worker.json")["step_base"], 3);
    EXPECT_EQ(Json("1/worker_0/worker.json")["step_base_from"], "behind");
    Step(run.get());
    run->End("completed");
  }
  // As a launcher leaves it, with steps that nobody else knows of; and one that says nothing that can be
  // read.
  fs::create_directories(directory_ + "/2");
  base::Spill(
      directory_ + "/2/earlier_steps.json",
      R"({"kind": "earlier_steps", "next_step": 9, "spans": [["TRAIN",0,0,6,false],["EVAL",6,0,2,false]]})");
  {
    const auto run = Open();
    EXPECT_EQ(run->attempt(), 2);
    EXPECT_EQ(run->global_step(), 8);
    EXPECT_EQ(run->mode_step(ModeKey::kTrain), 5);
    EXPECT_EQ(run->mode_step(ModeKey::kEval), 1);
    Step(run.get());
    run->End("completed");
  }
  fs::create_directories(directory_ + "/3");
  base::Spill(directory_ + "/3/earlier_steps.json", R"({"next_step": -4, "spans": [[1]]})");
  fs::remove(directory_ + "/2/worker_0/journal");  // on another host's disk, say: segments are left
  {
    const auto run = Open();
    EXPECT_EQ(run->global_step(), 9);
    run->End("completed");
  }
  RunOptions said = Options();
  said.step_base_from = "script";
  EXPECT_EQ((*TheRun::Open(said))->global_step(), -1) << "it says that it begins at step 0";
  said.step_base = 7;
  EXPECT_EQ((*TheRun::Open(said))->global_step(), 6);
}

TEST_F(RunTest, ATrainingWhoseDirectoryWasReplacedLeavesNoWordInTheNewOne) {
  const auto first = Open();
  Step(first.get());
  fs::remove_all(directory_);
  const auto second = Open();
  ASSERT_EQ(second->directory(), directory_);
  Step(second.get());
  first->End("completed");
  EXPECT_FALSE(fs::exists(directory_ + "/0/worker_0/ended.json"));
  EXPECT_TRUE(fs::is_empty(directory_ + "/0/worker_0/segments"));
  second->End("closed");
  EXPECT_EQ(Json("0/worker_0/ended.json")["reason"], "closed");
}

TEST_F(RunTest, OfALongLastMessageTheBeginningIsKept) {
  const auto end_of = [&](const std::string& message) {
    fs::remove_all(directory_);
    Open()->End("exception", message);
    for (const auto& entry : fs::directory_iterator(directory_ + "/0/worker_0/segments")) {
      std::ifstream file(entry.path(), std::ios::binary);
      const std::string text((std::istreambuf_iterator<char>(file)), {});
      uint64_t length = 0;
      std::memcpy(&length, text.data(), 8);
      const auto header = nlohmann::json::parse(text.substr(8, length));
      return nlohmann::json::parse(header["__metadata__"]["tdbg"].get<std::string>())["end"];
    }
    return nlohmann::json();
  };
  EXPECT_EQ(end_of("ValueError: small")["message"], "ValueError: small");
  for (const char filler : {'x', '\x01', '\xff'}) {
    const auto end = end_of("ValueError: " + std::string(100'000, filler));
    EXPECT_EQ(end["reason"], "exception");
    EXPECT_THAT(end["message"].get<std::string>(), testing::StartsWith("ValueError: "));
    EXPECT_LE(end.dump().size(), 2048u);
    EXPECT_GT(end.dump().size(), 1000u);
  }
}

TEST_F(RunTest, RanksOfOneStartShareAnAttempt) {
  const auto first = Open(0);
  const auto second = Open(1);
  EXPECT_EQ(first->attempt(), second->attempt());
  EXPECT_EQ(first->directory(), second->directory());
}

TEST_F(RunTest, ARankThatMeetsTheRunHalfMadeWaitsForIt) {
  const std::string made = directory_;
  Open(0).reset();
  directory_ = scratch_ + "/half";
  // What another rank has done so far: its attempt is there, run.json is not.
  fs::create_directories(directory_ + "/0/worker_0");
  auto opening = base::LocalFileSystem().Lock(directory_ + "/open.lock");
  ASSERT_TRUE(opening.ok());
  std::unique_ptr<TheRun> run;
  std::thread rank([&] { run = Open(1); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  fs::copy_file(made + "/run.json", directory_ + "/run.json");
  opening->reset();
  rank.join();
  ASSERT_NE(run, nullptr);
  EXPECT_EQ(run->directory(), directory_);
}

TEST_F(RunTest, AnotherTrainingBesideALivingOneGetsARunOfItsOwn) {
  const auto first = Open();
  const auto second = Open();
  const auto third = Open();
  EXPECT_EQ(second->directory(), directory_ + "-2");
  EXPECT_EQ(third->directory(), directory_ + "-3");
  EXPECT_TRUE(fs::exists(directory_ + "-2/plan.json"));
  auto options = Options();
  options.sibling_if_locked = false;
  EXPECT_EQ(TheRun::Open(options).status().code(), Code::kFailedPrecondition);
}

TEST_F(RunTest, ASecondTrainingOfTheSameStartGetsARunOfItsOwnEvenAfterTheFirst) {
  ::setenv("TDBG_ATTEMPT", "0", 1);
  Open()->End("completed");
  EXPECT_EQ(Open()->directory(), directory_ + "-2");
  EXPECT_EQ(Open()->directory(), directory_ + "-3");
}

TEST_F(RunTest, AWorkerThatDiedAndIsStartedAgainBecomesTheNextAttempt) {
  ::setenv("TDBG_ATTEMPT", "0", 1);
  ASSERT_EQ(InChild([&] {
              auto run = Open();
              Step(run.get());
              ::raise(SIGKILL);
              return 0;
            }),
            -SIGKILL);
  const auto run = Open();
  EXPECT_EQ(run->directory(), directory_);
  EXPECT_EQ(run->attempt(), 1);
}

TEST_F(RunTest, WhatAnEarlierAttemptLeftIsSealedInTheBackgroundAndALivingWorkerIsLeftAlone) {
  const auto dies_in_the_first_attempt = [&](int64_t rank) {
    ::setenv("TDBG_ATTEMPT", "0", 1);
    ASSERT_EQ(InChild([&] {
                const auto run = Open(rank);
                Step(run.get());
                ::raise(SIGKILL);
                return 0;
              }),
              -SIGKILL);
  };
  dies_in_the_first_attempt(0);
  dies_in_the_first_attempt(1);
  ::setenv("TDBG_ATTEMPT", "0", 1);
  const auto alive = Open(2);
  Step(alive.get());
  ::unsetenv("TDBG_ATTEMPT");
  const auto segments_of = [&](const std::string& worker) {
    const auto entries = base::LocalFileSystem().List(directory_ + "/" + worker + "/segments");
    return entries.ok() ? std::count_if(entries->begin(), entries->end(),
                                        [](const auto& e) { return !e.name.starts_with('.'); })
                        : 0;
  };
  ASSERT_EQ(segments_of("0/worker_0"), 0);
  ::setenv("TDBG_ATTEMPT", "1", 1);
  {
    const auto run = Open(0);
    ASSERT_EQ(run->attempt(), 1);
    ASSERT_EQ(run->directory(), directory_);
    for (int tries = 0; tries < 1000 && segments_of("0/worker_0") == 0; ++tries)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_EQ(segments_of("0/worker_0"), 1);
  }
  struct stat info{};
  ASSERT_EQ(::stat((directory_ + "/0/worker_0/journal").c_str(), &info), 0);
  EXPECT_EQ(info.st_size, 1 << 20);
  EXPECT_LT(info.st_blocks * 512, 64 << 10);
  EXPECT_EQ(segments_of("0/worker_1"), 0);  // that is rank 1's
  EXPECT_EQ(segments_of("0/worker_2"), 0);
  ASSERT_EQ(::stat((directory_ + "/0/worker_2/journal").c_str(), &info), 0);
  EXPECT_GE(info.st_blocks * 512, 1 << 20);
}

TEST_F(RunTest, TheEnvironmentSaysWhatLookingMayTakeAndWorkersOfOneJobLookAtTheSameSteps) {
  const auto overhead = [this](const char* said, int64_t world_size) {
    said == nullptr ? ::unsetenv("TDBG_OVERHEAD") : ::setenv("TDBG_OVERHEAD", said, 1);
    RunOptions options = Options();
    options.directory += "-" + std::to_string(++opened_);
    options.world_size = world_size;
    const auto run = TheRun::Open(options);
    EXPECT_TRUE(run.ok());
    const auto plan = plan::Plan::FromJson((*run)->plan_json());
    ::unsetenv("TDBG_OVERHEAD");
    return plan->overhead;
  };
  EXPECT_EQ(overhead(nullptr, 1), 0.05);
  EXPECT_EQ(overhead("7%", 1), 0.07);
  EXPECT_EQ(overhead("none", 1), 0);
  EXPECT_EQ(overhead("7", 1), 0.05) << "said, and left out";
  EXPECT_EQ(overhead(nullptr, 2), 0);
  EXPECT_EQ(overhead("7%", 2), 0);
}

TEST_F(RunTest, TheEnvironmentNamesTheRun) {
  ::setenv("TDBG_RUN", directory_.c_str(), 1);
  auto options = Options();
  options.directory.clear();
  EXPECT_EQ((*TheRun::Open(options))->directory(), directory_);
  ::unsetenv("TDBG_RUN");
  EXPECT_THAT(TheRun::Open(options).status().message(), HasSubstr("$TDBG_RUN"));
}

TEST_F(RunTest, RefusesAPlanThatIsNoneAndADirectoryOfSomethingElse) {
  auto options = Options();
  options.plan_json = "{}";
  EXPECT_EQ(TheRun::Open(options).status().code(), Code::kInvalidArgument);
  options = Options();
  options.directory = scratch_ + "/docs";
  fs::create_directory(options.directory);
  std::ofstream(options.directory + "/thesis.tex") << "x";
  EXPECT_EQ(TheRun::Open(options).status().code(), Code::kAlreadyExists);
  EXPECT_THAT(TheRun::Open(options).status().message(), HasSubstr("thesis.tex"));
}

TEST_F(RunTest, TheJournalLiesWhereThePlanSays) {
  plan::Plan plan = plan::Plan::Default();
  plan.journal_bytes = 1u << 20;
  plan.journal_directory = scratch_ + "/fast";
  auto options = Options();
  options.plan_json = plan.ToJson();
  const auto run = *TheRun::Open(options);
  const std::string path = Json("0/worker_0/worker.json")["journal_path"];
  EXPECT_THAT(path, HasSubstr(scratch_ + "/fast/tdbg-journal-"));
  EXPECT_TRUE(fs::exists(path));
}

TEST_F(RunTest, InAForkedChildEveryCallDoesNothingAndItsEndHarmsNobody) {
  auto run = Open();
  Step(run.get());
  const int code = InChild([&] {
    if (run->BeginStep(ModeKey::kTrain)) return 1;
    if (run->Define({.name = "x", .kind = "weight", .dtype = DType::kFloat32, .shape = {1}}) !=
        TheRun::kNotWanted)
      return 2;
    if (run->EndStep() != -1) return 3;
    if (!run->dropped().empty() || run->TakeRequest() || run->counters().steps != 0) return 4;
    run->End("completed");
    run.reset();
    return 0;
  });
  EXPECT_EQ(code, 0);
  EXPECT_FALSE(fs::exists(directory_ + "/0/worker_0/ended.json"));
  EXPECT_TRUE(base::LocalFileSystem().IsLocked(directory_ + "/0/worker_0/lock"));
  Step(run.get());
  EXPECT_EQ(run->counters().steps, 2u);
}

TEST_F(RunTest, AForkedChildMayTrainOnItsOwn) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "TSan cannot start threads in the child of a process that had some";
#elif defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "g++ 12's ASan forks with its allocator's locks held by whatever thread is in it";
#endif
  const auto run = Open();
  EXPECT_EQ(InChild([&] {
              auto own = Open();
              if (own == nullptr || own->directory() != directory_ + "-2") return 1;
              Step(own.get());
              own->End("completed");
              return own->dropped().empty() ? 0 : 2;
            }),
            0);
}

TEST_F(RunTest, ARequestIsTakenOnceByTheAttemptItIsFor) {
  {
    auto run = Open();
    Step(run.get());
    EXPECT_FALSE(run->TakeRequest());
    Request(R"({"id":"a","action":"stop","by":"user"})");
    const auto request = run->TakeRequest();
    ASSERT_TRUE(request);
    EXPECT_EQ(request->action, "stop");
    EXPECT_EQ(nlohmann::json::parse(request->json)["by"], "user");
    EXPECT_FALSE(run->TakeRequest());
    Request(R"({"id":"b","action":"capture","at_step":2})");
    EXPECT_FALSE(run->TakeRequest()) << "step 0 is not 2";
    Step(run.get());
    Step(run.get());
    EXPECT_TRUE(run->TakeRequest());
  }
  Request(R"({"id":"c","action":"stop"})");
  EXPECT_FALSE(Open()->TakeRequest()) << "asked of a process that is gone";
}

TEST_F(RunTest, AControlFileThatIsCutOffAsksForNothing) {
  auto run = Open();
  Step(run.get());
  ASSERT_EQ(::truncate((directory_ + "/control").c_str(), 0), 0);
  EXPECT_FALSE(run->TakeRequest());
  Step(run.get());
  EXPECT_FALSE(run->TakeRequest());
  EXPECT_TRUE(run->dropped().empty());
}

TEST_F(RunTest, APlanMayForbidToStop) {
  plan::Plan plan = plan::Plan::Default();
  plan.journal_bytes = 1u << 20;
  plan.allow_stop = false;
  auto options = Options();
  options.plan_json = plan.ToJson();
  auto run = *TheRun::Open(options);
  Request(R"({"id":"a","action":"stop","by":"user"})");
  EXPECT_FALSE(run->TakeRequest());
}

TEST_F(RunTest, AfterTheEndCallsDoNothingAndCountersStay) {
  auto run = Open();
  Step(run.get());
  run->End("completed");
  EXPECT_FALSE(run->BeginStep(ModeKey::kTrain));
  EXPECT_EQ(run->counters().steps, 1u);
  EXPECT_TRUE(run->dropped().empty());
  EXPECT_EQ(run->global_step(), 0);
}

TEST_F(RunTest, AnEndedRunHoldsNothingAndItsCountersStay) {
  auto run = Open();
  Step(run.get());
  run->CountDropped("device_late", 3, "cuda:0");
  const std::string journal = directory_ + "/0/worker_0/journal";
  ASSERT_THAT(base::Slurp("/proc/self/maps"), HasSubstr(journal));
  run->End("completed");
  // The object lives on, as one does in a notebook: neither the disk nor the address space may pay for it.
  struct stat info;
  ASSERT_EQ(::stat(journal.c_str(), &info), 0);
  EXPECT_LT(info.st_blocks * 512, 64 << 10);
  EXPECT_THAT(base::Slurp("/proc/self/maps"), Not(HasSubstr(journal)));
  EXPECT_FALSE(base::LocalFileSystem().IsLocked(directory_ + "/0/worker_0/lock"));
  ASSERT_EQ(run->dropped().size(), 1u);
  EXPECT_EQ(run->dropped()[0].count, 3u);
  EXPECT_GT(run->counters().bytes_sealed, 0u);
  run->End("again");
}

TEST_F(RunTest, NothingIsDroppedOfDefinitionsWithoutAValue) {
  auto run = Open();
  run->Define({.name = "w", .kind = "weight", .dtype = DType::kFloat32, .shape = {1}});
  run->End("completed");
  EXPECT_TRUE(run->dropped().empty());
}

TEST_F(RunTest, WhatAnAdaptorDroppedIsCountedByCause) {
  auto run = Open();
  Step(run.get());
  run->CountDropped("device_late", 3, "cuda:0");
  ASSERT_EQ(run->dropped().size(), 1u);
  EXPECT_EQ(run->dropped()[0].cause, "device_late");
  EXPECT_EQ(run->dropped()[0].count, 3u);
}

TEST_F(RunTest, ACauseThatIsNoneIsAnAdaptorsErrorAndSaysSo) {
  auto run = Open();
  Step(run.get());
  testing::internal::CaptureStderr();
  run->CountDropped("devise_late", 3, "cuda:0");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("devise_late"));
  ASSERT_EQ(run->dropped().size(), 1u);
  EXPECT_EQ(run->dropped()[0].cause, "adaptor_error");
  EXPECT_THAT(run->dropped()[0].text, HasSubstr("adaptor: cuda:0"));
}

TEST_F(RunTest, WhatWasDroppedIsSaidOnceWithHowMuchItIs) {
  plan::Plan plan = plan::Plan::Default();
  plan.journal_bytes = 1u << 20;
  for (plan::CollectionPlan& c : plan.collections) {
    if (c.name == "weights") c.raw[1] = plan::Schedule{.interval = 1};
  }
  RunOptions options = Options();
  options.plan_json = plan.ToJson();
  const auto run = *TheRun::Open(options);
  const std::vector<float> values(1u << 20);  // four times the journal
  const int64_t shape[] = {1 << 20};
  const auto w = run->Define({.name = "w", .kind = "weight", .dtype = DType::kFloat32, .shape = {1 << 20}});
  testing::internal::CaptureStderr();
  for (int step = 0; step < 2; ++step) {
    if (run->BeginStep(ModeKey::kTrain)) run->Put(w, {values.data(), DType::kFloat32, shape, {}});
    run->EndStep();
  }
  run->End("completed");
  std::string said = testing::internal::GetCapturedStderr();
  for (size_t at; (at = said.find("\n      ")) != std::string::npos;) said.replace(at, 7, " ");  // wrapped
  EXPECT_THAT(said, HasSubstr("since step 0: One step's raw tensors do not fit"));
  EXPECT_THAT(said, testing::ContainsRegex("Dropped so far: [12] raw \\("));
}

}  // namespace
}  // namespace tdbg
