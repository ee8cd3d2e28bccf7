#include "jobs/interrupts.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tdbg::jobs {
namespace {

// A command that leads a group of its own, ignores SIGINT and is gone when the test ends.
class InterruptListenerTest : public testing::Test {
 protected:
  void SetUp() override {
    leader_ = ::fork();
    if (leader_ == 0) {
      ::signal(SIGINT, SIG_IGN);
      while (true) ::pause();
    }
    ASSERT_GT(leader_, 0);
    ASSERT_EQ(::setpgid(leader_, leader_), 0);
    listener_.Start(leader_);
    // Until the listener is in the group: what it hears says so.
    while (heard_ == 0) {
      ::kill(-leader_, SIGINT);
      pollfd source{listener_.fd(), POLLIN, 0};
      if (::poll(&source, 1, 10) > 0) heard_ += listener_.Take();
    }
    ::poll(nullptr, 0, 50);
    listener_.Take();
  }
  void TearDown() override {
    ::kill(leader_, SIGKILL);
    ::waitpid(leader_, nullptr, 0);
  }

  pid_t leader_ = -1;
  InterruptListener listener_;
  int heard_ = 0;
};

TEST_F(InterruptListenerTest, ACtrlCJustBeforeTheCommandsEndIsHeard) {
  ::kill(-leader_, SIGINT);
  EXPECT_EQ(listener_.Finish(), 1);  // the listener itself may not have run since
  EXPECT_LT(listener_.fd(), 0);
}

// On a terminal, `tdbg run -- yes | head -1` would otherwise stand still.
TEST_F(InterruptListenerTest, TheListenerHoldsNoEndOfAPipeThatTheLauncherHas) {
  InterruptListener second;
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  second.Start(leader_);
  pollfd source{second.fd(), POLLIN, 0};
  while (::poll(&source, 1, 10) == 0) ::kill(-leader_, SIGINT);  // until it is there
  ::close(ends[0]);
  ::signal(SIGPIPE, SIG_IGN);
  EXPECT_EQ(::write(ends[1], "x", 1), -1);
  EXPECT_EQ(errno, EPIPE);
  ::close(ends[1]);
  (void)second.Finish();
}

TEST_F(InterruptListenerTest, WithoutACtrlCNothingIsHeard) { EXPECT_EQ(listener_.Finish(), 0); }

TEST_F(InterruptListenerTest, AStoppedListenerIsNotWaitedForForEver) {
  ::kill(-leader_, SIGSTOP);
  EXPECT_EQ(listener_.Finish(), 0);
  EXPECT_EQ(listener_.Finish(), 0);  // and again there is none
}

}  // namespace
}  // namespace tdbg::jobs
