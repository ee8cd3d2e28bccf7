// The recorder and the heap of the training: what it leaves there, and what becomes of its rows when there is
// no more of it. This program's operator new counts small blocks, and refuses one where it is told to.
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <new>

#include "capture/openmp_team.h"
#include "capture/recorder.h"
#include "capture/testing.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // those bring their own

namespace {
constexpr size_t kSmall = 4096;
std::atomic<int64_t> live_small{0};
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
std::atomic<int64_t> until_refused{kNever};  // blocks
}  // namespace

// Not inlined: the compiler takes free() beside a `new` for a mistake.
[[gnu::noinline]] void* operator new(size_t bytes) {
  if (until_refused != kNever && until_refused-- == 0) throw std::bad_alloc();
  void* const block = std::malloc(bytes);
  if (block == nullptr) throw std::bad_alloc();
  live_small += ::malloc_usable_size(block) < kSmall;
  return block;
}
[[gnu::noinline]] void operator delete(void* block) noexcept {
  if (block != nullptr) live_small -= ::malloc_usable_size(block) < kSmall;
  std::free(block);
}
void operator delete(void* block, size_t) noexcept { operator delete(block); }

namespace tdbg::capture {
namespace {

class NoSink : public Sink {
 public:
  void AppendTensorDef(const format::TensorDef&) override {}
  void AppendSummaries(int64_t, std::span<const format::SummaryRow>, std::span<const uint8_t>) override {}
  void AppendScalars(int64_t, std::span<const format::ScalarRow>) override {}
  bool AppendRaw(int64_t, format::TensorId, format::SubKey, const TensorView&, format::DropKind) override {
    return true;
  }
  void AppendContext(const format::ContextRecord&) override {}
  void Discard() override {}
  void Commit(const format::Commit&) override {}
  void Heartbeat(int64_t, int64_t) override {}
  void CountDropped(format::DropCause, format::DropKind, int64_t, uint64_t, uint64_t) override {}
};

// A training's own small blocks must not be handed out from between ours for the rest of its life.
TEST(RecorderMemory, DefinitionsLeaveNoSmallBlocksBetweenThoseOfTheTraining) {
  constexpr uint32_t kTensors = 1000;
  NoSink sink;
  Recorder recorder(*plan::CompiledPlan::Compile(WithoutLimit(plan::Plan::Default())), &sink, {});
  const float value = 1;
  std::vector<Recorder::Id> ids(kTensors);
  const std::vector<const void*> data(kTensors, &value);
  const int64_t before = live_small;
  for (uint32_t i = 0; i < kTensors; ++i) {
    TensorSpec spec;
    spec.name = "gradient/Net_encoder.layers." + std::to_string(i) + ".weight";
    spec.kind = "gradient";
    spec.dtype = DType::kFloat32;
    spec.shape = {1, 1, 1, 1};
    spec.collections = {"gradients", "a collection of the script's"};
    ids[i] = recorder.Define(spec);
  }
  recorder.BeginStep(ModeKey::kTrain);
  recorder.PutMany(ids, data, {});
  recorder.EndStep(false);
  EXPECT_EQ(recorder.counters().summaries, kTensors);
  EXPECT_LT(live_small - before, 10);
}

/// A tensor of the training's that is gone, and no longer readable, when it goes out of scope.
class Floats {
 public:
  /// \pre n is a multiple of the number of values, which are repeated.
  Floats(int64_t n, std::vector<float> values) : n_(n) {
    void* const at = ::mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    values_ = static_cast<float*>(at);
    for (int64_t i = 0; i < n; ++i) values_[i] = values[static_cast<size_t>(i) % values.size()];
  }
  ~Floats() { ::munmap(values_, bytes()); }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;
  const float* data() const { return values_; }
  TensorView view() const { return {values_, DType::kFloat32, {&n_, 1}, {}}; }

 private:
  size_t bytes() const { return static_cast<size_t>(n_) * sizeof(float); }
  const int64_t n_;
  float* values_;
};

// Refuses every block of a call in turn: what it was about to record is absent, nothing else is touched, and
// the memory that it had been given is not looked at again.
class NoMemory : public testing::TestWithParam<int> {};  // threads

TEST_P(NoMemory, ARowIsThereOrNotAndItsNeighboursAreRight) {
  if (GetParam() > 1 && !OpenMpTeam::Available()) GTEST_SKIP() << "no libgomp in this process";
  constexpr int64_t kLarge = 300'000, kSmall = 1000;
  bool refused = true;
  int calls = 0;
  size_t most_told = 0;
  for (int64_t n = 0; refused; ++n) {
    for (const bool many : {false, true}) {
      FakeSink sink;
      Recorder recorder(*plan::CompiledPlan::Compile(WithoutLimit(plan::Plan::Default())), &sink,
                        {.parallel_from_bytes = 1});
      recorder.ShareThreads(GetParam());
      const auto define = [&](const char* name, int64_t elements) {
        return recorder.Define(
            {.name = name, .kind = "weight", .dtype = DType::kFloat32, .shape = {elements}});
      };
      const Recorder::Id ids[] = {define("a", kLarge), define("b", kSmall), define("c", kLarge)};
      recorder.BeginStep(ModeKey::kTrain);
      size_t lost = 0;
      {
        const Floats a(kLarge, {-8, -4, -2, -1, 1, 2, 4, 8}), b(kSmall, {2});
        const void* const data[] = {a.data(), b.data()};
        until_refused = n;
        try {
          many ? (void)recorder.PutMany(std::span(ids, 2), data, {}) : recorder.Put(ids[0], a.view(), {});
        } catch (const std::bad_alloc&) {
          lost = many ? 2 : 1;
        }
        refused = until_refused < 0;
        until_refused = kNever;
      }
      const Floats c(kLarge, {4});
      recorder.Put(ids[2], c.view(), {});
      recorder.EndStep(false);
      ++calls;
      ASSERT_EQ(sink.summaries.size(), (many ? 2 : 1) - lost + 1);
      EXPECT_EQ(recorder.counters().summaries, sink.summaries.size());
      most_told = std::max(most_told, sink.dropped.size());
      EXPECT_LE(sink.dropped.size(), lost == 0 ? 0 : lost - 1) << "and one that the Run counts";
      const double means[] = {0, 2, 4};
      const size_t buckets[] = {8, 1, 1};
      for (size_t row = 0; row < sink.summaries.size(); ++row) {
        const size_t i = row + 1 == sink.summaries.size() ? 2 : row;
        EXPECT_EQ(sink.summaries[row].tensor, ids[i]);
        EXPECT_NEAR(sink.summaries[row].mean, means[i], 1e-6);
        ASSERT_EQ(sink.histogram_of[row].size(), buckets[i]) << n;
        for (const HistogramBucket& bucket : sink.histogram_of[row])
          EXPECT_EQ(bucket.count, sink.summaries[row].count / buckets[i]) << n;
      }
    }
  }
  EXPECT_GT(calls, 2) << "no call asked for memory";
  EXPECT_EQ(most_told, 1u);
}

INSTANTIATE_TEST_SUITE_P(Threads, NoMemory, testing::Values(1, 3));

}  // namespace
}  // namespace tdbg::capture

#endif
