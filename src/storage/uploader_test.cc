// What an uploader says of itself and of the processes that it saw, while it sends.
#include "storage/uploader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <iterator>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/testing.h"
#include "format/run_files.h"
#include "storage/directory_store.h"

namespace tdbg::storage {
namespace {

// Keeps every state that is written, and lets a test look in before a file is sent.
class WatchedStore : public DirectoryStore {
 public:
  using DirectoryStore::DirectoryStore;
  Result<ObjectInfo> Put(const std::string& key, std::span<const std::byte> bytes,
                         const Condition& condition) override {
    auto put = DirectoryStore::Put(key, bytes, condition);
    if (put.ok() && lost_answers > 0 && lost_answers-- > 0) return Unavailable("no answer");
    if (!key.ends_with(kStateFile) || !put.ok()) return put;
    const auto state = UploadState::FromJson({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    const std::lock_guard guard(mutex_);
    states_.push_back(state.ok() ? *state : UploadState());
    changed_.notify_all();
    if (after_state) after_state(states_.back());
    return put;
  }
  Result<ObjectInfo> PutFile(const std::string& key, const std::string& path, uint64_t bytes) override {
    if (before_file) before_file(key);
    return DirectoryStore::PutFile(key, path, bytes);
  }
  /// Waits for that many states; false: they did not come.
  bool WaitForStates(size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [&] { return states_.size() >= count; });
  }
  std::vector<UploadState> states() {
    const std::lock_guard guard(mutex_);
    return states_;
  }
  std::function<void(const std::string&)> before_file;
  std::function<void(const UploadState&)> after_state;
  std::atomic<int> lost_answers{0};  ///< so many objects are written, and nobody is told

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<UploadState> states_;
};

class UploaderTest : public testing::Test {
 protected:
  void SetUp() override {
    format::RunInfo run;
    run.id = "a-run";
    Write("run.json", run.ToJson());
    Write("plan.json", "{}");
  }
  void Write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = scratch_ / ("run/" + name);
    std::filesystem::create_directories(path.parent_path());
    base::Spill(path.string(), text);
  }
  UploadOptions Options(int64_t every_millis) {
    UploadOptions options;
    options.run_directory = scratch_ / "run";
    options.to.path = "/bucket/run";
    options.every_millis = options.beat_millis = every_millis;
    options.files_at_once = 1;
    options.say = [](const std::string&) {};
    return options;
  }

  std::string There(const std::string& name) {
    const auto object = store_.Get("bucket/run/" + name, {});
    return object.ok() ? object->bytes : object.status().message();
  }

  base::ScratchDirectory scratch_;
  WatchedStore store_{scratch_ / "store"};
};

TEST_F(UploaderTest, AFileThatTakesLongDoesNotMakeItSilent) {
  Uploader uploader(&store_, Options(10));
  TDBG_ASSERT_OK(uploader.Claim());
  store_.before_file = [&](const std::string& key) {
    if (!key.ends_with("plan.json")) return;
    EXPECT_TRUE(store_.WaitForStates(3)) << "nothing is said while it is sent";
  };
  TDBG_ASSERT_OK(uploader.SendAll());
  const std::vector<UploadState> states = store_.states();
  EXPECT_TRUE(states[1].following);
  EXPECT_FALSE(states.back().following);
  EXPECT_TRUE(states.back().complete);
}

TEST_F(UploaderTest, AWorkerThatEndsWhileItSendsIsNotCalledDeadBeforeItsEndIsThere) {
  Write("0/worker_0/worker.json", "{}");
  auto lock = base::LocalFileSystem().Lock(scratch_ / "run/0/worker_0/lock");
  ASSERT_TRUE(lock.ok());
  Uploader uploader(&store_, Options(20));
  TDBG_ASSERT_OK(uploader.Claim());
  store_.before_file = [&](const std::string&) {  // the rest of the run was listed before
    if (*lock) Write("its end", "x");
    lock->reset();
  };
  store_.after_state = [&](const UploadState& state) {
    EXPECT_TRUE(!state.held.empty() || store_.Head("bucket/run/its end").ok());
    if (state.held.empty()) uploader.Stop();
  };
  TDBG_ASSERT_OK(uploader.Follow());
  const std::vector<UploadState> states = store_.states();
  EXPECT_TRUE(states[0].following);
  EXPECT_EQ(states[0].held, std::vector<std::string>{"0/worker_0/lock"});
  EXPECT_TRUE(states.back().complete);
}

// Whose launcher was killed, or who never had one: `tdbg upload` of a training that goes on.
TEST_F(UploaderTest, ARunThatGoesOnIsNotCalledComplete) {
  Write("0/worker_0/worker.json", "{}");
  for (const std::string name : {"launcher.lock", "0/worker_0/lock"}) {
    auto lock = base::LocalFileSystem().Lock(scratch_ / ("run/" + name));
    ASSERT_TRUE(lock.ok());
    Uploader uploader(&store_, Options(20));
    TDBG_ASSERT_OK(uploader.Claim());
    TDBG_ASSERT_OK(uploader.SendAll());
    EXPECT_TRUE(uploader.goes_on());
    const UploadState said = store_.states().back();
    EXPECT_FALSE(said.complete);
    EXPECT_TRUE(said.following && said.left);
    EXPECT_EQ(said.held, std::vector<std::string>{name});
  }
  Uploader again(&store_, Options(20));  // at once: the one before has ended
  TDBG_ASSERT_OK(again.Claim());
  TDBG_ASSERT_OK(again.SendAll());
  EXPECT_FALSE(again.goes_on());
  EXPECT_TRUE(store_.states().back().complete);
}

TEST_F(UploaderTest, ATrainingWhoseLauncherIsGoneIsFollowedToItsEnd) {
  Write("0/worker_0/worker.json", "{}");
  auto lock = base::LocalFileSystem().Lock(scratch_ / "run/0/worker_0/lock");
  ASSERT_TRUE(lock.ok());
  Uploader uploader(&store_, Options(20));
  TDBG_ASSERT_OK(uploader.Claim());
  uploader.Stop();
  int passes = 0;
  store_.after_state = [&](const UploadState& state) {
    EXPECT_TRUE(state.following || *lock == nullptr);
    if (++passes == 5) lock->reset();
  };
  TDBG_ASSERT_OK(uploader.Follow());
  EXPECT_GE(passes, 6);
  EXPECT_TRUE(store_.states().back().complete);
}

TEST_F(UploaderTest, AnotherLauncherThatTakesATrainingOverGetsThePrefix) {
  Write("0/worker_0/worker.json", "{}");
  const auto worker = base::LocalFileSystem().Lock(scratch_ / "run/0/worker_0/lock");
  ASSERT_TRUE(worker.ok());
  std::unique_ptr<base::FileLock> launcher;
  Uploader uploader(&store_, Options(20));
  TDBG_ASSERT_OK(uploader.Claim());
  uploader.Stop();
  int passes = 0;
  store_.after_state = [&](const UploadState&) {
    if (++passes == 3) launcher = *base::LocalFileSystem().Lock(scratch_ / "run/launcher.lock");
  };
  TDBG_ASSERT_OK(uploader.Follow());
  EXPECT_TRUE(store_.states().back().left);
  Uploader theirs(&store_, Options(20));
  TDBG_EXPECT_OK(theirs.Claim());
}

// A script of smdebug's has its files in the run itself, `tdbg run --format smdebug` in a folder there.
TEST_F(UploaderTest, AnExportIsSentInTheOrderOfItsReadersWhereverItLies) {
  const std::string event = "events/000000000000/000000000000_worker_0.tfevents";
  const std::string index = "index/000000000/000000000000_worker_0.json";
  const std::string end = "training_job_end.ts";
  for (const std::string folder : {"", "smdebug/"}) {
    for (const std::string& name : {end, event, index}) Write(folder + name, "{}");
  }
  std::vector<std::string> sent;
  store_.before_file = [&](const std::string& key) { sent.push_back(key); };
  {
    Uploader uploader(&store_, Options(10'000));
    TDBG_ASSERT_OK(uploader.Claim());
    TDBG_ASSERT_OK(uploader.SendAll());
  }
  const auto place = [&](const std::string& name) {
    return std::ranges::find(sent, "bucket/run/" + name) - sent.begin();
  };
  const auto all = std::ssize(sent);
  for (const std::string folder : {"", "smdebug/"}) {
    EXPECT_LT(place(folder + event), place(folder + index));
    EXPECT_LT(place(folder + index), place(folder + end));
    EXPECT_LT(place(folder + end), all) << "it was not sent";
    std::filesystem::remove(scratch_ / ("run/" + folder + end));
  }
  Uploader again(&store_, Options(10'000));
  TDBG_ASSERT_OK(again.Claim());
  for (const std::string folder : {"", "smdebug/"})
    EXPECT_FALSE(store_.Head("bucket/run/" + folder + end).ok()) << "the training goes on";
}

// By a lifecycle rule, by hand, by a store that loses what it took.
TEST_F(UploaderTest, WhatIsNotThereAsItWasSentAtTheEndIsSentAgain) {
  for (const std::string name : {"a", "b", "c"}) Write(name, "as it was");
  Uploader uploader(&store_, Options(20));
  TDBG_ASSERT_OK(uploader.Claim());
  std::vector<std::string> sent;
  store_.before_file = [&](const std::string& key) {
    sent.push_back(key);
    if (key != "bucket/run/run.json") return;  // the last one
    TDBG_EXPECT_OK(store_.Delete("bucket/run/a"));
    const std::string other = "no, it is";
    TDBG_EXPECT_OK(store_.Put("bucket/run/b", std::as_bytes(std::span(other)), {}));
  };
  TDBG_ASSERT_OK(uploader.SendAll());
  for (const std::string name : {"a", "b", "c"}) EXPECT_EQ(There(name), "as it was");
  EXPECT_EQ(std::ranges::count(sent, "bucket/run/c"), 1);
  EXPECT_EQ(uploader.totals().files_there, 5u);
  EXPECT_EQ(store_.states().back().bytes, static_cast<int64_t>(uploader.totals().bytes_there));
}

TEST_F(UploaderTest, AFileThatBecomesShorterWhileTheRestIsSentIsSentAsItIs) {
  Write("log", "a long one");
  Uploader uploader(&store_, Options(20));
  TDBG_ASSERT_OK(uploader.Claim());
  store_.before_file = [&](const std::string& key) {
    if (key == "bucket/run/log") Write("log", "short");
  };
  TDBG_ASSERT_OK(uploader.SendAll());
  EXPECT_EQ(There("log"), "short");
}

TEST_F(UploaderTest, AStateWhoseAnswerWasLostIsNotTakenForAnothersState) {
  Uploader uploader(&store_, Options(10'000));
  TDBG_ASSERT_OK(uploader.Claim());
  store_.lost_answers = 1;
  TDBG_ASSERT_OK(uploader.SendAll());
  EXPECT_TRUE(store_.states().back().complete);
  EXPECT_EQ(uploader.totals().failed_passes, 1u);
}

TEST_F(UploaderTest, OneWhosePrefixAnotherHasTakenEnds) {
  Uploader uploader(&store_, Options(10'000));
  TDBG_ASSERT_OK(uploader.Claim());
  UploadState other = store_.states().back();
  other.uploader = "another";
  const std::string text = other.ToJson(), key = "bucket/run/" + std::string(kStateFile);
  TDBG_ASSERT_OK(store_.Put(key, std::as_bytes(std::span(text)), {}));
  EXPECT_EQ(uploader.SendAll().code(), Code::kAlreadyExists);
}

}  // namespace
}  // namespace tdbg::storage
