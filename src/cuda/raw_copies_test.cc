#include "cuda/raw_copies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cuda/driver.h"
#include "cuda/testing/fake_library.h"

namespace tdbg::cuda {
namespace {

using Bytes = std::vector<unsigned char>;

class RawCopiesTest : public FakeDriverTest {
 protected:
  static RawCopiesOptions Small() { return {.ring_bytes = 64 << 10, .pinned_bytes = 512 << 10}; }
  static Bytes Random(size_t n, unsigned seed) {
    std::mt19937 random(seed);
    Bytes bytes(n);
    for (auto& b : bytes) b = static_cast<unsigned char>(random());
    return bytes;
  }
  static RawCopies::Source Of(const Bytes& bytes) {
    return {reinterpret_cast<uintptr_t>(bytes.data()), bytes.size()};
  }
  static RawCopies::Put One(RawCopies* copies, uint64_t stream, const Bytes& bytes) {
    return copies->Copy(0, stream, std::vector{Of(bytes)}).at(0);
  }
  static std::optional<Bytes> Await(RawCopies* copies, Ticket ticket, size_t n) {
    const auto patience = std::chrono::steady_clock::now() + std::chrono::minutes(2);
    while (copies->Look(ticket) == TicketState::kUnderWay && std::chrono::steady_clock::now() < patience)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const std::byte* const data = copies->Data(ticket);
    if (data == nullptr) return std::nullopt;
    const auto* const first = reinterpret_cast<const unsigned char*>(data);
    return Bytes(first, first + n);
  }
};

TEST_F(RawCopiesTest, TheBytesAreThoseOfTheirPlaceOnTheStream) {
  Connection connection(&driver);
  RawCopies copies(&connection, Small());
  Bytes tensor = Random(1000, 1);
  const Bytes before = tensor;
  fake.set("hold=1");
  const RawCopies::Put put = One(&copies, 7, tensor);
  ASSERT_EQ(put.refusal, Refusal::kNone) << connection.trouble();
  // The training's next kernel on the same stream: the snapshot is in front of it.
  const Bytes after = Random(1000, 2);
  driver.CopyOnDeviceAsync(reinterpret_cast<uintptr_t>(tensor.data()),
                           reinterpret_cast<uintptr_t>(after.data()), 1000, reinterpret_cast<Handle>(7));
  EXPECT_EQ(copies.Look(put.ticket), TicketState::kUnderWay);
  EXPECT_EQ(copies.Data(put.ticket), nullptr);
  fake.set("hold=0");
  EXPECT_EQ(Await(&copies, put.ticket, 1000), before);
  fake.drain();
  EXPECT_EQ(tensor, after);
}

TEST_F(RawCopiesTest, NothingWaitsAndTheBusIsNotTheTrainingsStream) {
  Connection connection(&driver);
  RawCopies copies(&connection, Small());
  const Bytes one = Random(300, 1), two = Random(5000, 2);
  const auto puts = copies.Copy(0, 7, std::vector{Of(one), Of(two)});
  EXPECT_EQ(fake.calls("cuMemcpyDtoDAsync_v2"), 2u);
  EXPECT_EQ(fake.calls("cuMemcpyDtoHAsync_v2"), 2u);
  EXPECT_EQ(fake.calls("cuEventRecord"), 1u) << "one for all that is put together";
  EXPECT_EQ(fake.calls("cuStreamWaitEvent"), 1u)
      << "our stream waits for the training's, never the other way";
  EXPECT_EQ(Await(&copies, puts[0].ticket, 300), one);
  EXPECT_EQ(Await(&copies, puts[1].ticket, 5000), two);
  const uint64_t calls = fake.calls(nullptr);
  (void)copies.Look(puts[0].ticket);
  copies.Release(puts[0].ticket);
  copies.Release(puts[1].ticket);
  EXPECT_EQ(fake.calls(nullptr), calls) << "looking and releasing ask nothing of the driver";
}

TEST_F(RawCopiesTest, ManyStepsUnderWayInMemoryThatStaysWhatItWas) {
  Connection connection(&driver);
  RawCopies copies(&connection, Small());
  fake.set("delay_us=300");
  struct Sent {
    Bytes bytes;
    Ticket ticket;
  };
  std::deque<Sent> under_way;
  std::mt19937 random(3);
  uint64_t pinned = 0;
  size_t refused = 0;
  for (unsigned step = 0; step < 400; ++step) {
    Bytes bytes = Random(1 + random() % 20000, step);
    const RawCopies::Put put = One(&copies, 7 + step % 3, bytes);
    ASSERT_TRUE(put.refusal == Refusal::kNone || put.refusal == Refusal::kFull) << connection.trouble();
    put.refusal == Refusal::kNone ? under_way.push_back({std::move(bytes), put.ticket}) : void(++refused);
    if (put.refusal == Refusal::kFull) fake.drain();  // the bytes of a test must outlive their copy
    while (under_way.size() > 12 || (put.refusal == Refusal::kFull && !under_way.empty())) {
      const Sent& s = under_way.front();
      ASSERT_EQ(Await(&copies, s.ticket, s.bytes.size()), s.bytes) << step;
      copies.Release(s.ticket);
      under_way.pop_front();
    }
    if (step == 100) pinned = copies.pinned_bytes();
  }
  fake.drain();
  for (const Sent& s : under_way) EXPECT_EQ(Await(&copies, s.ticket, s.bytes.size()), s.bytes);
  EXPECT_LE(copies.pinned_bytes(), Small().pinned_bytes);
  EXPECT_LE(copies.pinned_bytes(), pinned + Small().ring_bytes);
  EXPECT_LT(refused, 100u);
}

TEST_F(RawCopiesTest, WhatHasNoRoomIsRefusedUntilSomethingIsReleased) {
  Connection connection(&driver);
  RawCopies copies(&connection, {.ring_bytes = 64 << 10, .pinned_bytes = 200 << 10});
  const Bytes bytes = Random(60000, 1);
  fake.set("hold=1");
  std::vector<Ticket> tickets;
  RawCopies::Put put;
  while ((put = One(&copies, 7, bytes)).refusal == Refusal::kNone) tickets.push_back(put.ticket);
  EXPECT_EQ(put.refusal, Refusal::kFull);
  EXPECT_EQ(tickets.size(), 2u) << "64 KiB of words, two rings";
  copies.Release(tickets[0]);
  EXPECT_EQ(One(&copies, 7, bytes).refusal, Refusal::kFull) << "the device still writes there";
  fake.set("hold=0");
  fake.drain();
  put = One(&copies, 7, bytes);
  ASSERT_EQ(put.refusal, Refusal::kNone);
  EXPECT_EQ(Await(&copies, put.ticket, bytes.size()), bytes);
  EXPECT_EQ(Await(&copies, tickets[1], bytes.size()), bytes) << "who is not released keeps his place";
}

TEST_F(RawCopiesTest, ATensorLargerThanARingHasOneOfItsOwn) {
  Connection connection(&driver);
  RawCopies copies(&connection, {.ring_bytes = 64 << 10, .pinned_bytes = 3 << 20});
  const Bytes large = Random(1 << 20, 1), too_large = Random(4 << 20, 2);
  const auto puts = copies.Copy(0, 7, std::vector{Of(too_large), Of(large)});
  EXPECT_EQ(puts[0].refusal, Refusal::kMemory) << "it never fits";
  ASSERT_EQ(puts[1].refusal, Refusal::kNone);
  EXPECT_EQ(Await(&copies, puts[1].ticket, large.size()), large);
}

TEST_F(RawCopiesTest, WithoutDeviceMemoryTheTrainingsOwnStreamCopies) {
  Connection connection(&driver);
  RawCopies copies(&connection, {.ring_bytes = 64 << 10, .pinned_bytes = 512 << 10, .device_bytes = 0});
  Bytes tensor = Random(1000, 1);
  const Bytes before = tensor, after = Random(1000, 2);
  fake.set("hold=1");
  const RawCopies::Put put = One(&copies, 7, tensor);
  driver.CopyOnDeviceAsync(reinterpret_cast<uintptr_t>(tensor.data()),
                           reinterpret_cast<uintptr_t>(after.data()), 1000, reinterpret_cast<Handle>(7));
  fake.set("hold=0");
  EXPECT_EQ(Await(&copies, put.ticket, 1000), before);
  EXPECT_EQ(copies.device_bytes(), 0u);
  EXPECT_EQ(fake.calls("cuMemcpyDtoDAsync_v2"), 1u) << "the test's own";
  fake.drain();
}

TEST_F(RawCopiesTest, ASnapshotTakesNoMoreThanAnEighthOfWhatIsFree) {
  Connection connection(&driver);
  RawCopies copies(&connection, Small());
  fake.set("memory=500000");
  const Bytes bytes = Random(100, 1);
  const RawCopies::Put put = One(&copies, 7, bytes);
  ASSERT_EQ(put.refusal, Refusal::kNone);
  EXPECT_EQ(copies.device_bytes(), 0u);
  EXPECT_EQ(Await(&copies, put.ticket, 100), bytes);
}

TEST_F(RawCopiesTest, WithoutMemoryItIsRefusedAndTriedAgain) {
  Connection connection(&driver);
  RawCopies copies(&connection, Small());
  const Bytes bytes = Random(1000, 1);
  for (const char* memory : {"memory=1000", "memory=70000"}) {  // nothing; the words and no ring
    fake.set(memory);
    EXPECT_EQ(One(&copies, 7, bytes).refusal, Refusal::kMemory);
    EXPECT_TRUE(connection.trouble().empty());
  }
  fake.set("memory=100000000");
  const RawCopies::Put put = One(&copies, 7, bytes);
  ASSERT_EQ(put.refusal, Refusal::kNone);
  EXPECT_EQ(Await(&copies, put.ticket, 1000), bytes);
}

TEST_F(RawCopiesTest, MemoryThatIsOutWhileADeviceIsFirstSeenEndsNothing) {
  const Bytes bytes = Random(1000, 1);
  {
    Connection connection(&driver);
    RawCopies copies(&connection, Small());
    fake.set("memory=1000");
    EXPECT_EQ(One(&copies, 7, bytes).refusal, Refusal::kMemory);
    // And it may be all that there ever was.
  }
  for (int at = 5; at <= 8; ++at) {  // words, their address, stream, event
    if (at == 6) continue;           // an address takes no memory
    fake.reset();
    Connection connection(&driver);
    RawCopies copies(&connection, Small());
    fake.set(("fail=" + std::to_string(at) + ":2").c_str());
    EXPECT_EQ(One(&copies, 7, bytes).refusal, Refusal::kMemory) << at;
    EXPECT_EQ(connection.trouble(), "") << at;
    const RawCopies::Put put = One(&copies, 7, bytes);
    ASSERT_EQ(put.refusal, Refusal::kNone) << at << ": " << connection.trouble();
    EXPECT_EQ(Await(&copies, put.ticket, 1000), bytes);
  }
}

TEST_F(RawCopiesTest, AThreadWithoutAContextHasOneWhileWeCall) {
  fake.set("device=-1");
  Connection connection(&driver);
  const Bytes bytes = Random(1000, 1);
  {
    RawCopies copies(&connection, Small());
    const RawCopies::Put put = One(&copies, 7, bytes);
    ASSERT_EQ(put.refusal, Refusal::kNone) << connection.trouble();
    EXPECT_EQ(Await(&copies, put.ticket, 1000), bytes);
  }
  EXPECT_EQ(connection.trouble(), "");
  EXPECT_EQ(fake.calls("cuStreamDestroy_v2"), 1u);
}

TEST_F(RawCopiesTest, SomebodysCaptureIsLeftAlone) {
  Connection connection(&driver);
  RawCopies copies(&connection, Small());
  const Bytes bytes = Random(1000, 1);
  fake.begin_capture(5);
  EXPECT_EQ(One(&copies, 5, bytes).refusal, Refusal::kCapturing);
  EXPECT_EQ(One(&copies, 0, bytes).refusal, Refusal::kCapturing) << "the default stream";
  const RawCopies::Put put = One(&copies, 6, bytes);
  ASSERT_EQ(put.refusal, Refusal::kNone) << "another stream, memory and all";
  EXPECT_EQ(Await(&copies, put.ticket, 1000), bytes);
  EXPECT_NE(fake.end_capture(5), 0u) << "the capture is whole";
  EXPECT_TRUE(connection.trouble().empty());
}

TEST_F(RawCopiesTest, AnErrorOfTheDriverEndsItWhereverItComes) {
  const Bytes bytes = Random(1000, 1);
  bool ever_whole = false;
  for (int at = 1; at < 40; ++at) {
    fake.reset();
    Connection connection(&driver);
    RawCopies copies(&connection, Small());
    fake.set(("fail=" + std::to_string(at) + ":700").c_str());
    size_t arrived = 0;
    for (int i = 0; i < 3; ++i) {
      const RawCopies::Put put = One(&copies, 7, bytes);
      fake.drain();
      if (put.refusal != Refusal::kNone) {
        EXPECT_EQ(put.refusal, Refusal::kClosed) << at;
        EXPECT_THAT(connection.trouble(), ::testing::HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS (700)"));
        continue;
      }
      if (copies.Look(put.ticket) != TicketState::kArrived) continue;
      EXPECT_EQ(Await(&copies, put.ticket, 1000), bytes) << at;
      ++arrived;
      copies.Release(put.ticket);
    }
    if (!connection.trouble().empty()) {
      const uint64_t calls = fake.calls(nullptr);
      EXPECT_EQ(One(&copies, 7, bytes).refusal, Refusal::kClosed);
      EXPECT_EQ(fake.calls(nullptr), calls) << "nothing more is asked of it";
    }
    ever_whole |= arrived == 3;
  }
  EXPECT_TRUE(ever_whole) << "40 calls are more than three copies make";
}

TEST_F(RawCopiesTest, AForkedChildTouchesNothing) {
  Connection connection(&driver);
  RawCopies copies(&connection, Small());
  const Bytes bytes = Random(1000, 1);
  const RawCopies::Put put = One(&copies, 7, bytes);
  ASSERT_EQ(Await(&copies, put.ticket, 1000), bytes);
  const pid_t child = fork();
  if (child == 0) {  // the fake driver aborts where it is called
    const bool refused =
        One(&copies, 7, bytes).refusal == Refusal::kClosed && copies.Data(put.ticket) == nullptr;
    copies.Release(put.ticket);
    copies.~RawCopies();
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(RawCopiesTest, AnotherDeviceHasMemoryOfItsOwn) {
  Connection connection(&driver);
  RawCopies copies(&connection, Small());
  const Bytes bytes = Random(1000, 1), others = Random(1000, 2);
  const RawCopies::Put put = One(&copies, 7, bytes);
  const uint64_t pinned = copies.pinned_bytes();
  const RawCopies::Put other = copies.Copy(1, 7, std::vector{Of(others)}).at(0);
  ASSERT_EQ(other.refusal, Refusal::kNone) << connection.trouble();
  EXPECT_EQ(copies.pinned_bytes(), 2 * pinned);
  EXPECT_EQ(fake.calls("cuCtxPushCurrent_v2"), 1u);
  EXPECT_EQ(Await(&copies, put.ticket, 1000), bytes);
  EXPECT_EQ(Await(&copies, other.ticket, 1000), others);
}

}  // namespace
}  // namespace tdbg::cuda
