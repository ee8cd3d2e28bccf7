#include <gtest/gtest.h>
#include <sys/resource.h>
#include <time.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "base/file.h"
#include "base/testing.h"

namespace tdbg::base {
namespace {

using std::chrono::milliseconds;

class ChangeWaiterTest : public testing::Test {
 protected:
  void Append(const std::string& name, std::string_view text) {
    std::ofstream(scratch_ / name, std::ios::app | std::ios::binary) << text;
  }
  bool Quiet() { return !waiter_.Wait(30); }
  bool Noticed() { return waiter_.Wait(5000); }
  // One write can be several events (created, modified, closed), which Wait may report one by one.
  void WaitUntilQuiet() {
    while (waiter_.Wait(30)) {
    }
  }

  ScratchDirectory scratch_;
  ChangeWaiter waiter_;
};

TEST_F(ChangeWaiterTest, NothingHappensUntilTheTimeIsOut) {
  Spill(scratch_ / "f", "x");
  waiter_.Watch(scratch_ / "f");
  const auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(waiter_.Wait(60));
  EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(60));
  EXPECT_FALSE(waiter_.Wait(0));
}

TEST_F(ChangeWaiterTest, AppendingToAWatchedFileIsNoticed) {
  Spill(scratch_ / "f", "x");
  waiter_.Watch(scratch_ / "f");
  waiter_.Watch(scratch_ / "f");
  Append("f", "y");
  EXPECT_TRUE(Noticed());
  WaitUntilQuiet();
  EXPECT_TRUE(Quiet());
}

TEST_F(ChangeWaiterTest, NewEntriesOfADirectoryAreNoticed) {
  waiter_.Watch(scratch_.path());
  Spill(scratch_ / "new", "");
  EXPECT_TRUE(Noticed());
  WaitUntilQuiet();
  std::rename((scratch_ / "new").c_str(), (scratch_ / "renamed").c_str());
  EXPECT_TRUE(Noticed());
}

TEST_F(ChangeWaiterTest, FileThatDoesNotExistYetIsWatchedOnceItDoes) {
  waiter_.Watch(scratch_ / "later");
  EXPECT_TRUE(Quiet());
  Spill(scratch_ / "later", "x");
  EXPECT_TRUE(Noticed());
  WaitUntilQuiet();
  Append("later", "y");
  EXPECT_TRUE(Noticed());
}

// events.jsonl is appended to, but status files are replaced: a watch that stayed on the old file would be
// deaf from the first replacement on.
TEST_F(ChangeWaiterTest, ReplacedFileIsStillWatchedUnderItsName) {
  Spill(scratch_ / "f", "0");
  waiter_.Watch(scratch_ / "f");
  std::ifstream holds_the_old_one_open(scratch_ / "f");
  for (int i = 0; i < 3; ++i) {
    TDBG_ASSERT_OK(LocalFileSystem().WriteFileAtomic(scratch_ / "f", std::to_string(i)));
    EXPECT_TRUE(Noticed()) << i;
    WaitUntilQuiet();
  }
  Append("f", "more");
  EXPECT_TRUE(Noticed());
}

TEST_F(ChangeWaiterTest, DeletedAndCreatedAgainIsNoticedBothTimes) {
  Spill(scratch_ / "f", "x");
  waiter_.Watch(scratch_ / "f");
  TDBG_ASSERT_OK(LocalFileSystem().Remove(scratch_ / "f"));
  EXPECT_TRUE(Noticed());
  WaitUntilQuiet();
  Spill(scratch_ / "f", "y");
  EXPECT_TRUE(Noticed());
}

TEST_F(ChangeWaiterTest, WakeEndsTheWaitOfAnotherThread) {
  const auto start = std::chrono::steady_clock::now();
  std::thread waker([&] {
    std::this_thread::sleep_for(milliseconds(30));
    waiter_.Wake();
  });
  EXPECT_TRUE(waiter_.Wait(-1));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(3));
  waker.join();
  EXPECT_TRUE(Quiet()) << "one Wake ended two waits";
}

TEST_F(ChangeWaiterTest, WakeBeforeTheWaitIsNotLost) {
  waiter_.Wake();
  EXPECT_TRUE(waiter_.Wait(5000));
}

TEST_F(ChangeWaiterTest, WithoutDescriptorsItPollsInstead) {
  Spill(scratch_ / "f", "x");
  rlimit before;
  ::getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none{3, before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &none);
  ChangeWaiter poor;
  ::setrlimit(RLIMIT_NOFILE, &before);
  poor.Watch(scratch_ / "f");
  EXPECT_FALSE(poor.Wait(20));
  Append("f", "y");
  EXPECT_TRUE(poor.Wait(5000));
  EXPECT_FALSE(poor.Wait(20));
  poor.Wake();
  EXPECT_TRUE(poor.Wait(5000));
}

TEST_F(ChangeWaiterTest, WaitingUsesNoCpu) {
  Spill(scratch_ / "f", "x");
  waiter_.Watch(scratch_ / "f");
  const auto thread_nanos = [] {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1'000'000'000 + now.tv_nsec;
  };
  const auto before = thread_nanos();
  EXPECT_FALSE(waiter_.Wait(300));
  EXPECT_LT(thread_nanos() - before, 20'000'000);
}

}  // namespace
}  // namespace tdbg::base
