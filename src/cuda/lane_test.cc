#include "cuda/lane.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>

#include "cuda/driver.h"
#include "cuda/testing/fake_library.h"

namespace tdbg::cuda {
namespace {

using ::testing::HasSubstr;

class CudaLaneTest : public FakeDriverTest {
 protected:
  Lane MakeLane(LaneOptions options = {}) { return Lane(&driver, std::as_bytes(std::span(kImage)), options); }

  static Item Of(const std::vector<float>& values, uint32_t flags = kStatistics | kHistogram) {
    return {reinterpret_cast<uintptr_t>(values.data()), values.size(), DType::kFloat32, flags};
  }
  /// What `stats` says of the same values.
  static void ExpectRow(const Arrival& arrival, size_t i, const std::vector<float>& values) {
    const auto n = static_cast<int64_t>(values.size());
    Summary summary;
    Histogram histogram;
    ASSERT_TRUE(
        Summarizer().Summarize({values.data(), DType::kFloat32, {&n, 1}, {}}, &summary, &histogram).ok());
    const Arrival::Tensor& t = arrival.tensors.at(i);
    EXPECT_TRUE(t.present);
    EXPECT_EQ(t.summary.count, summary.count);
    EXPECT_EQ(t.summary.nan_count, summary.nan_count);
    EXPECT_EQ(t.summary.zero_count, summary.zero_count);
    if (summary.finite_count() == 0) {
      EXPECT_TRUE(std::isnan(t.summary.min) && std::isnan(t.summary.mean) && std::isnan(t.summary.l2));
    } else {
      EXPECT_EQ(t.summary.min, summary.min);
      EXPECT_EQ(t.summary.max, summary.max);
      EXPECT_EQ(t.summary.abs_min, summary.abs_min);
      EXPECT_NEAR(t.summary.mean, summary.mean, 1e-6 * summary.abs_max);
      EXPECT_NEAR(t.summary.variance, summary.variance, 1e-5 * summary.variance + 1e-30);
      EXPECT_NEAR(t.summary.l2, summary.l2, 1e-6 * summary.l2);
    }
    EXPECT_THAT(arrival.histogram(t), ::testing::ElementsAreArray(histogram));
  }
  static std::vector<float> Values(size_t n, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> values(n);
    for (float& v : values) v = normal(random);
    return values;
  }
  // A launch takes half a second under ThreadSanitizer.
  std::optional<Arrival> Await(Lane* lane, Ticket ticket) {
    const auto patience = std::chrono::steady_clock::now() + std::chrono::minutes(2);
    while (lane->Look(ticket) == TicketState::kUnderWay && std::chrono::steady_clock::now() < patience)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return lane->Take(ticket);
  }

  static constexpr char kImage[] = "image";
};

TEST_F(CudaLaneTest, ATensorFromPutToARow) {
  Lane lane = MakeLane();
  const auto values = Values(1000, 1);
  const Lane::Put put = lane.Launch(0, 0, std::vector{Of(values)});
  ASSERT_EQ(put.refusal, Refusal::kNone) << lane.trouble();
  const auto arrival = Await(&lane, put.ticket);
  ASSERT_TRUE(arrival);
  ExpectRow(*arrival, 0, values);
}

TEST_F(CudaLaneTest, AnAbsentTensorAndValuesThatTravel) {
  Lane lane = MakeLane();
  const auto values = Values(5, 1);
  const Lane::Put put = lane.Launch(
      0, 0, std::vector<Item>{Of(values, kStatistics | kValues), {0, 7, DType::kFloat32, kStatistics}});
  const auto arrival = Await(&lane, put.ticket);
  ASSERT_TRUE(arrival);
  EXPECT_FALSE(arrival->tensors[1].present);
  const Arrival::Tensor& t = arrival->tensors[0];
  ASSERT_EQ(t.bytes, 20u);
  EXPECT_EQ(std::memcmp(arrival->values.data() + t.first_byte, values.data(), 20), 0);
}

TEST_F(CudaLaneTest, NothingIsReadBeforeItHasArrived) {
  Lane lane = MakeLane();
  fake.set("hold=1");
  const auto values = Values(100, 1);
  const Lane::Put put = lane.Launch(0, 0, std::vector{Of(values)});
  EXPECT_EQ(lane.Look(put.ticket), TicketState::kUnderWay);
  EXPECT_FALSE(lane.Take(put.ticket));
  fake.set("hold=0");
  EXPECT_TRUE(Await(&lane, put.ticket));
}

TEST_F(CudaLaneTest, StreamsKnowNothingOfEachOther) {
  Lane lane = MakeLane();
  fake.set("delay_us=2000");
  std::vector<std::vector<float>> values;
  std::vector<Ticket> tickets;
  for (unsigned i = 0; i < 18; ++i) {
    values.push_back(Values(300, i));
    const Lane::Put put = lane.Launch(0, 7 + i % 3, std::vector{Of(values.back())});
    ASSERT_EQ(put.refusal, Refusal::kNone);
    tickets.push_back(put.ticket);
  }
  for (size_t i = tickets.size(); i-- > 0;) {
    const auto arrival = Await(&lane, tickets[i]);
    ASSERT_TRUE(arrival) << i;
    ExpectRow(*arrival, 0, values[i]);
  }
}

TEST_F(CudaLaneTest, AFullRingRefusesAndWaitsForNobody) {
  LaneOptions options;
  options.most_slots = options.fewest_slots = 2;
  Lane lane = MakeLane(options);
  fake.set("hold=1");
  const auto values = Values(100, 1);
  std::vector<Ticket> tickets;
  Lane::Put put;
  for (int i = 0; i < 100; ++i) {
    put = lane.Launch(0, 0, std::vector{Of(values)});
    if (put.refusal != Refusal::kNone) break;
    tickets.push_back(put.ticket);
  }
  EXPECT_EQ(put.refusal, Refusal::kFull);
  EXPECT_EQ(tickets.size(), 16u) << "two slots in each of eight plans";
  fake.set("hold=0");
  for (const auto ticket : tickets) EXPECT_TRUE(Await(&lane, ticket));
  put = lane.Launch(0, 0, std::vector{Of(values)});
  EXPECT_EQ(put.refusal, Refusal::kNone);
  EXPECT_TRUE(Await(&lane, put.ticket)) << "and `values` is read until then";
  EXPECT_TRUE(lane.trouble().empty());
}

TEST_F(CudaLaneTest, AnErrorOfTheDriverEndsTheLaneWhereverItComes) {
  const auto values = Values(1000, 1);
  for (int at = 1; at < 40; ++at) {
    fake.reset();
    Lane lane = MakeLane();
    fake.set(("fail=" + std::to_string(at) + ":700").c_str());
    size_t arrived = 0, refused = 0;
    for (int i = 0; i < 6; ++i) {
      const Lane::Put put = lane.Launch(0, 0, std::vector{Of(values)});
      if (put.refusal != Refusal::kNone) {
        EXPECT_EQ(put.refusal, Refusal::kClosed) << at;
        EXPECT_THAT(lane.trouble(), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS (700)"));
        ++refused;
        continue;
      }
      fake.drain();
      const auto arrival = lane.Take(put.ticket);
      if (!arrival) continue;
      ExpectRow(*arrival, 0, values);
      ++arrived;
    }
    EXPECT_LE(arrived + refused, 6u);
    const uint64_t calls = fake.calls(nullptr);
    (void)lane.Launch(0, 0, std::vector{Of(values)});
    if (!lane.trouble().empty()) {
      EXPECT_EQ(fake.calls(nullptr), calls) << "nothing more is asked of it";
    }
  }
  fake.drain();  // the last launch reads the values
}

TEST_F(CudaLaneTest, WithoutMemoryABatchIsLeftOutAndTheNextIsTriedAgain) {
  Lane lane = MakeLane();
  fake.set("memory=1000");
  const auto values = Values(1000, 1);
  EXPECT_EQ(lane.Launch(0, 0, std::vector{Of(values)}).refusal, Refusal::kMemory);
  EXPECT_TRUE(lane.trouble().empty());
  fake.set("memory=100000000");
  const Lane::Put put = lane.Launch(0, 0, std::vector{Of(values)});
  ASSERT_EQ(put.refusal, Refusal::kNone);
  EXPECT_TRUE(Await(&lane, put.ticket));
}

TEST_F(CudaLaneTest, WithoutPinnedMemoryNoStepWaitsForTheDevice) {
  Lane lane = MakeLane();
  const auto values = Values(1000, 1);
  fake.set("memory=100000");  // for the device's part, and not for the ring
  for (int i = 0; i < 3; ++i) EXPECT_EQ(lane.Launch(0, 0, std::vector{Of(values)}).refusal, Refusal::kMemory);
  EXPECT_EQ(fake.calls("cuMemAlloc_v2"), 1u);
  EXPECT_EQ(fake.calls("cuMemFree_v2"), 0u) << "freeing waits";
  fake.set("memory=100000000");
  const Lane::Put put = lane.Launch(0, 0, std::vector{Of(values)});
  ASSERT_EQ(put.refusal, Refusal::kNone);
  const auto arrival = Await(&lane, put.ticket);
  ASSERT_TRUE(arrival);
  ExpectRow(*arrival, 0, values);
  EXPECT_EQ(fake.calls("cuMemAlloc_v2"), 1u);
}

TEST_F(CudaLaneTest, WithoutMemoryForTheKernelsThemselvesTheNextBatchIsTriedAgain) {
  Lane lane = MakeLane();
  const auto values = Values(1000, 1);
  fake.set("image=2");  // CUDA_ERROR_OUT_OF_MEMORY
  EXPECT_EQ(lane.Launch(0, 0, std::vector{Of(values)}).refusal, Refusal::kMemory);
  EXPECT_EQ(lane.trouble(), "");
  fake.set("image=0");
  const Lane::Put put = lane.Launch(0, 0, std::vector{Of(values)});
  ASSERT_EQ(put.refusal, Refusal::kNone) << lane.trouble();
  const auto arrival = Await(&lane, put.ticket);
  ASSERT_TRUE(arrival);
  ExpectRow(*arrival, 0, values);
}

TEST_F(CudaLaneTest, ALaunchWithoutMemoryIsAStepLeftOutAndTheNextIsRight) {
  const auto values = Values(1000, 1);
  for (int at = 1; at <= 2; ++at) {  // the launch that counts, and the one that delivers
    fake.reset();
    Lane lane = MakeLane();
    ASSERT_TRUE(Await(&lane, lane.Launch(0, 0, std::vector{Of(values)}).ticket));
    // Before the launches: cuDeviceGet, cuCtxGetDevice, cuStreamIsCapturing.
    fake.set(("fail=" + std::to_string(3 + at) + ":2").c_str());
    EXPECT_EQ(lane.Launch(0, 0, std::vector{Of(values)}).refusal, Refusal::kMemory) << at;
    EXPECT_EQ(lane.trouble(), "") << at;
    for (int i = 0; i < 3; ++i) {
      const Lane::Put put = lane.Launch(0, 0, std::vector{Of(values)});
      ASSERT_EQ(put.refusal, Refusal::kNone) << at << ": " << lane.trouble();
      const auto arrival = Await(&lane, put.ticket);
      ASSERT_TRUE(arrival) << at;
      ExpectRow(*arrival, 0, values);  // nothing is counted twice
    }
  }
}

TEST_F(CudaLaneTest, ATypeThatNoKernelIsForIsNamedSoHoweverSmallTheTensor) {
  Lane lane = MakeLane();
  const auto values = Values(4, 1);
  Item item = Of(values, kValues);
  item.dtype = DType::kInvalid;
  EXPECT_EQ(lane.Launch(0, 0, std::vector{item}).refusal, Refusal::kKind);
}

TEST_F(CudaLaneTest, AnUnknownArchitectureAnOldDriverAndNoneAreOneSentence) {
  fake.set("image=209");
  Lane lane = MakeLane();
  const auto values = Values(10, 1);
  EXPECT_EQ(lane.Launch(0, 0, std::vector{Of(values)}).refusal, Refusal::kClosed);
  EXPECT_THAT(lane.trouble(), HasSubstr("device 0 takes none of the kernels"));
  fake.set("version=11080");
  EXPECT_THAT(Driver::Load(kFakeCudaLibrary).status().message(), HasSubstr("too old: it speaks CUDA 11.8"));
  EXPECT_THAT(Driver::Load("libno-such-driver.so").status().message(), HasSubstr("no NVIDIA driver"));
}

TEST_F(CudaLaneTest, AnotherDevicesContextIsEnteredAndLeft) {
  Lane lane = MakeLane();
  const auto values = Values(10, 1);
  const Lane::Put put = lane.Launch(1, 0, std::vector{Of(values)});
  ASSERT_EQ(put.refusal, Refusal::kNone) << lane.trouble();
  EXPECT_EQ(fake.calls("cuCtxPushCurrent_v2"), 1u);
  EXPECT_EQ(fake.calls("cuCtxPopCurrent_v2"), 1u);
  EXPECT_TRUE(Await(&lane, put.ticket));
}

TEST_F(CudaLaneTest, AThreadWithoutAContextHasOneWhileWeCall) {
  fake.set("device=-1");
  const auto values = Values(500, 1);
  {
    Lane lane = MakeLane();
    const Lane::Put put = lane.Launch(0, 3, std::vector{Of(values)});
    ASSERT_EQ(put.refusal, Refusal::kNone) << lane.trouble();
    ASSERT_TRUE(Await(&lane, put.ticket));
    lane.PrepareCapture(0);
    fake.begin_capture(4);
    const Lane::Put captured = lane.Launch(0, 4, std::vector{Of(values)});
    const uint64_t graph = fake.end_capture(4);
    ASSERT_NE(captured.graph, 0u) << lane.trouble();
    lane.BeforeReplay(0, 4);
    fake.replay(graph, 4);
    EXPECT_TRUE(Await(&lane, lane.Replayed(captured.graph)));
    EXPECT_EQ(lane.trouble(), "");
  }
  EXPECT_EQ(fake.calls("cuMemFree_v2"), 1u);
  EXPECT_EQ(fake.calls("cuCtxPushCurrent_v2"), fake.calls("cuCtxPopCurrent_v2"));
}

TEST_F(CudaLaneTest, SomebodysCaptureIsLeftAlone) {
  Lane lane = MakeLane();
  const auto values = Values(10, 1);
  fake.begin_capture(5);
  EXPECT_EQ(lane.Launch(0, 5, std::vector{Of(values)}).refusal, Refusal::kCapturing);
  EXPECT_EQ(lane.Launch(0, 0, std::vector{Of(values)}).refusal, Refusal::kCapturing) << "the default stream";
  const Lane::Put put = lane.Launch(0, 6, std::vector{Of(values)});
  EXPECT_EQ(put.refusal, Refusal::kNone) << "another stream, memory and all";
  EXPECT_TRUE(Await(&lane, put.ticket));
  EXPECT_NE(fake.end_capture(5), 0u) << "the capture is whole";
  EXPECT_TRUE(lane.trouble().empty());
}

TEST_F(CudaLaneTest, AnEndInTheMiddleOfSomebodysCaptureLeavesItWhole) {
  {
    Lane lane = MakeLane();
    const auto values = Values(10, 1);
    ASSERT_TRUE(Await(&lane, lane.Launch(0, 0, std::vector{Of(values)}).ticket));
    fake.begin_capture(5);
  }
  EXPECT_EQ(fake.calls("cuMemFree_v2"), 1u);
  EXPECT_EQ(fake.calls("cuModuleUnload"), 1u) << "the next training in the process loads them again";
  EXPECT_NE(fake.end_capture(5), 0u) << "freeing is among what a capture forbids";
}

TEST_F(CudaLaneTest, AGraphDeliversWithEveryReplay) {
  Lane lane = MakeLane();
  std::vector<float> values = Values(500, 1);
  const Lane::Put eager = lane.Launch(0, 3, std::vector{Of(values)});
  ASSERT_TRUE(Await(&lane, eager.ticket));
  lane.PrepareCapture(0);
  fake.begin_capture(4);
  const Lane::Put captured = lane.Launch(0, 4, std::vector{Of(values)});
  EXPECT_EQ(captured.refusal, Refusal::kNone);
  EXPECT_EQ(captured.ticket, 0u);
  ASSERT_NE(captured.graph, 0u);
  const uint64_t graph = fake.end_capture(4);
  ASSERT_NE(graph, 0u);
  lane.BeforeReplay(0, 4);
  for (unsigned i = 0; i < 50; ++i) {
    const std::vector<float> next = Values(500, 100 + i);
    std::copy(next.begin(), next.end(), values.begin());  // where the graph reads
    fake.replay(graph, 4);
    const auto arrival = Await(&lane, lane.Replayed(captured.graph));
    ASSERT_TRUE(arrival) << i;
    ExpectRow(*arrival, 0, values);
  }
}

TEST_F(CudaLaneTest, AReplayComesAfterWhatItsCaptureHasSetInOurMemory) {
  fake.set("delay_us=20000");  // of each thing on each stream
  const auto values = Values(500, 1);
  Lane lane = MakeLane();
  ASSERT_TRUE(Await(&lane, lane.Launch(0, 3, std::vector{Of(values)}).ticket));
  for (uint64_t on = 9; on < 19; ++on) {
    lane.PrepareCapture(0);
    fake.begin_capture(4);
    const Lane::Put captured = lane.Launch(0, 4, std::vector{Of(values)});
    const uint64_t graph = fake.end_capture(4);
    ASSERT_NE(graph, 0u);
    lane.BeforeReplay(0, on);
    fake.replay(graph, on);
    const auto arrival = Await(&lane, lane.Replayed(captured.graph));
    ASSERT_TRUE(arrival);
    ExpectRow(*arrival, 0, values);
  }
}

TEST_F(CudaLaneTest, WhatNoStepHadBeforeIsCapturedToo) {
  Lane lane = MakeLane();
  const std::vector<float> seen = Values(500, 1), first = Values(700, 2), second = Values(70'000, 3);
  ASSERT_TRUE(Await(&lane, lane.Launch(0, 3, std::vector{Of(seen)}).ticket));
  lane.PrepareCapture(0);
  fake.begin_capture(4);
  const Lane::Put captured = lane.Launch(0, 4, std::vector{Of(first), Of(second)});
  const uint64_t graph = fake.end_capture(4);
  ASSERT_NE(captured.graph, 0u) << lane.trouble();
  ASSERT_NE(graph, 0u) << "the capture is whole";
  lane.BeforeReplay(0, 4);
  for (int i = 0; i < 3; ++i) {
    fake.replay(graph, 4);
    const auto arrival = Await(&lane, lane.Replayed(captured.graph));
    ASSERT_TRUE(arrival) << i;
    ExpectRow(*arrival, 0, first);
    ExpectRow(*arrival, 1, second);
  }
}

TEST_F(CudaLaneTest, ACaptureWithoutMemoryToSpareIsWhole) {
  Lane lane = MakeLane();
  const auto values = Values(500, 1);
  ASSERT_TRUE(Await(&lane, lane.Launch(0, 3, std::vector{Of(values)}).ticket));
  lane.PrepareCapture(0);
  fake.set("memory=1000");
  fake.begin_capture(4);
  EXPECT_EQ(lane.Launch(0, 4, std::vector{Of(values)}).refusal, Refusal::kCapturing);
  EXPECT_NE(fake.end_capture(4), 0u);
  EXPECT_EQ(lane.trouble(), "");
}

TEST_F(CudaLaneTest, WhatAGraphHasInItOutlivesTheLane) {
  const auto values = Values(500, 1);
  uint64_t graph = 0;
  {
    Lane lane = MakeLane();
    ASSERT_TRUE(Await(&lane, lane.Launch(0, 3, std::vector{Of(values)}).ticket));
    lane.PrepareCapture(0);
    fake.begin_capture(4);
    ASSERT_NE(lane.Launch(0, 4, std::vector{Of(values)}).graph, 0u);
    graph = fake.end_capture(4);
  }
  EXPECT_EQ(fake.calls("cuMemFree_v2"), 1u) << "of the step without a graph";
  EXPECT_EQ(fake.calls("cuModuleUnload"), 0u);
  fake.drain();
  fake.replay(graph, 4);
  fake.drain();
}

TEST_F(CudaLaneTest, BatchesOfOneKindInAStepHaveAPlaceEachInTheGraph) {
  Lane lane = MakeLane();
  const std::vector<float> one = Values(500, 1), two = Values(500, 2);  // outputs of one shape
  for (const auto* values : {&one, &two})
    ASSERT_TRUE(Await(&lane, lane.Launch(0, 3, std::vector{Of(*values)}).ticket));
  lane.PrepareCapture(0);
  fake.begin_capture(4);
  const Lane::Put first = lane.Launch(0, 4, std::vector{Of(one)}),
                  second = lane.Launch(0, 4, std::vector{Of(two)});
  ASSERT_NE(first.graph, 0u);
  ASSERT_NE(second.graph, 0u);
  const uint64_t graph = fake.end_capture(4);
  lane.BeforeReplay(0, 4);
  for (int i = 0; i < 5; ++i) {
    fake.replay(graph, 4);
    const Ticket a = lane.Replayed(first.graph), b = lane.Replayed(second.graph);
    const auto of_one = Await(&lane, a), of_two = Await(&lane, b);
    ASSERT_TRUE(of_one && of_two) << i;
    ExpectRow(*of_one, 0, one);
    ExpectRow(*of_two, 0, two);
  }
}

TEST_F(CudaLaneTest, ReplaysThatWentOnceAroundTheRingAreLostAndNeverWrong) {
  LaneOptions options;
  options.most_slots = options.fewest_slots = 4;
  Lane lane = MakeLane(options);
  const auto values = Values(500, 1);
  ASSERT_TRUE(Await(&lane, lane.Launch(0, 4, std::vector{Of(values)}).ticket));
  lane.PrepareCapture(0);
  fake.begin_capture(4);
  const Lane::Put captured = lane.Launch(0, 4, std::vector{Of(values)});
  const uint64_t graph = fake.end_capture(4);
  lane.BeforeReplay(0, 4);
  fake.drain();
  std::vector<Ticket> tickets;
  fake.set("hold=1");
  for (int i = 0; i < 10; ++i) fake.replay(graph, 4), tickets.push_back(lane.Replayed(captured.graph));
  fake.set("hold=0");
  fake.drain();
  for (size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(lane.Look(tickets[i]), i < 6 ? TicketState::kLost : TicketState::kArrived) << i;
    if (i >= 6) ExpectRow(*lane.Take(tickets[i]), 0, values);
  }
}

TEST_F(CudaLaneTest, AForkedChildTouchesNothing) {
  Lane lane = MakeLane();
  const auto values = Values(500, 1);
  ASSERT_TRUE(Await(&lane, lane.Launch(0, 0, std::vector{Of(values)}).ticket));
  const pid_t child = fork();
  if (child == 0) {  // the fake driver aborts where it is called
    const bool refused = lane.Launch(0, 0, std::vector{Of(values)}).refusal == Refusal::kClosed;
    lane.PrepareCapture(0);
    lane.~Lane();
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(lane.Launch(0, 0, std::vector{Of(values)}).refusal, Refusal::kNone);
  fake.drain();
}

TEST_F(CudaLaneTest, MemoryIsKeptWithinItsBounds) {
  LaneOptions options;
  options.pinned_bytes = 1u << 20;
  Lane lane = MakeLane(options);
  std::vector<float> values = Values(5000, 1);
  for (size_t n = 1; n < 100; ++n) {  // outputs whose shape is another one each time
    Item item = Of(values);
    item.elements = n;
    const Lane::Put put = lane.Launch(0, 0, std::vector{item});
    ASSERT_EQ(put.refusal, Refusal::kNone) << n;
    ASSERT_TRUE(Await(&lane, put.ticket)) << n;
  }
  EXPECT_LE(lane.pinned_bytes(), options.pinned_bytes);
}

TEST_F(CudaLaneTest, ExtraMemoryOfALargeModelIsNineKilobytesATensor) {
  Lane lane = MakeLane();
  const auto values = Values(300, 1);
  const std::vector<Item> items(60, Of(values));
  const Lane::Put put = lane.Launch(0, 0, items);
  ASSERT_EQ(put.refusal, Refusal::kNone);
  EXPECT_LE(lane.device_bytes(), (1u << 20) + 60u * 9216u);
  ASSERT_TRUE(Await(&lane, put.ticket));
  const uint64_t device = lane.device_bytes(), pinned = lane.pinned_bytes();
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(Await(&lane, lane.Launch(0, 0, items).ticket));
  EXPECT_EQ(lane.device_bytes(), device);
  EXPECT_EQ(lane.pinned_bytes(), pinned);
}

TEST_F(CudaLaneTest, AtAnyLatenessAndWithAnyFailureAValueIsRightOrMissing) {
#if defined(__SANITIZE_THREAD__)
  constexpr unsigned kSeeds = 4;  // one of each kind of failure; six seconds each there
#else
  constexpr unsigned kSeeds = 12;
#endif
  for (unsigned seed = 1; seed <= kSeeds; ++seed) {
    fake.reset();
    std::mt19937 random(seed);
    fake.set(("seed=" + std::to_string(seed)).c_str());
    fake.set(("delay_us=" + std::to_string(random() % 400)).c_str());
    if (seed % 2 == 0)
      fake.set(("fail=" + std::to_string(30 + random() % 200) + ":" + (seed % 4 == 0 ? "700" : "2")).c_str());
    LaneOptions options;
    options.fewest_slots = 1, options.most_slots = 1 + seed % 4;
    Lane lane = MakeLane(options);
    struct Sent {
      std::vector<std::vector<float>> values;
      Ticket ticket;
    };
    std::vector<Sent> sent;
    std::vector<std::vector<std::vector<float>>> left_out;  // some launch of theirs may have been made
    size_t refused = 0, arrived = 0, missing = 0;
    for (int step = 0; step < 40; ++step) {
      Sent s;
      std::vector<Item> items;
      for (unsigned i = 0; i <= random() % 3; ++i) s.values.push_back(Values(1 + 97 * i, random()));
      if (random() % 5 == 0) s.values.back()[0] = NAN;
      for (const auto& v : s.values) items.push_back(Of(v));
      const Lane::Put put = lane.Launch(0, random() % 2, items);
      s.ticket = put.ticket;
      if (put.refusal == Refusal::kNone) {
        sent.push_back(std::move(s));
      } else {
        left_out.push_back(std::move(s.values));
        ++refused;
      }
    }
    fake.drain();
    for (const Sent& s : sent) {
      const auto arrival = lane.Take(s.ticket);
      if (!arrival) {
        ++missing;
        continue;
      }
      ++arrived;
      for (size_t i = 0; i < s.values.size(); ++i) ExpectRow(*arrival, i, s.values[i]);
    }
    EXPECT_EQ(arrived + missing + refused, 40u);
    if (seed % 2 == 1) {
      EXPECT_EQ(missing, 0u) << seed;
    }
  }
}

}  // namespace
}  // namespace tdbg::cuda
