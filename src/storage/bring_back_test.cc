// What becomes of a prefix that its uploader left in any state.
#include "storage/bring_back.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/testing.h"
#include "format/run_files.h"
#include "storage/directory_store.h"
#include "storage/upload_state.h"

namespace tdbg::storage {
namespace {

using testing::HasSubstr;

// Answers `fails` first.
class RefusingStore : public DirectoryStore {
 public:
  using DirectoryStore::DirectoryStore;
  Result<Object> Get(const std::string& key, std::optional<Range> range) override {
    if (Status failed = fails ? fails(key) : OkStatus(); !failed.ok()) return failed;
    return DirectoryStore::Get(key, range);
  }
  std::function<Status(const std::string&)> fails;
};

class BringBackTest : public testing::Test {
 protected:
  void SetUp() override {
    state_.run = "a-run";
    state_.host = "another";
    format::RunInfo run;
    run.id = "a-run";
    run.name = "a";
    Put("run.json", run.ToJson());
    PutAttempt(0, 10);
    Put("0/worker_0/worker.json", R"({"worker":"worker_0","journal_path":"/dev/shm/journal"})");
    Put("0/worker_0/segments/000000000000-000000000009.safetensors", std::string(300'000, 's'));
    Put("events.jsonl", "{\"kind\":\"a\"}\n{\"ki");
    Put("logs/attempt-0.out", "hello");
    Put("smdebug/collections/000000000/worker_0_collections.json", std::string(5'000'000, 'c'));
    PutState();
  }

  void Put(const std::string& name, const std::string& bytes) {
    TDBG_ASSERT_OK(
        store_.Put("bucket/run/" + name, std::as_bytes(std::span(bytes.data(), bytes.size())), {}));
  }
  void PutState() { Put("tdbg-upload.json", state_.ToJson()); }
  void PutAttempt(int64_t number, int64_t started) {
    format::AttemptInfo attempt;
    attempt.attempt = number;
    attempt.started_wall_nanos = started;
    Put(std::to_string(number) + "/attempt.json", attempt.ToJson());
  }
  void Delete(const std::string& name) { TDBG_ASSERT_OK(store_.Delete("bucket/run/" + name)); }

  Result<BroughtBack> Bring() {
    BringBackOptions options;
    options.from.path = "/bucket/run";
    options.directory = here_;
    options.say = [this](const std::string& what) { said_.push_back(what); };
    return BringBack(&store_, options, &bytes_);
  }
  std::string Read(const std::string& name) {
    const auto text = base::LocalFileSystem().ReadFile(here_ + "/" + name);
    return text.ok() ? *text : text.status().ToString();
  }
  bool IsHere(const std::string& name) { return base::LocalFileSystem().Exists(here_ + "/" + name); }

  base::ScratchDirectory scratch_;
  RefusingStore store_{scratch_ / "store"};
  const std::string here_ = scratch_ / "runs/a";
  UploadState state_;
  FetchedBytes bytes_;
  std::vector<std::string> said_;
};

TEST_F(BringBackTest, EverythingIsHereAfterwardsAndMayBeWrittenOn) {
  Put("launcher.lock", "x");
  Put("control", "not a control page");
  Put("checkpoints/sets/1", "a script's");
  const auto brought = Bring();
  TDBG_ASSERT_OK(brought);
  EXPECT_EQ(*brought, BroughtBack::kBrought);
  EXPECT_EQ(Read("0/worker_0/segments/000000000000-000000000009.safetensors"), std::string(300'000, 's'));
  EXPECT_EQ(Read("smdebug/collections/000000000/worker_0_collections.json"), std::string(5'000'000, 'c'));
  EXPECT_EQ(Read("logs/attempt-0.out"), "hello");
  EXPECT_EQ(Read("events.jsonl"), "{\"kind\":\"a\"}\n") << "half a line would be glued to the next one";
  EXPECT_THAT(Read("0/worker_0/worker.json"), HasSubstr("\"journal_path\":\"journal\""));
  EXPECT_TRUE(IsHere("0/worker_0/lock"));
  for (const char* const name : {"launcher.lock", "control", "checkpoints", "tdbg-upload.json"})
    EXPECT_FALSE(IsHere(name)) << name;
  EXPECT_EQ(bytes_.done, bytes_.all);
  std::vector<std::string> beside;
  for (const auto& entry : std::filesystem::directory_iterator(scratch_ / "runs"))
    beside.push_back(entry.path().filename());
  EXPECT_THAT(beside, testing::ElementsAre("a"));
  EXPECT_EQ(*Bring(), BroughtBack::kIsHere);
}

TEST_F(BringBackTest, AnEmptyDirectoryIsTakenAndAnotherOneIsNot) {
  std::filesystem::create_directories(here_);
  EXPECT_EQ(*Bring(), BroughtBack::kBrought);
  std::filesystem::remove_all(here_);
  std::filesystem::create_directories(here_ + "/mine");
  EXPECT_EQ(Bring().status().code(), Code::kAlreadyExists);
  EXPECT_TRUE(IsHere("mine"));
}

TEST_F(BringBackTest, WhatWasInterruptedIsNoRunAndTheNextTryGoesOn) {
  for (const char* const name :
       {"worker_0_collections.json", "worker.json", "events.jsonl", "attempt.json"}) {
    store_.fails = [name](const std::string& key) {
      return key.ends_with(name) ? Unavailable("the store fails") : OkStatus();
    };
    EXPECT_EQ(Bring().status().code(), Code::kUnavailable) << name;
    EXPECT_FALSE(std::filesystem::exists(here_)) << name;
  }
  std::vector<std::string> fetched;
  store_.fails = [&](const std::string& key) {
    fetched.push_back(key);
    return OkStatus();
  };
  EXPECT_EQ(*Bring(), BroughtBack::kBrought);
  EXPECT_EQ(Read("0/worker_0/segments/000000000000-000000000009.safetensors"), std::string(300'000, 's'));
}

TEST_F(BringBackTest, WhatIsMissingOrDamagedIsAnErrorThatNamesIt) {
  state_.complete = true;
  state_.files = 8;
  PutState();
  EXPECT_THAT(Bring().status().message(), HasSubstr("1 of the 8 files of the run are missing"));
  state_.files = 7;
  PutState();
  store_.fails = [](const std::string& key) {
    return key.ends_with("attempt-0.out") ? NotFound("gone") : OkStatus();
  };
  EXPECT_THAT(Bring().status().message(), HasSubstr("logs/attempt-0.out is listed and cannot be read"));
  store_.fails = {};
  Put("0/worker_0/journal.parts/00000001-00000001-00000000000000000000-00000000000000000064", "short");
  EXPECT_EQ(Bring().status().code(), Code::kDataLoss);
  Delete("0/worker_0/journal.parts/00000001-00000001-00000000000000000000-00000000000000000064");
  Put("run.json", "{");
  EXPECT_FALSE(Bring().ok());
  Put("tdbg-upload.json", "[]");
  EXPECT_FALSE(Bring().ok());
  EXPECT_FALSE(std::filesystem::exists(here_));
}

TEST_F(BringBackTest, AnUploaderThatWasCutOffAtItsFirstLookHasBegunTheRunAllTheSame) {
  Delete("run.json");
  EXPECT_EQ(*Bring(), BroughtBack::kBrought);
  const auto run = format::RunInfo::FromJson(Read("run.json"));
  TDBG_ASSERT_OK(run);
  EXPECT_EQ(run->id, "a-run");
  EXPECT_EQ(run->name, "a");
}

TEST_F(BringBackTest, ADirectoryWhoseRunWentOnElsewhereIsBehind) {
  EXPECT_EQ(*Bring(), BroughtBack::kBrought);
  std::filesystem::create_directories(here_ + "/1");
  format::AttemptInfo attempt;
  attempt.attempt = 1;
  attempt.started_wall_nanos = 20;
  TDBG_ASSERT_OK(base::LocalFileSystem().WriteFileAtomic(here_ + "/1/attempt.json", attempt.ToJson()));
  EXPECT_EQ(*Bring(), BroughtBack::kIsHere) << "one attempt more than the bucket";
  PutAttempt(1, 20);
  EXPECT_EQ(*Bring(), BroughtBack::kIsHere);
  PutAttempt(1, 30);
  EXPECT_EQ(*Bring(), BroughtBack::kBehind) << "another attempt of that number";
  PutAttempt(1, 20);
  PutAttempt(2, 40);
  EXPECT_EQ(*Bring(), BroughtBack::kBehind);
  state_.run = "another-run";
  PutState();
  EXPECT_EQ(Bring().status().code(), Code::kAlreadyExists);
}

TEST_F(BringBackTest, AnUploaderThatBeatsKeepsItsPrefix) {
  state_.following = true;
  state_.process = ThisProcess();
  PutState();
  int looks = 0;
  store_.fails = [&](const std::string& key) {
    if (key.ends_with("tdbg-upload.json") && ++looks == 2) {
      store_.fails = {};
      state_.beat_millis = 1;  // another object of the same run
      PutState();
    }
    return OkStatus();
  };
  EXPECT_THAT(Bring().status().message(), HasSubstr("is being filled by another process, on another"));
  EXPECT_EQ(said_.size(), 1u);
  EXPECT_FALSE(std::filesystem::exists(here_));
}

TEST_F(BringBackTest, AnUploaderOfThisMachineThatIsGoneIsNotWaitedFor) {
  state_.following = true;
  std::string process = ThisProcess();
  process.back() = process.back() == '0' ? '1' : '0';  // of that number now, and not of that time
  state_.process = process;
  EXPECT_TRUE(state_.UploaderIsGone());
  PutState();
  EXPECT_EQ(*Bring(), BroughtBack::kBrought);
  EXPECT_TRUE(said_.empty());
  for (const char* const unknown : {"", "x", "other-boot pid:[1] 1 1"}) {
    state_.process = unknown;
    EXPECT_FALSE(state_.UploaderIsGone()) << unknown;
  }
}

TEST_F(BringBackTest, APrefixWithoutARunHasNone) {
  Delete("tdbg-upload.json");
  EXPECT_EQ(*Bring(), BroughtBack::kNoRun);
}

}  // namespace
}  // namespace tdbg::storage
