// A GPU's block on the CPU: what device/platform.cuh needs for the kernels' source to compile and run here.
// Each of the 256 threads is a fiber of the calling thread; it gives way at barriers and at exchanges within
// its warp.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>

#define __global__
#define __device__
#define __launch_bounds__(...)
#define __shared__ static thread_local  // one block at a time in a thread
#define threadIdx (::tdbg::cuda::emulation::place.thread)
#define blockIdx (::tdbg::cuda::emulation::place.block)
#define gridDim (::tdbg::cuda::emulation::place.grid)
#define __syncthreads() ::tdbg::cuda::emulation::Barrier()
#define __threadfence_system() std::atomic_thread_fence(std::memory_order_seq_cst)
#define TDBG_SHUFFLE_XOR(value, o) \
  ::tdbg::cuda::emulation::Shuffle(value, (threadIdx.x & 31u) ^ static_cast<uint32_t>(o))
#define TDBG_SHUFFLE_DOWN(value, o) \
  ::tdbg::cuda::emulation::Shuffle(value, (threadIdx.x & 31u) + static_cast<uint32_t>(o))
#define TDBG_SHUFFLE_UP(value, o) \
  ::tdbg::cuda::emulation::Shuffle(value, (threadIdx.x & 31u) - static_cast<uint32_t>(o))
#define TDBG_SHUFFLE(value, lane) ::tdbg::cuda::emulation::Shuffle(value, static_cast<uint32_t>(lane))

#include <atomic>

namespace tdbg::cuda::emulation {

struct Index {
  uint32_t x = 0;
};
struct Place {
  Index thread, block, grid;
};
inline thread_local Place place;

/// Runs `body` as each thread of each block, one block after the other. `seed` shuffles the order of the
/// blocks and that of the threads between barriers; 0 keeps both. Ends the process where threads wait for
/// each other for ever: a barrier that some of a block, or an exchange that some of a warp, do not come to.
void RunGrid(uint32_t grid, uint64_t seed, const std::function<void()>& body);

/// Until all of the block's threads that still run are here.
void Barrier();
/// Each lane of a warp gives a word, and gets lane `from`'s; its own where there is no such lane.
uint64_t Exchange(uint64_t word, uint32_t from);
uint32_t Ballot(bool yes);
uint64_t Clock();
float HalfToFloat(uint16_t bits);

template <typename T>
T Shuffle(T x, uint32_t from) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t word = 0;
  std::memcpy(&word, &x, sizeof x);
  word = Exchange(word, from);
  std::memcpy(&x, &word, sizeof x);
  return x;
}

}  // namespace tdbg::cuda::emulation

inline uint32_t atomicAdd(uint32_t* p, uint32_t n) { return __atomic_fetch_add(p, n, __ATOMIC_RELAXED); }
inline uint32_t atomicOr(uint32_t* p, uint32_t n) { return __atomic_fetch_or(p, n, __ATOMIC_RELAXED); }
