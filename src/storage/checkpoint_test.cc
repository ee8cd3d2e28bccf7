// Checkpoints go into a store as sets that are whole or absent, and come back.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/posix.h"
#include "base/testing.h"
#include "storage/checkpoint_restore.h"
#include "storage/checkpoint_sender.h"
#include "storage/checkpoint_sets.h"
#include "storage/directory_store.h"
#include "storage/upload_state.h"

namespace tdbg::storage {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

// Counts what is sent, and lets a test act before a file is.
class CountingStore : public DirectoryStore {
 public:
  using DirectoryStore::DirectoryStore;
  Result<ObjectInfo> Put(const std::string& key, std::span<const std::byte> bytes,
                         const Condition& condition) override {
    if (down) return Unavailable("away");
    if (before) before(key);
    if (key.find("/files/") != std::string::npos) ++files;
    auto put = DirectoryStore::Put(key, bytes, condition);
    if (put.ok() && lost_answers > 0 && key.find("/sets/") != std::string::npos && lost_answers-- > 0)
      return Status(Code::kAlreadyExists, "the first answer was lost");
    return put;
  }
  Result<ObjectInfo> PutFile(const std::string& key, const std::string& path, uint64_t bytes) override {
    if (before) before(key);
    ++files;
    return DirectoryStore::PutFile(key, path, bytes);
  }
  Status Delete(const std::string& key) override {
    if (!may_delete) return FailedPrecondition("not allowed to delete");
    return DirectoryStore::Delete(key);
  }
  Result<Object> Get(const std::string& key, std::optional<Range> range) override {
    if (!away.empty() && key.find(away) != std::string::npos) return Unavailable("away");
    return DirectoryStore::Get(key, range);
  }
  std::function<void(const std::string&)> before;
  std::string away;  ///< keys that cannot be read
  std::atomic<int> files{0}, lost_answers{0};
  bool may_delete = true;
  std::atomic<bool> down{false};
};

class CheckpointTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(directory_);
    Claim("uploader");
  }
  void Claim(const std::string& uploader) {
    UploadState state;
    state.run = "run";
    state.uploader = uploader;
    const std::string text = state.ToJson();
    TDBG_ASSERT_OK(store_.Put("bucket/r/tdbg-upload.json", std::as_bytes(std::span(text)), {}));
  }
  void Write(const std::string& name, const std::string& text) {
    fs::create_directories((fs::path(directory_) / name).parent_path());
    base::Spill(directory_ + "/" + name, text);
  }
  // As a script that is careful: readers see the old file or the new one.
  void Replace(const std::string& name, const std::string& text) {
    Write(name + ".tmp", text);
    fs::rename(directory_ + "/" + name + ".tmp", directory_ + "/" + name);
  }
  CheckpointOptions Options() {
    CheckpointOptions options;
    options.directory = directory_;
    options.run = run_;
    options.run_id = "run";
    options.every_millis = 50;
    options.grace_millis = 0;
    options.say = [this](const std::string& what) { said_.push_back(what); };
    return options;
  }
  CheckpointSender Sender() { return {&store_, Options()}; }
  Result<Restored> Restore(const std::string& name = "back") {
    RestoreOptions options;
    options.run = run_;
    options.directory = scratch_ / name;
    options.say = [this](const std::string& what) { said_.push_back(what); };
    return RestoreCheckpoints(&store_, options);
  }
  std::string Back(const std::string& name) { return base::Slurp(scratch_ / ("back/" + name)); }
  std::vector<std::string> Names(const std::string& directory) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory)) names.push_back(entry.path().filename());
    std::ranges::sort(names);
    return names;
  }
  size_t ObjectCount() { return Names(scratch_ / "store/bucket/r/checkpoints/files").size(); }
  std::string ObjectOf(const std::string& text) {
    for (const auto& entry : fs::directory_iterator(scratch_ / "store/bucket/r/checkpoints/files"))
      if (base::Slurp(entry.path()) == text) return entry.path();
    return "";
  }

  base::ScratchDirectory scratch_;
  CountingStore store_{scratch_ / "store"};
  std::string directory_ = scratch_ / "ckpt";
  Location run_{.s3 = true, .bucket = "b", .path = "bucket/r"};
  std::vector<std::string> said_;
};

TEST_F(CheckpointTest, WhatWasThereComesBackAndNothingElse) {
  const std::vector<std::string> names = {"a b",   "n\xc3\xa4me",        "two\nlines", "\xff\xfe",
                                          "empty", "step-500/shard 1/x", "model.pt"};
  for (const std::string& name : names) Write(name, name == "empty" ? "" : "content of " + name);
  Write("model.pt.tmp", "half");
  Write("folder.tmp/x", "half");
  Write("large", std::string(9u << 20, 'x') + "end");
  fs::create_directories(directory_ + "/empty folder/inside");
  fs::create_symlink("step-500", directory_ + "/latest");
  base::Spill(scratch_ / "secret", "not yours");
  fs::create_symlink("../secret", directory_ + "/out");
  fs::create_symlink(scratch_ / "secret", directory_ + "/away");
  const timespec times[2] = {{1'000'000'000, 5}, {1'000'000'000, 123'456'789}};
  ASSERT_EQ(::utimensat(AT_FDCWD, (directory_ + "/model.pt").c_str(), times, 0), 0);
  ASSERT_EQ(::utimensat(AT_FDCWD, (directory_ + "/step-500").c_str(), times, 0), 0);
  TDBG_ASSERT_OK(Sender().SendLast());
  EXPECT_THAT(said_, ElementsAre(HasSubstr("away leads out"), HasSubstr("out leads out")));

  const auto restored = Restore();
  TDBG_ASSERT_OK(restored);
  EXPECT_EQ(restored->number, 1u);
  for (const std::string& name : names) EXPECT_EQ(Back(name), base::Slurp(directory_ + "/" + name)) << name;
  EXPECT_EQ(Back("large"), base::Slurp(directory_ + "/large"));
  EXPECT_EQ(Back("latest/shard 1/x"), "content of step-500/shard 1/x");
  EXPECT_TRUE(fs::is_directory(scratch_ / "back/empty folder/inside"));
  auto expected = Names(directory_);
  std::erase_if(expected, [](const std::string& name) {
    return name.ends_with(".tmp") || name == "out" || name == "away";
  });
  EXPECT_EQ(Names(scratch_ / "back"), expected);
  for (const char* const name : {"model.pt", "step-500"}) {
    struct stat info;
    ASSERT_EQ(::stat((scratch_ / ("back/" + std::string(name))).c_str(), &info), 0);
    EXPECT_EQ(info.st_mtim.tv_sec, 1'000'000'000) << name;
    EXPECT_EQ(info.st_mtim.tv_nsec, 123'456'789) << name;
  }
  EXPECT_THAT(Names(scratch_.path()), ElementsAre("back", "ckpt", "secret", "store"));
}

TEST_F(CheckpointTest, ADirectoryMayBeNamedWithASlash) {
  Write("folder/x", "x");
  auto options = Options();
  options.directory += "/";
  TDBG_ASSERT_OK(CheckpointSender(&store_, options).SendLast());
  TDBG_ASSERT_OK(Restore("back/"));
  EXPECT_EQ(Back("folder/x"), "x");
}

// A new disk, mounted where the checkpoints of the old one were.
TEST_F(CheckpointTest, TheRootOfADiskIsEmpty) {
  fs::create_directories(directory_ + "/lost+found");
  fs::permissions(directory_ + "/lost+found", fs::perms::none);
  Write("model.pt", "weights");
  TDBG_ASSERT_OK(Sender().SendLast());
  fs::create_directories(scratch_ / "disk/lost+found");
  fs::create_directory_symlink("disk", scratch_ / "back");
  const auto restored = Restore();
  TDBG_ASSERT_OK(restored);
  EXPECT_EQ(restored->number, 1u);
  EXPECT_THAT(Names(scratch_ / "back"), ElementsAre("lost+found", "model.pt"));
  EXPECT_TRUE(restored->set.folders.empty());
}

TEST_F(CheckpointTest, ASetSaysWhichStepItHolds) {
  Write("metadata.json",
        R"([{"latest-global-step-seen": 7, "latest-mode-step": {}}, {"latest-global-step-seen": 41}, 3])");
  TDBG_ASSERT_OK(Sender().SendLast());
  const auto restored = Restore();
  TDBG_ASSERT_OK(restored);
  EXPECT_EQ(restored->set.step, 42);
  EXPECT_EQ(restored->set.seen_step, -1);
  EXPECT_EQ(restored->set.run, "run");
}

TEST_F(CheckpointTest, FilesThatDidNotChangeAreNotSentAgainAndTheNewestTwoSetsStay) {
  auto sender = Sender();
  Write("same", "same");
  for (int i = 0; i < 4; ++i) {
    Write("last", fmt::format("step {}", i));
    TDBG_ASSERT_OK(sender.SendLast());
  }
  EXPECT_EQ(store_.files, 5);
  TDBG_ASSERT_OK(sender.SendLast());  // nothing happened
  EXPECT_EQ(store_.files, 5);
  // Nor where another process goes on.
  TDBG_ASSERT_OK(Sender().SendLast());
  EXPECT_EQ(store_.files, 5);
  EXPECT_THAT(Names(scratch_ / "store/bucket/r/checkpoints/sets"),
              ElementsAre("00000003.json", "00000004.json"));
  EXPECT_EQ(ObjectCount(), 3u);
  // What somebody has deleted is sent again.
  fs::remove(ObjectOf("same"));
  Write("last", "step 4");
  TDBG_ASSERT_OK(sender.SendLast());
  TDBG_ASSERT_OK(Restore());
  EXPECT_EQ(Back("same") + Back("last"), "samestep 4");
}

TEST_F(CheckpointTest, NothingIsTakenWhileAFileIsOpenForWriting) {
  Write("model.pt", "half");
  {
    const base::UniqueFd writer = base::OpenFd((directory_ + "/model.pt").c_str(), O_WRONLY);
    auto sender = Sender();
    EXPECT_THAT(sender.SendLast().message(), HasSubstr("model.pt is open for writing"));
    EXPECT_FALSE(fs::exists(scratch_ / "store/bucket/r/checkpoints/sets"));
  }
  void* const mapped = [&] {  // nor where it is only mapped
    const base::UniqueFd writer = base::OpenFd((directory_ + "/model.pt").c_str(), O_RDWR);
    return ::mmap(nullptr, 4, PROT_READ | PROT_WRITE, MAP_SHARED, writer.get(), 0);
  }();
  EXPECT_THAT(Sender().SendLast().message(), HasSubstr("model.pt is open for writing"));
  ::munmap(mapped, 4);
  TDBG_ASSERT_OK(Sender().SendLast());
  TDBG_ASSERT_OK(Restore());
}

// A sender that was killed between sending a large file and looking whether it was changed meanwhile.
TEST_F(CheckpointTest, AnObjectThatNoSetNamesIsNotBelieved) {
  Write("model.pt", "weights");
  TDBG_ASSERT_OK(Sender().SendLast());
  base::Spill(ObjectOf("weights"), "WEIGHTS");
  fs::remove(scratch_ / "store/bucket/r/checkpoints/sets/00000001.json");
  TDBG_ASSERT_OK(Sender().SendLast());
  TDBG_ASSERT_OK(Restore());
  EXPECT_EQ(Back("model.pt"), "weights");
}

TEST_F(CheckpointTest, ALogThatIsOpenForTheWholeTrainingHoldsNothingUp) {
  Write("model.pt", "weights");
  Write("runs/events.out.tfevents.1.host", "begin");
  const base::UniqueFd writer =
      base::OpenFd((directory_ + "/runs/events.out.tfevents.1.host").c_str(), O_WRONLY | O_APPEND);
  store_.before = [&](const std::string&) { (void)!::write(writer.get(), "+", 1); };
  TDBG_ASSERT_OK(Sender().SendLast());
  TDBG_ASSERT_OK(Restore());
  EXPECT_EQ(Back("model.pt"), "weights");
  EXPECT_THAT(Back("runs/events.out.tfevents.1.host"), testing::StartsWith("begin"));
}

TEST_F(CheckpointTest, WhatIsReplacedWhileItIsSentIsSentAsItWas) {
  Replace("a", "a1");
  Replace("b", std::string(9u << 20, '1'));
  bool replaced = false;
  store_.before = [&](const std::string& key) {
    if (key.find("/files/") == std::string::npos || std::exchange(replaced, true)) return;
    Replace("a", "a2");
    Replace("b", "b2");
  };
  auto options = Options();
  options.files_at_once = 1;
  CheckpointSender sender(&store_, options);
  TDBG_ASSERT_OK(sender.SendLast());
  ASSERT_TRUE(replaced);
  TDBG_ASSERT_OK(Restore());
  EXPECT_EQ(Back("a"), "a1");
  EXPECT_EQ(Back("b"), std::string(9u << 20, '1'));
}

// In place, at each instant at which a file is about to be sent. What is put under a sum has it, and a set's
// files are of one instant.
TEST_F(CheckpointTest, WhatIsOverwrittenWhileItIsSentIsGivenUpAndThenCopiedFirst) {
  int version = 0, kept_back = 3;
  const auto write = [&] {
    ++version;
    for (const char* const name : {"a", "b", "c"})
      Write(name, std::string(9u << 20, static_cast<char>('0' + version)));
  };
  write();
  store_.before = [&](const std::string& key) {
    if (key.find("/files/") != std::string::npos && kept_back-- > 0) write();
  };
  auto options = Options();
  options.files_at_once = 1;
  options.grace_millis = 60'000;
  CheckpointSender sender(&store_, options);
  TDBG_ASSERT_OK(sender.SendLast());
  EXPECT_LT(kept_back, 0);
  store_.before = nullptr;
  TDBG_ASSERT_OK(Restore());
  EXPECT_EQ(Back("a"), Back("b"));
  EXPECT_EQ(Back("a"), Back("c"));
  // The second try had copies, which nothing changes any more.
  EXPECT_EQ(sender.newest(), 1u);
  EXPECT_EQ(Back("a")[0], '2');
}

TEST_F(CheckpointTest, AnObjectIsWhatItIsCalled) {
  const std::string first(9u << 20, '1'), second(9u << 20, '2');
  Write("a", first);
  store_.before = [&](const std::string& key) {
    if (key.find("/files/") != std::string::npos) Write("a", second);
  };
  auto sender = Sender();
  EXPECT_THAT(sender.SendLast().message(), HasSubstr("a changed"));
  store_.before = nullptr;
  Write("a", first);
  TDBG_ASSERT_OK(sender.SendLast());
  TDBG_ASSERT_OK(Restore());
  EXPECT_EQ(Back("a"), first);
}

TEST_F(CheckpointTest, OfADamagedSetTheNextOlderOneIsTaken) {
  auto sender = Sender();
  for (const char* const text : {"old", "new"}) {
    Write("model.pt", text);
    TDBG_ASSERT_OK(sender.SendLast());
  }
  for (const std::string& damage : {std::string("xyz"), std::string("longer"), std::string()}) {
    const std::string object = ObjectOf("new");
    if (damage.empty())
      fs::remove(object);
    else
      base::Spill(object, damage);
    const auto restored = Restore("back" + damage);
    TDBG_ASSERT_OK(restored);
    EXPECT_EQ(restored->number, 1u);
    EXPECT_EQ(base::Slurp(scratch_ / ("back" + damage + "/model.pt")), "old");
    ASSERT_FALSE(said_.empty());
    EXPECT_THAT(said_.back(), HasSubstr("set 2 are not whole (model.pt"));
    if (!damage.empty()) base::Spill(object, "new");
  }
  // Where none is whole there is no training from zero.
  fs::remove(ObjectOf("old"));
  EXPECT_EQ(Restore("again").status().code(), Code::kDataLoss);
  EXPECT_FALSE(fs::exists(scratch_ / "again"));
}

TEST_F(CheckpointTest, AStoreThatFailsIsNoDamagedSet) {
  auto sender = Sender();
  for (const char* const text : {"old", "new"}) {
    Write("model.pt", text);
    TDBG_ASSERT_OK(sender.SendLast());
  }
  for (const char* const part : {"/files/", "/sets/"}) {
    store_.away = part;
    EXPECT_EQ(Restore().status().code(), Code::kUnavailable);
    EXPECT_THAT(Names(scratch_.path()), ElementsAre("ckpt", "store"));
  }
}

TEST_F(CheckpointTest, ADirectoryThatHoldsAnythingIsLeftAsItIs) {
  Write("model.pt", "theirs");
  TDBG_ASSERT_OK(Sender().SendLast());
  fs::create_directories(scratch_ / "back");
  base::Spill(scratch_ / "back/mine", "mine");
  const auto restored = Restore();
  TDBG_ASSERT_OK(restored);
  EXPECT_TRUE(restored->kept);
  EXPECT_THAT(Names(scratch_ / "back"), ElementsAre("mine"));
  // Without sets nothing is made.
  run_.path = "bucket/other";
  const auto none = Restore("none");
  TDBG_ASSERT_OK(none);
  EXPECT_EQ(none->number, 0u);
  EXPECT_FALSE(none->kept);
  EXPECT_FALSE(fs::exists(scratch_ / "none"));
}

TEST_F(CheckpointTest, WhatAKilledRestoreLeftIsNeverTakenForASet) {
  Write("model.pt", "weights");
  Write("folder/x", "x");
  TDBG_ASSERT_OK(Sender().SendLast());
  // Killed while it fetched: beside the directory, or in it.
  fs::create_directories(scratch_ / ".back.tdbg-restore-AbCdEf");
  base::Spill(scratch_ / ".back.tdbg-restore-AbCdEf/model.pt", "wei");
  fs::create_directories(scratch_ / "back/.tdbg-restore-AbCdEf");
  base::Spill(scratch_ / "back/.tdbg-restore-AbCdEf/model.pt", "wei");
  const auto restored = Restore();
  TDBG_ASSERT_OK(restored);
  EXPECT_EQ(restored->number, 1u);
  EXPECT_EQ(Back("model.pt"), "weights");
  EXPECT_THAT(Names(scratch_.path()), ElementsAre("back", "ckpt", "store"));
  EXPECT_THAT(Names(scratch_ / "back"), ElementsAre("folder", "model.pt"));
  // Killed while it moved what was whole into a directory that cannot be replaced.
  fs::create_directories(scratch_ / "back/.tdbg-restored-AbCdEf");
  fs::rename(scratch_ / "back/model.pt", scratch_ / "back/.tdbg-restored-AbCdEf/model.pt");
  TDBG_ASSERT_OK(Restore());
  EXPECT_THAT(Names(scratch_ / "back"), ElementsAre("folder", "model.pt"));
}

TEST_F(CheckpointTest, ADirectoryThatCannotBeReplacedIsFilled) {
  Write("model.pt", "weights");
  Write("folder/x", "x");
  TDBG_ASSERT_OK(Sender().SendLast());
  fs::create_directories(scratch_ / "disk");
  fs::create_directory_symlink("disk",
                               scratch_ / "back");  // as a mounted disk would be: its name leads elsewhere
  TDBG_ASSERT_OK(Restore());
  EXPECT_TRUE(fs::is_symlink(scratch_ / "back"));
  EXPECT_THAT(Names(scratch_ / "disk"), ElementsAre("folder", "model.pt"));
}

TEST_F(CheckpointTest, WithoutThePermissionToDeleteAllStaysAndIsSaidOnce) {
  store_.may_delete = false;
  auto sender = Sender();
  for (int i = 0; i < 5; ++i) {
    Write("last", fmt::format("step {}", i));
    TDBG_ASSERT_OK(sender.SendLast());
  }
  EXPECT_THAT(said_, ElementsAre(HasSubstr("older checkpoints stay in the bucket: not allowed")));
  EXPECT_EQ(ObjectCount(), 5u);
}

TEST_F(CheckpointTest, WhatANewerTdbgWroteIsNotDeleted) {
  Write("last", "newer's");
  TDBG_ASSERT_OK(Sender().SendLast());
  const std::string path = scratch_ / "store/bucket/r/checkpoints/sets/00000001.json";
  std::string text = base::Slurp(path);
  text.replace(text.find("\"major\":1"), 9, "\"major\":2");
  base::Spill(path, text);
  auto sender = Sender();
  for (int i = 0; i < 3; ++i) {
    Write("last", fmt::format("step {}", i));
    TDBG_ASSERT_OK(sender.SendLast());
  }
  EXPECT_NE(ObjectOf("newer's"), "");
  EXPECT_THAT(Names(scratch_ / "store/bucket/r/checkpoints/sets"), Contains("00000001.json"));
}

TEST_F(CheckpointTest, APrefixThatAnotherProcessHasTakenIsLeftAlone) {
  auto sender = Sender();
  Write("last", "1");
  TDBG_ASSERT_OK(sender.SendLast());
  Claim("another");
  Write("last", "2");
  EXPECT_EQ(sender.SendLast().code(), Code::kAlreadyExists);
  EXPECT_THAT(Names(scratch_ / "store/bucket/r/checkpoints/sets"), ElementsAre("00000001.json"));
}

TEST_F(CheckpointTest, ASetWhoseAnswerWasLostIsThere) {
  store_.lost_answers = 1;
  auto sender = Sender();
  Write("last", "1");
  TDBG_ASSERT_OK(sender.SendLast());
  EXPECT_THAT(Names(scratch_ / "store/bucket/r/checkpoints/sets"), ElementsAre("00000001.json"));
}

TEST_F(CheckpointTest, AStoreThatIsAwayIsSaidOnceAndGetsTheLastState) {
  auto sender = Sender();
  store_.down = true;
  Write("last", "1");
  std::thread following([&] { TDBG_EXPECT_OK(sender.Follow()); });
  while (true) {
    ::usleep(10'000);
    if (sender.failures() > 1) break;
  }
  Write("last", "2");
  store_.down = false;
  sender.Stop();
  following.join();
  EXPECT_THAT(said_, ElementsAre(HasSubstr("away; the training goes on")));
  TDBG_ASSERT_OK(Restore());
  EXPECT_EQ(Back("last"), "2");
}

// A script that saves without a pause, in a file that it replaces: sets are taken all the same, each of one
// instant.
TEST_F(CheckpointTest, ADirectoryThatIsNeverQuietForLongIsTaken) {
  std::atomic<bool> over = false;
  Replace("last", "0");
  std::thread training([&] {
    for (int i = 1; !over; ++i) {
      Replace("last", std::to_string(i));
      ::usleep(120'000);
    }
  });
  auto options = Options();
  options.every_millis = 500;
  options.hurry_millis = 100;
  CheckpointSender sender(&store_, options);
  std::thread following([&] { TDBG_EXPECT_OK(sender.Follow()); });
  for (int i = 0; i < 6'000 && !fs::exists(scratch_ / "store/bucket/r/checkpoints/sets/00000002.json"); ++i)
    ::usleep(10'000);
  EXPECT_TRUE(fs::exists(scratch_ / "store/bucket/r/checkpoints/sets/00000002.json"));
  over = true;
  training.join();
  sender.Stop();
  following.join();
}

TEST(CheckpointSetTest, NoNameOfABucketLeadsOutOfTheDirectory) {
  const std::string sum(64, 'a');
  const auto file = [&](const std::string& name) {
    return fmt::format(R"({{"name":"{}","bytes":1,"sha256":"{}"}})", name, sum);
  };
  const auto parse = [](const std::string& fields) {
    return CheckpointSet::FromJson(
               R"({"format":{"major":1,"minor":9},"kind":"checkpoints","later":1,)" + fields + "}", "set")
        .status();
  };
  const auto files = [&](const std::string& list) { return parse("\"files\":[" + list + "]"); };
  TDBG_EXPECT_OK(files(file("a/b") + "," + file("c")));
  for (const char* const name :
       {"../a", "/a", "a/../b", "a//b", "", ".", "a/", "\\u0000", ".tdbg-restored-x/a"})
    EXPECT_EQ(files(file(name)).code(), Code::kDataLoss) << name;
  EXPECT_EQ(files(file("a") + "," + file("a")).code(), Code::kDataLoss);
  EXPECT_EQ(files(file("a") + "," + file("a/b")).code(), Code::kDataLoss);
  EXPECT_EQ(files(R"({"name":"a","bytes":-1,"sha256":")" + sum + "\"}").code(), Code::kDataLoss);
  EXPECT_EQ(files(R"({"name":"a","bytes":1,"sha256":"../../x"})").code(), Code::kDataLoss);
  EXPECT_EQ(files(R"({"name_hex":"2e2e2f61","bytes":1,"sha256":")" + sum + "\"}").code(), Code::kDataLoss);
  const auto link = [&](const std::string& name, const std::string& target, const std::string& more = "") {
    return parse(fmt::format(R"("links":[{{"name":"{}","target":"{}"}}],"files":[{}])", name, target, more));
  };
  TDBG_EXPECT_OK(link("a", "b/c"));
  TDBG_EXPECT_OK(link("a/b/c", "../../d"));
  for (const char* const target : {"..", "../x", "/x", "", ".", "b/..", "b/../x", "b/../../x"})
    EXPECT_EQ(link("a", target).code(), Code::kDataLoss) << target;
  EXPECT_EQ(link("d/a", "b/../x").code(), Code::kDataLoss) << "b may lead to the directory itself";
  EXPECT_EQ(link("a", "b", file("a/x")).code(), Code::kDataLoss)
      << "a file would be written through the link";
  EXPECT_EQ(parse(R"("files":3)").code(), Code::kDataLoss);
  EXPECT_EQ(CheckpointSet::FromJson(R"({"format":{"major":2},"kind":"checkpoints"})", "set").status().code(),
            Code::kUnimplemented);
}

TEST(CheckpointSetTest, AJsonIsReadAsItWasWritten) {
  CheckpointSet set;
  set.id = "id";
  set.run = "run";
  set.host = "host";
  set.wall_nanos = 5;
  set.attempt = 2;
  set.step = 0;
  set.files = {{"\xff", 3, std::string(64, '0'), 7}, {"\xc3\xa4", 0, std::string(64, 'f'), -7}};
  set.links = {{"l", "\xfe"}};
  set.folders = {{"f", 9}};
  const auto read = CheckpointSet::FromJson(set.ToJson(), "set");
  TDBG_ASSERT_OK(read);
  EXPECT_TRUE(read->SameContent(set));
  EXPECT_EQ(read->ToJson(), set.ToJson());
  EXPECT_EQ(read->seen_step, -1);
}

}  // namespace
}  // namespace tdbg::storage
