#include "base/below.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

#include "base/testing.h"

namespace tdbg::base {
namespace {

using testing::HasSubstr;

mode_t ModeOf(const std::string& path) {
  struct stat info{};
  EXPECT_EQ(::lstat(path.c_str(), &info), 0) << path;
  return info.st_mode & 0777;
}

class BelowTest : public testing::Test {
 protected:
  BelowTest() : root_(scratch_ / "run"), outside_(scratch_ / "outside") {
    EXPECT_TRUE(CreatePrivateDirectory(root_, /*shared=*/false).ok());
    std::filesystem::create_directories(outside_ + "/worker");
    EXPECT_TRUE(LocalFileSystem().WriteFileAtomic(outside_ + "/mine", "precious").ok());
    umask_ = ::umask(022);
  }
  ~BelowTest() override { ::umask(umask_); }

  ScratchDirectory scratch_;
  const std::string root_, outside_;
  FileSystem& files_ = FilesBelow(LocalFileSystem(), root_);
  mode_t umask_;
};

TEST_F(BelowTest, NoLinkIsFollowedToAFile) {
  for (const char* name : {"events.jsonl", "lock", "control", "file.tmp"}) {
    std::filesystem::create_symlink(outside_ + "/mine", root_ + "/" + name);
  }
  const Status status = files_.AppendLine(root_ + "/events.jsonl", "x");
  EXPECT_EQ(status.code(), Code::kAlreadyExists);
  EXPECT_THAT(status.message(), HasSubstr("symbolic link"));
  EXPECT_FALSE(files_.Lock(root_ + "/lock").ok());
  EXPECT_FALSE(files_.CreatePending(root_ + "/file.tmp").ok());
  EXPECT_FALSE(files_.CreateMapped(root_ + "/control", 4096).ok());
  // A link is replaced, and what it led to stays.
  EXPECT_TRUE(files_.WriteFileAtomic(root_ + "/control", "ours").ok());
  EXPECT_EQ(*LocalFileSystem().ReadFile(outside_ + "/mine"), "precious");
  EXPECT_FALSE(std::filesystem::is_symlink(root_ + "/control"));
}

TEST_F(BelowTest, NoLinkIsFollowedOnTheWay) {
  std::filesystem::create_symlink(outside_, root_ + "/0");
  const std::string way = root_ + "/0/worker";
  const std::function<Status()> writes[] = {[&] { return files_.AppendLine(way + "/a", "x"); },
                                            [&] { return files_.WriteFileAtomic(way + "/b", "x"); },
                                            [&] { return files_.Lock(way + "/c").status(); },
                                            [&] { return files_.CreateMapped(way + "/d", 4096).status(); },
                                            [&] { return files_.CreateDirectories(way + "/e"); },
                                            [&] { return files_.CreateDirectories(root_ + "/0"); },
                                            [&] { return files_.Remove(root_ + "/0/mine"); },
                                            [&] { return CheckBelow(root_, way + "/f"); },
                                            [&] { return CheckBelow(root_, root_ + "/0"); }};
  for (const auto& write : writes) EXPECT_EQ(write().code(), Code::kAlreadyExists);
  EXPECT_TRUE(std::filesystem::is_empty(outside_ + "/worker"));
  EXPECT_EQ(*LocalFileSystem().ReadFile(outside_ + "/mine"), "precious");
}

TEST_F(BelowTest, ALinkThatComesLaterIsNotFollowedEither) {
  ASSERT_TRUE(files_.CreateDirectories(root_ + "/0/segments").ok());
  auto pending = files_.CreatePending(root_ + "/0/segments/.tmp-1");
  ASSERT_TRUE(pending.ok());
  std::filesystem::rename(root_ + "/0", root_ + "/away");
  std::filesystem::create_symlink(outside_, root_ + "/0");
  EXPECT_EQ((*pending)->Publish(root_ + "/0/worker/1", false).code(), Code::kAlreadyExists);
  EXPECT_TRUE(std::filesystem::is_empty(outside_ + "/worker"));
}

TEST_F(BelowTest, TheRootMayBeALinkOfTheUsersAndPathsElsewhereAreTheirs) {
  const std::string link = scratch_ / "link";
  std::filesystem::create_symlink(root_, link);
  FileSystem& files = FilesBelow(LocalFileSystem(), link);
  TDBG_EXPECT_OK(files.AppendLine(link + "/events.jsonl", "x"));
  TDBG_EXPECT_OK(files.WriteFileAtomic(outside_ + "/worker/journal", "x"));
  TDBG_EXPECT_OK(CheckBelow(root_, outside_));
  TDBG_EXPECT_OK(CheckBelow(root_, root_ + "/tensorboard/to/come"));
}

TEST_F(BelowTest, FilesLetInWhoTheirRunLetsIn) {
  TDBG_EXPECT_OK(files_.CreateDirectories(root_ + "/0/worker_0"));
  TDBG_EXPECT_OK(files_.AppendLine(root_ + "/events.jsonl", "x"));
  TDBG_EXPECT_OK(files_.WriteFileAtomic(root_ + "/0/worker_0/w.json", "x"));
  TDBG_EXPECT_OK(files_.WriteFileAtomic(outside_ + "/journal", "x"));
  EXPECT_TRUE(files_.Lock(root_ + "/0/lock").ok());
  EXPECT_TRUE(files_.CreateMapped(root_ + "/0/worker_0/journal", 4096).ok());
  EXPECT_EQ(ModeOf(root_), 0700u);
  EXPECT_EQ(ModeOf(root_ + "/0"), 0700u);
  for (const char* file : {"events.jsonl", "0/worker_0/w.json", "0/lock", "0/worker_0/journal"})
    EXPECT_EQ(ModeOf(root_ + "/" + file), 0600u) << file;
  EXPECT_EQ(ModeOf(outside_ + "/journal"), 0600u);

  const std::string shared = scratch_ / "parents/shared";
  TDBG_EXPECT_OK(CreatePrivateDirectory(shared, /*shared=*/true));
  FileSystem& theirs = FilesBelow(LocalFileSystem(), shared);
  TDBG_EXPECT_OK(theirs.CreateDirectories(shared + "/0"));
  TDBG_EXPECT_OK(theirs.AppendLine(shared + "/0/events.jsonl", "x"));
  EXPECT_EQ(ModeOf(shared), 0755u);
  EXPECT_EQ(ModeOf(shared + "/0"), 0755u);
  EXPECT_EQ(ModeOf(shared + "/0/events.jsonl"), 0644u);
  EXPECT_EQ(FileModeIn(shared), 0644u);
  EXPECT_EQ(FileModeIn(root_), 0600u);
}

}  // namespace
}  // namespace tdbg::base
