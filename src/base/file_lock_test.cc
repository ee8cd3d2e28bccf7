// Who holds a lock, through closed descriptors, forks and deaths.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>

#include "base/file.h"
#include "base/forwarding_file_system.h"
#include "base/posix.h"
#include "base/testing.h"

namespace tdbg::base {
namespace {

class FileLockTest : public testing::Test {
 protected:
  FileSystem& files_ = LocalFileSystem();
  ScratchDirectory scratch_;
};

/// As a script does that closes what is not its own.
void CloseAll(const std::string& path) {
  for (int fd = 3; fd < 4096; ++fd) {
    struct stat info, lock;
    if (::fstat(fd, &info) == 0 && ::stat(path.c_str(), &lock) == 0 && info.st_ino == lock.st_ino)
      ::close(fd);
  }
}

TEST_F(FileLockTest, ALockWhoseDescriptorWasClosedIsTakenAgainUnlessSomebodyHasIt) {
  const std::string path = scratch_ / "lock";
  auto lock = files_.Lock(path);
  TDBG_ASSERT_OK(lock);
  CloseAll(path);
  EXPECT_FALSE(files_.IsLocked(path));
  TDBG_EXPECT_OK((*lock)->CheckInPlace());
  EXPECT_EQ((*lock)->times_retaken(), 1);
  EXPECT_TRUE(files_.IsLocked(path));
  CloseAll(path);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t other = ::fork();
  if (other == 0) {
    ::close(ends[1]);
    const auto theirs = files_.Lock(path);
    char end;
    ::_exit(theirs.ok() && ::read(ends[0], &end, 1) == 0 ? 0 : 1);
  }
  while (!files_.IsLocked(path)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ((*lock)->CheckInPlace().code(), Code::kNotFound);
  EXPECT_TRUE(files_.IsLocked(path)) << "the other's";
  ::close(ends[0]);
  ::close(ends[1]);
  int status = 1;
  ::waitpid(other, &status, 0);
  EXPECT_EQ(status, 0);
  ASSERT_FALSE(files_.IsLocked(path));
  EXPECT_EQ((*lock)->CheckInPlace().code(), Code::kNotFound) << "who had it may have changed everything";
  EXPECT_EQ((*lock)->times_retaken(), 1);
  EXPECT_FALSE(files_.IsLocked(path));
}

// A loader's fork in the training must not wait until somebody else's lock is free.
TEST_F(FileLockTest, NoForkWaitsWhileALockIsTakenAgain) {
  const std::string path = scratch_ / "lock";
  int forks_meanwhile = 0;
  for (int round = 0; round < 5 && forks_meanwhile == 0; ++round) {
    auto lock = files_.Lock(path);
    TDBG_ASSERT_OK(lock);
    CloseAll(path);
    const UniqueFd theirs(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_EQ(::flock(theirs.get(), LOCK_EX | LOCK_NB), 0);
    std::atomic<bool> asked = false, answered = false;
    std::thread asking([&] {
      asked = true;
      EXPECT_EQ((*lock)->CheckInPlace().code(), Code::kNotFound);
      answered = true;
    });
    while (!asked) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    while (!answered) {
      const pid_t child = ::fork();
      if (child == 0) ::_exit(0);
      forks_meanwhile += !answered;
      ::waitpid(child, nullptr, 0);
    }
    asking.join();
  }
  EXPECT_GT(forks_meanwhile, 0);
}

TEST_F(FileLockTest, LockIsExclusiveUntilDestroyed) {
  const std::string path = scratch_ / "writer.lock";
  EXPECT_FALSE(files_.IsLocked(path));
  {
    auto lock = files_.Lock(path);
    TDBG_ASSERT_OK(lock);
    EXPECT_TRUE(files_.IsLocked(path));
    EXPECT_EQ(files_.Lock(path).status().code(), Code::kFailedPrecondition);
  }
  EXPECT_FALSE(files_.IsLocked(path));
  TDBG_EXPECT_OK(files_.Lock(path));
}

TEST_F(FileLockTest, ALockIsInPlaceWhileItsPathLeadsToIt) {
  const std::string directory = scratch_ / "run", path = directory + "/lock";
  TDBG_EXPECT_OK(files_.CreateDirectories(directory));
  auto lock = files_.Lock(path);
  TDBG_ASSERT_OK(lock);
  TDBG_EXPECT_OK((*lock)->CheckInPlace());
  std::filesystem::rename(directory, scratch_ / "moved");
  EXPECT_EQ((*lock)->CheckInPlace().code(), Code::kNotFound);
  TDBG_EXPECT_OK(files_.CreateDirectories(directory));
  TDBG_EXPECT_OK(files_.Lock(path));  // of another one in the same place
  EXPECT_EQ((*lock)->CheckInPlace().code(), Code::kNotFound);
  std::filesystem::remove_all(directory);
  std::filesystem::rename(scratch_ / "moved", directory);
  TDBG_EXPECT_OK((*lock)->CheckInPlace());
}

TEST_F(FileLockTest, LockDiesWithItsProcess) {
  const std::string path = scratch_ / "writer.lock";
  const pid_t child = ::fork();
  if (child == 0) {
    const auto lock = files_.Lock(path);
    if (lock.ok()) ::kill(::getpid(), SIGKILL);
    ::_exit(1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(files_.Exists(path));
  EXPECT_FALSE(files_.IsLocked(path));
}

// A data-loading worker that outlives its killed parent would otherwise keep a dead run "running".
TEST_F(FileLockTest, ForkedChildOfAKilledHolderDoesNotKeepTheLock) {
  const std::string path = scratch_ / "writer.lock";
  int child_lives[2];
  ASSERT_EQ(::pipe(child_lives), 0);
  const pid_t holder = ::fork();
  if (holder == 0) {
    const auto lock = files_.Lock(path);
    if (!lock.ok()) ::_exit(1);
    if (::fork() == 0) {
      const pid_t self = ::getpid();
      (void)!::write(child_lives[1], &self, sizeof(self));
      ::sleep(60);
      ::_exit(0);
    }
    ::sleep(60);
    ::_exit(1);
  }
  pid_t worker = -1;
  ASSERT_EQ(::read(child_lives[0], &worker, sizeof(worker)), static_cast<ssize_t>(sizeof(worker)));
  EXPECT_TRUE(files_.IsLocked(path));
  ::kill(holder, SIGKILL);
  ::waitpid(holder, nullptr, 0);
  EXPECT_FALSE(files_.IsLocked(path));
  EXPECT_EQ(::kill(worker, SIGKILL), 0);
  ::close(child_lives[0]);
  ::close(child_lives[1]);
}

TEST_F(FileLockTest, ForkedChildThatDestroysItsCopyDoesNotReleaseTheLock) {
  const std::string path = scratch_ / "writer.lock";
  auto lock = files_.Lock(path);
  TDBG_ASSERT_OK(lock);
  const pid_t child = ::fork();
  if (child == 0) {
    lock->reset();
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(files_.IsLocked(path));
}

// Another thread of the parent may be inside its allocator when it forks, and not every allocator can be
// entered in the child then. What glibc's thread cache takes back it does not count, so there are more locks
// than that holds.
TEST_F(FileLockTest, ForkedChildFreesNothingOnItsWay) {
  std::vector<std::unique_ptr<FileLock>> locks;
  for (int i = 0; i < 32; ++i) {
    auto lock = files_.Lock(scratch_ / ("lock" + std::to_string(i)));
    TDBG_ASSERT_OK(lock);
    locks.push_back(*std::move(lock));
  }
  const auto freed = [] {
    const struct mallinfo2 info = ::mallinfo2();
    return info.fsmblks + info.fordblks;
  };
  const size_t before = freed();
  const pid_t child = ::fork();
  if (child == 0) ::_exit(freed() == before ? 0 : 1);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// A probe of IsLocked takes the lock for an instant.
TEST_F(FileLockTest, ProbingDoesNotRefuseAWriter) {
  const std::string path = scratch_ / "writer.lock";
  const UniqueFd probe(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::flock(probe.get(), LOCK_SH), 0);
  std::thread prober([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ::flock(probe.get(), LOCK_UN);
  });
  TDBG_EXPECT_OK(files_.Lock(path));
  prober.join();
}

/// Says so often that somebody has the lock, and then what it is told to.
class BusyFiles : public ForwardingFileSystem {
 public:
  explicit BusyFiles(int busy) : ForwardingFileSystem(&LocalFileSystem()), busy_(busy) {}
  Result<std::unique_ptr<FileLock>> Lock(const std::string& path) override {
    ++asked;
    if (asked <= busy_) return FailedPrecondition("somebody has it");
    if (!then.ok()) return then;
    return ForwardingFileSystem::Lock(path);
  }
  int asked = 0;
  Status then;

 private:
  const int busy_;
};

TEST_F(FileLockTest, ALockThatSomebodyHasForAMomentIsWaitedFor) {
  const std::string path = scratch_ / "lock";
  BusyFiles files(3);
  const auto lock = WaitForLock(files, path, 3'600'000);
  TDBG_ASSERT_OK(lock);
  EXPECT_EQ(files.asked, 4);
  EXPECT_TRUE(files_.IsLocked(path));
}

TEST_F(FileLockTest, WhoeverKeepsALockIsNotWaitedForForEver) {
  BusyFiles files(1'000'000);
  EXPECT_EQ(WaitForLock(files, scratch_ / "lock", 200).status().code(), Code::kFailedPrecondition);
  EXPECT_GT(files.asked, 1);
  files.asked = 0;
  EXPECT_EQ(WaitForLock(files, scratch_ / "lock", 0).status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(files.asked, 1);
}

TEST_F(FileLockTest, ALockThatCannotBeTakenIsNotWaitedFor) {
  BusyFiles files(1);
  files.then = Status(Code::kUnavailable, "no locks here");
  EXPECT_EQ(WaitForLock(files, scratch_ / "lock", 3'600'000).status().code(), Code::kUnavailable);
  EXPECT_EQ(files.asked, 2);
}

}  // namespace
}  // namespace tdbg::base
