#include "cuda/testing/emulation.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "cuda/abi.h"
#include "tensor/widen.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#if defined(__x86_64__)
// swapcontext is two system calls for the signal mask; a block switches ten thousand times. This keeps what a
// call must.
extern "C" void tdbg_cuda_emulation_switch(void** save, void* to);
asm(R"(
.text
.type tdbg_cuda_emulation_switch,@function
tdbg_cuda_emulation_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size tdbg_cuda_emulation_switch,.-tdbg_cuda_emulation_switch
)");
#endif

namespace tdbg::cuda::emulation {
namespace {

// Frames of a sanitizer's build are several times larger. Pages are only taken where a stack was.
constexpr size_t kStackBytes = size_t{256} << 10;

enum class State : uint8_t { kRuns, kAtBarrier, kInExchange, kDone };

struct Fiber {
  State state = State::kDone;
  uint32_t exchanges = 0;
#if defined(__x86_64__)
  void* stack_pointer = nullptr;
#else
  ucontext_t context;
#endif
#if defined(__SANITIZE_ADDRESS__)
  void* fake_stack = nullptr;
#endif
#if defined(__SANITIZE_THREAD__)
  void* tsan = nullptr;
#endif
};

struct Warp {
  // An exchange is over when all lanes have come; the first to leave may be in the next one before the last
  // has read.
  std::array<std::array<uint64_t, 32>, 2> words;
  uint32_t here = 0, alive = 32;
};

class Block {
 public:
  Block() {
    const size_t bytes = kThreads * kStackBytes;
    stacks_ = static_cast<std::byte*>(
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (stacks_ == MAP_FAILED) Die("no memory for stacks");
    for (uint32_t t = 0; t < kThreads; ++t) Prepare(t);
#if defined(__SANITIZE_THREAD__)
    for (Fiber& f : fibers_) f.tsan = __tsan_create_fiber(0);
#endif
  }
  ~Block() {
#if defined(__SANITIZE_THREAD__)
    for (Fiber& f : fibers_) __tsan_destroy_fiber(f.tsan);
#endif
    munmap(stacks_, kThreads * kStackBytes);
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  void Run(const std::function<void()>& body, const std::vector<uint32_t>& order) {
    body_ = &body;
    at_barrier_ = 0;
    alive_ = kThreads;
    for (Warp& w : warps_) w.here = 0, w.alive = 32;
    for (Fiber& f : fibers_) f.state = State::kRuns, f.exchanges = 0;
#if defined(__SANITIZE_THREAD__)
    tsan_caller_ = __tsan_get_current_fiber();
#endif
    while (alive_ > 0) {
      bool moved = false;
      for (const uint32_t t : order) {
        if (fibers_[t].state != State::kRuns) continue;
        moved = true;
        current_ = t;
        place.thread.x = t;
        Enter(t);
      }
      if (!moved) Die("threads wait for others that have ended or wait elsewhere");
    }
  }

  void Barrier() {
    if (++at_barrier_ == alive_) {
      ReleaseBarrier();
    } else {
      Wait(State::kAtBarrier);
    }
  }

  const std::array<uint64_t, 32>& Exchange(uint64_t word) {
    Fiber& f = fibers_[current_];
    Warp& w = warps_[current_ / 32];
    auto& words = w.words[f.exchanges++ & 1];
    words[current_ % 32] = word;
    if (++w.here == 32) {
      w.here = 0;
      for (uint32_t t = current_ / 32 * 32, end = t + 32; t < end; ++t) {
        if (fibers_[t].state == State::kInExchange) fibers_[t].state = State::kRuns;
      }
    } else {
      Wait(State::kInExchange);
    }
    return words;
  }

 private:
  [[noreturn]] static void Die(const char* what) {
    std::fprintf(stderr, "cuda/testing/emulation: %s\n", what);
    std::abort();
  }

  void ReleaseBarrier() {
    at_barrier_ = 0;
    for (Fiber& f : fibers_) {
      if (f.state == State::kAtBarrier) f.state = State::kRuns;
    }
  }

  static void Main();
  void Prepare(uint32_t t) {
    std::byte* const top = stacks_ + (t + 1) * kStackBytes;
#if defined(__x86_64__)
    // Six saved registers, Main's address, and where its caller's would be: the ABI wants rsp + 8 aligned at
    // its entry.
    auto** words = reinterpret_cast<void**>(top) - 8;
    std::fill(words, words + 8, nullptr);
    words[6] = reinterpret_cast<void*>(&Block::Main);
    fibers_[t].stack_pointer = words;
#else
    ucontext_t& c = fibers_[t].context;
    getcontext(&c);
    c.uc_stack.ss_sp = top - kStackBytes;
    c.uc_stack.ss_size = kStackBytes;
    c.uc_link = nullptr;
    makecontext(&c, &Block::Main, 0);
#endif
  }

  void Enter(uint32_t t) {
    Fiber& f = fibers_[t];
#if defined(__SANITIZE_ADDRESS__)
    void* fake = nullptr;
    __sanitizer_start_switch_fiber(&fake, stacks_ + t * kStackBytes, kStackBytes);
#endif
#if defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(f.tsan, 0);
#endif
#if defined(__x86_64__)
    tdbg_cuda_emulation_switch(&caller_, f.stack_pointer);
#else
    swapcontext(&caller_, &f.context);
#endif
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
  }

  void Leave() {
    Fiber& f = fibers_[current_];
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&f.fake_stack, caller_stack_, caller_stack_bytes_);
#endif
#if defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(tsan_caller_, 0);
#endif
#if defined(__x86_64__)
    tdbg_cuda_emulation_switch(&f.stack_pointer, caller_);
#else
    swapcontext(&f.context, &caller_);
#endif
    Entered(f);
  }

  void Entered([[maybe_unused]] Fiber& f) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(f.fake_stack, &caller_stack_, &caller_stack_bytes_);
#endif
  }

  void Wait(State state) {
    fibers_[current_].state = state;
    const uint32_t me = current_;
    Leave();
    if (me != current_) Die("a fiber was resumed as another");
  }

  void Done() {
    fibers_[current_].state = State::kDone;
    --alive_;
    // The others of a block need not wait for one that has ended; those of its warp may not exchange with it.
    if (alive_ > 0 && at_barrier_ == alive_) ReleaseBarrier();
  }

  std::byte* stacks_;
  std::array<Fiber, kThreads> fibers_;
  std::array<Warp, kWarps> warps_;
  const std::function<void()>* body_ = nullptr;
  uint32_t at_barrier_ = 0, alive_ = 0, current_ = 0;
#if defined(__x86_64__)
  void* caller_ = nullptr;
#else
  ucontext_t caller_;
#endif
#if defined(__SANITIZE_ADDRESS__)
  const void* caller_stack_ = nullptr;
  size_t caller_stack_bytes_ = 0;
#endif
#if defined(__SANITIZE_THREAD__)
  void* tsan_caller_ = nullptr;
#endif
};

Block& MyBlock() {
  thread_local Block block;
  return block;
}

void Block::Main() {
  Block& b = MyBlock();
  b.Entered(b.fibers_[b.current_]);
  while (true) {
    (*b.body_)();
    b.Done();
    b.Leave();
  }
}

}  // namespace

void RunGrid(uint32_t grid, uint64_t seed, const std::function<void()>& body) {
  const Place before = place;
  std::mt19937_64 random(seed);
  std::vector<uint32_t> blocks(grid), threads(kThreads);
  std::iota(blocks.begin(), blocks.end(), 0u);
  std::iota(threads.begin(), threads.end(), 0u);
  if (seed != 0) std::shuffle(blocks.begin(), blocks.end(), random);
  for (const uint32_t b : blocks) {
    if (seed != 0) std::shuffle(threads.begin(), threads.end(), random);
    place.block.x = b;
    place.grid.x = grid;
    MyBlock().Run(body, threads);
  }
  place = before;
}

void Barrier() { MyBlock().Barrier(); }

uint64_t Exchange(uint64_t word, uint32_t from) {
  const uint32_t me = place.thread.x % 32;
  const auto& words = MyBlock().Exchange(word);
  return words[from < 32 ? from : me];
}

uint32_t Ballot(bool yes) {
  const auto& words = MyBlock().Exchange(yes ? 1 : 0);
  uint32_t mask = 0;
  for (uint32_t i = 0; i < 32; ++i) mask |= static_cast<uint32_t>(words[i]) << i;
  return mask;
}

uint64_t Clock() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch() /
                               std::chrono::nanoseconds(1));
}

float HalfToFloat(uint16_t bits) { return tdbg::HalfToFloat(bits); }

}  // namespace tdbg::cuda::emulation
