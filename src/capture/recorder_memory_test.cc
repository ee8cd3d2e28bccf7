// What a recorder leaves on the heap of the training. This program's operator new counts small blocks.
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "capture/recorder.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // those bring their own

namespace {
constexpr size_t kSmall = 4096;
std::atomic<int64_t> live_small{0};
}  // namespace

// Not inlined: the compiler takes free() beside a `new` for a mistake.
[[gnu::noinline]] void* operator new(size_t bytes) {
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
  bool AppendRaw(int64_t, format::TensorId, format::SubKey, const TensorView&, format::LossKind) override {
    return true;
  }
  void AppendContext(const format::ContextRecord&) override {}
  void Commit(const format::Commit&) override {}
  void Heartbeat(int64_t, int64_t) override {}
  void CountLoss(format::LossCause, format::LossKind, int64_t, uint64_t, uint64_t) override {}
};

// A training's own small blocks must not be handed out from between ours for the rest of its life.
TEST(RecorderMemory, DefinitionsLeaveNoSmallBlocksBetweenThoseOfTheTraining) {
  constexpr uint32_t kTensors = 1000;
  NoSink sink;
  Recorder recorder(*plan::CompiledPlan::Compile(plan::Plan::Default()), &sink, {});
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

}  // namespace
}  // namespace tdbg::capture

#endif
