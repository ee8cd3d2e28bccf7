// What other processes see of a mirror's local journal while parts are laid into it.
#include "storage/mirror.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/testing.h"
#include "format/journal.h"
#include "format/run_files.h"
#include "storage/cache_use.h"
#include "storage/directory_store.h"
#include "storage/upload_state.h"

namespace tdbg::storage {
namespace {

using format::JournalHeader;

constexpr uint64_t kRing = 1024;
constexpr const char* kWorker = "0/worker_0";

// Calls `before` with each key that is asked for; its clock is as far ahead of the objects as a test says.
class AskedStore : public DirectoryStore {
 public:
  using DirectoryStore::DirectoryStore;
  Result<Object> Get(const std::string& key, std::optional<Range> range) override {
    if (before) before(key);
    auto object = DirectoryStore::Get(key, range);
    if (object.ok() && ahead_nanos >= 0)
      object->store_wall_nanos = object->info.modified_wall_nanos + ahead_nanos;
    return object;
  }
  std::function<void(const std::string&)> before;
  int64_t ahead_nanos = -1;  ///< -1: the machine's clock
};

class MirroredJournal : public testing::Test {
 protected:
  void SetUp() override {
    format::RunInfo run;
    run.id = "a-run";
    Put("run.json", run.ToJson());
  }

  void Put(const std::string& name, const std::string& bytes) {
    TDBG_ASSERT_OK(
        store_.Put("bucket/run/" + name, std::as_bytes(std::span(bytes.data(), bytes.size())), {}));
  }

  // A part of a journal whose bytes are all `fill`.
  void PutPart(const JournalPart& part, uint64_t sealed, char fill) {
    std::string bytes(format::kJournalHeaderBytes, '\0');
    const auto set = [&bytes](size_t at, uint64_t value) {
      ::memcpy(bytes.data() + at, &value, sizeof(value));
    };
    set(offsetof(JournalHeader, ring_bytes), kRing);
    set(offsetof(JournalHeader, committed_pos), part.to);
    set(offsetof(JournalHeader, sealed_pos), sealed);
    bytes.append(part.to - part.from, fill);
    Put(std::string(kWorker) + "/" + std::string(kJournalParts) + "/" + part.Name(), bytes);
  }

  std::unique_ptr<Mirror> OpenMirror() {
    Location from;
    from.path = "/bucket/run";
    auto mirror = Mirror::Open(&store_, {.from = from, .cache_root = scratch_ / "cache"});
    EXPECT_TRUE(mirror.ok()) << mirror.status().ToString();
    return mirror.ok() ? *std::move(mirror) : nullptr;
  }

  struct Seen {
    uint64_t committed = 0, sealed = 0;
    std::string ring;
  };
  static Seen Look(const Mirror& mirror) {
    const std::string file =
        base::Slurp(mirror.directory() + "/" + kWorker + "/" + std::string(format::kJournalFile));
    Seen seen;
    if (file.size() < format::kJournalHeaderBytes) return seen;
    ::memcpy(&seen.committed, file.data() + offsetof(JournalHeader, committed_pos), 8);
    ::memcpy(&seen.sealed, file.data() + offsetof(JournalHeader, sealed_pos), 8);
    seen.ring = file.substr(format::kJournalHeaderBytes);
    return seen;
  }

  base::ScratchDirectory scratch_;
  AskedStore store_{scratch_ / "store"};
};

TEST_F(MirroredJournal, WhatIsBeingOverwrittenIsCalledSealedBefore) {
  PutPart({1, 1, 0, 896}, 0, 'a');
  const auto mirror = OpenMirror();
  ASSERT_NE(mirror, nullptr);
  EXPECT_EQ(Look(*mirror).committed, 896u);
  // A lap later: 960 to 1,920 overwrite all but the last 64 bytes.
  PutPart({1, 2, 896, 1408}, 896, 'b');
  PutPart({1, 3, 1408, 1920}, 960, 'c');
  int looks = 0;
  store_.before = [&](const std::string& key) {
    if (key.find(JournalPart{1, 2, 896, 1408}.Name()) == std::string::npos) return;
    ++looks;
    const Seen seen = Look(*mirror);  // the newest part's bytes are there, the one before it is missing
    EXPECT_EQ(seen.ring[1408 % kRing], 'c');
    EXPECT_EQ(seen.committed, 896u) << "not all bytes up to the new end are there";
    EXPECT_EQ(seen.sealed, 896u) << "a reader of what stood there must know that it is gone";
  };
  TDBG_ASSERT_OK(mirror->Refresh());
  EXPECT_EQ(looks, 1);
  EXPECT_EQ(Look(*mirror).committed, 1920u);
  EXPECT_EQ(Look(*mirror).sealed, 960u);
}

TEST_F(MirroredJournal, ItIsWholeWhicheverOfTwoMirrorsLaysAPart) {
  PutPart({1, 1, 0, 128}, 0, 'a');
  const auto one = OpenMirror();
  ASSERT_NE(one, nullptr);
  PutPart({1, 2, 128, 256}, 0, 'b');
  TDBG_ASSERT_OK(one->Refresh());
  // The other one's list is older, and it lays what it has heard of over the file.
  const std::string second =
      scratch_ / "store/bucket/run/0/worker_0/journal.parts/" + JournalPart{1, 2, 128, 256}.Name();
  const std::string bytes = base::Slurp(second);
  std::filesystem::remove(second);
  const auto other = OpenMirror();
  ASSERT_NE(other, nullptr);
  EXPECT_EQ(Look(*one).committed, 128u);
  base::Spill(second, bytes);
  PutPart({1, 3, 256, 320}, 0, 'c');
  TDBG_ASSERT_OK(one->Refresh());
  EXPECT_EQ(Look(*one).committed, 320u);
  EXPECT_EQ(Look(*one).ring.substr(0, 320),
            std::string(128, 'a') + std::string(128, 'b') + std::string(64, 'c'));
}

class MirroredLife : public MirroredJournal {
 protected:
  static constexpr int64_t kSecond = 1'000'000'000;

  void SetUp() override {
    MirroredJournal::SetUp();
    PutPart({1, 1, 0, 128}, 0, 'a');
    PutState(true);
  }
  void PutState(bool following) {
    UploadState state{"a-run", "me", "node7", false, following, 5'000, 1, {}};
    if (following) state.held = {"launcher.lock", "0/worker_0/lock"};
    Put(std::string(kStateFile), state.ToJson());
  }
  std::unique_ptr<Mirror> OpenMirror() {
    Location from;
    from.path = "/bucket/run";
    auto mirror = Mirror::Open(&store_, {.from = from,
                                         .cache_root = scratch_ / "cache",
                                         .say = [this](const std::string& what) { said_.push_back(what); }});
    EXPECT_TRUE(mirror.ok()) << mirror.status().ToString();
    return mirror.ok() ? *std::move(mirror) : nullptr;
  }
  static bool Lives(const std::string& directory) {
    return base::LocalFileSystem().IsLocked(directory + "/0/worker_0/lock") &&
           base::LocalFileSystem().IsLocked(directory + "/launcher.lock");
  }

  std::vector<std::string> said_;
};

TEST_F(MirroredJournal, ARunThatIsOpenIsNotRemovedHoweverOldItIs) {
  PutPart({1, 1, 0, 128}, 0, 'a');
  auto mirror = OpenMirror();
  ASSERT_NE(mirror, nullptr);
  const std::filesystem::path home = std::filesystem::path(mirror->directory()).parent_path();
  std::filesystem::last_write_time(
      home / "sync.lock", std::filesystem::file_time_type::clock::now() - std::chrono::hours(24 * 8));
  RemoveUnused(scratch_ / "cache");
  EXPECT_TRUE(std::filesystem::exists(home));
  mirror.reset();
  RemoveUnused(scratch_ / "cache");
  EXPECT_FALSE(std::filesystem::exists(home));
}

TEST(CacheUseTest, WhatWasOpenedLongestAgoGoesWhereAllTakesTooMuch) {
  const base::ScratchDirectory scratch;
  const auto home = [&](int i) { return std::string(scratch / fmt::format("cache/prefix/run{}", i)); };
  const auto now = std::filesystem::file_time_type::clock::now();
  const auto fill = [&](int i, int hours_ago) {
    const auto use = KeepInUse(home(i));
    TDBG_ASSERT_OK(use.status());
    base::Spill(home(i) + "/fetched", std::string(1u << 20, 'x'));
    std::ofstream(home(i) + "/hole").close();
    std::filesystem::resize_file(home(i) + "/hole", 1u << 30);  // not fetched
    base::Spill(home(i) + "/sync.lock", "");
    std::filesystem::last_write_time(home(i) + "/sync.lock", now - std::chrono::hours(hours_ago));
  };
  for (int i = 0; i < 4; ++i) fill(i, 4 - i);
  const auto open = KeepInUse(home(0));  // the oldest
  TDBG_ASSERT_OK(open.status());
  RemoveUnused(scratch / "cache", 6u << 20);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(std::filesystem::exists(home(i))) << i;
  RemoveUnused(scratch / "cache", 5u << 19);
  EXPECT_TRUE(std::filesystem::exists(home(0))) << "somebody reads it";
  EXPECT_FALSE(std::filesystem::exists(home(1)));
  EXPECT_FALSE(std::filesystem::exists(home(2)));
  EXPECT_TRUE(std::filesystem::exists(home(3)));
}

TEST_F(MirroredLife, WhatIsTooLongToBeCopiedIsNamedOnce) {
  store_.ahead_nanos = 0;
  const std::string path = scratch_ / "store/bucket/run/events.jsonl";
  base::Spill(path, "");
  std::filesystem::resize_file(path, (64u << 20) + 1);
  const auto mirror = OpenMirror();
  ASSERT_NE(mirror, nullptr);
  TDBG_EXPECT_OK(mirror->Refresh());
  ASSERT_EQ(said_.size(), 1u);
  EXPECT_NE(said_[0].find("events.jsonl (67.1 MB) is longer than 67.1 MB"), std::string::npos) << said_[0];
}

TEST_F(MirroredLife, AnUploaderThatIsLateLeavesItsRunAliveAndOneThatIsGoneDoesNot) {
  store_.ahead_nanos = 0;
  const auto mirror = OpenMirror();
  ASSERT_NE(mirror, nullptr);
  EXPECT_TRUE(Lives(mirror->directory()));
  const auto after = [&](int64_t seconds) {
    store_.ahead_nanos = seconds * kSecond;
    TDBG_EXPECT_OK(mirror->Refresh());
    return Lives(mirror->directory());
  };
  EXPECT_TRUE(after(29));
  EXPECT_TRUE(said_.empty());
  EXPECT_TRUE(after(31)) << "six beats missed: late";
  EXPECT_TRUE(after(599));
  ASSERT_EQ(said_.size(), 1u) << "once";
  EXPECT_EQ(said_[0],
            "its uploader, on node7, has given no sign of life for 31 s: what is shown may be late; it is "
            "taken for gone after 600 s");
  EXPECT_FALSE(after(600));
  ASSERT_EQ(said_.size(), 2u);
  EXPECT_TRUE(after(1)) << "it came back";
}

TEST_F(MirroredLife, AReaderThatHasNotLookedLatelyKeepsNobodyAlive) {
  store_.ahead_nanos = 0;
  const auto idle = OpenMirror();
  ASSERT_NE(idle, nullptr);
  EXPECT_TRUE(Lives(idle->directory()));
  PutState(false);
  const auto other = OpenMirror();
  ASSERT_NE(other, nullptr);
  EXPECT_FALSE(Lives(other->directory()));
  PutState(true);  // another attempt
  TDBG_ASSERT_OK(idle->Refresh());
  EXPECT_TRUE(Lives(idle->directory())) << "what it held is not there any more";
}

TEST_F(MirroredLife, AReaderThatGoesTakesNoRunAlong) {
  store_.ahead_nanos = 0;
  auto first = OpenMirror();
  const auto second = OpenMirror();
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  first.reset();
  TDBG_ASSERT_OK(second->Refresh());
  EXPECT_TRUE(Lives(second->directory()));
}

TEST_F(MirroredLife, WhatAnUploaderSawEndIsOverAtOnce) {
  store_.ahead_nanos = 0;
  const auto mirror = OpenMirror();
  ASSERT_NE(mirror, nullptr);
  PutState(false);
  TDBG_ASSERT_OK(mirror->Refresh());
  EXPECT_FALSE(Lives(mirror->directory()));
  EXPECT_TRUE(said_.empty());
}

}  // namespace
}  // namespace tdbg::storage
