#include "jobs/output_pump.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <string>

#include "base/posix.h"

namespace tdbg::jobs {
namespace {

struct Pipe {
  Pipe() {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    reading.reset(ends[0]);
    writing.reset(ends[1]);
  }
  base::UniqueFd reading, writing;
};

// A command that prints into `command`, and a pump to somewhere.
class OutputPumpTest : public testing::Test {
 protected:
  void SetUp() override {
    ::signal(SIGPIPE, SIG_IGN);
    changed_.reset(::eventfd(0, EFD_CLOEXEC));
  }
  void PumpTo(int fd, std::function<bool()> reader_counts = {}, bool terminal = false) {
    OutputPump::Options options;
    options.source.read_fd = command_.reading.release();
    options.source.forward_fd = fd;
    options.source.terminal = terminal;
    options.changed_fd = changed_.get();
    options.copy = [this](std::string_view bytes) { copied_ += bytes.size(); };
    options.reader_counts = std::move(reader_counts);
    auto pump = OutputPump::Start(std::move(options));
    ASSERT_TRUE(pump.ok());
    pump_.emplace(*std::move(pump));
  }
  // \return 0 or errno
  int Print(std::string_view text) {
    return ::write(command_.writing.get(), text.data(), text.size()) >= 0 ? 0 : errno;
  }
  void WaitUntil(const std::function<bool()>& so) {
    uint64_t count;
    while (!so()) (void)!::read(changed_.get(), &count, sizeof(count));
  }
  void WaitForIdle() {
    pump_->AskForIdle();
    WaitUntil([this] { return pump_->idle() || pump_->ended(); });
  }

  Pipe command_;
  base::UniqueFd changed_;
  std::optional<OutputPump> pump_;
  std::atomic<size_t> copied_ = 0;
};

TEST_F(OutputPumpTest, IdleIsSaidOnceAllIsHandedOn) {
  Pipe reader;
  PumpTo(reader.writing.get());
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(Print("0123456789"), 0);
    WaitForIdle();
    char text[100];
    EXPECT_EQ(::read(reader.reading.get(), text, sizeof(text)), 10);
  }
  EXPECT_FALSE(pump_->ended());
  command_.writing.reset();
  WaitUntil([this] { return pump_->ended(); });
  EXPECT_EQ(pump_->error(), 0);
}

TEST_F(OutputPumpTest, WhatCannotBeWrittenIsAnErrorInTheCommand) {
  const base::UniqueFd full = base::OpenFd("/dev/full", O_WRONLY);
  PumpTo(full.get());
  EXPECT_EQ(Print("lost"), 0);
  WaitUntil([this] { return pump_->ended(); });
  EXPECT_EQ(pump_->error(), ENOSPC);
  EXPECT_EQ(Print("again"), EPIPE);
  EXPECT_EQ(copied_, 4u) << "it was printed, so the log has it";
}

TEST_F(OutputPumpTest, AReaderThatIsGoneIsAnErrorUnlessTheLauncherIsGoneToo) {
  {
    Pipe reader;
    PumpTo(reader.writing.get(), [] { return false; });
    reader.reading.reset();
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(Print("to nobody"), 0);
      WaitForIdle();
    }
    EXPECT_FALSE(pump_->ended());
  }
  command_ = Pipe();
  Pipe reader;
  PumpTo(reader.writing.get(), [] { return true; });
  reader.reading.reset();
  EXPECT_EQ(Print("to nobody"), 0);
  WaitUntil([this] { return pump_->ended(); });
  EXPECT_EQ(pump_->error(), EPIPE);
}

TEST_F(OutputPumpTest, AReaderThatSleepsHoldsUpItsOwnStreamOnly) {
  Pipe asleep, awake;
  PumpTo(asleep.writing.get());
  const std::string much(200'000, 'x');
  ASSERT_EQ(::fcntl(command_.writing.get(), F_SETFL, O_NONBLOCK), 0);
  while (Print(much) == 0) {
  }
  std::optional<OutputPump> first = std::exchange(pump_, std::nullopt);
  Pipe full = std::exchange(command_, Pipe());
  PumpTo(awake.writing.get());
  EXPECT_EQ(Print("heard"), 0);
  char text[100];
  EXPECT_EQ(::read(awake.reading.get(), text, sizeof(text)), 5);
  full.writing.reset();
  asleep.reading.reset();  // its thread ends
  while (!first->ended()) ::poll(nullptr, 0, 5);
}

TEST_F(OutputPumpTest, WhoeverMadeItsDescriptorNonBlockingLosesNothing) {
  Pipe reader;
  ASSERT_EQ(::fcntl(reader.writing.get(), F_SETFL, O_NONBLOCK), 0);
  PumpTo(reader.writing.get());
  const std::string much(60'000, 'x');
  std::string got;
  char text[4096];
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(Print(much), 0);
    while (got.size() < much.size() * (i + 1)) {
      const ssize_t some = ::read(reader.reading.get(), text, sizeof(text));
      ASSERT_GT(some, 0);
      got.append(text, static_cast<size_t>(some));
    }
  }
  EXPECT_EQ(got, std::string(much.size() * 5, 'x'));
}

}  // namespace
}  // namespace tdbg::jobs
