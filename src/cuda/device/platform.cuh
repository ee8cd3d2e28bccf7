// What the kernels ask of a platform, by CUDA's names where it has one: CUDA itself, HIP, or the CPU in a GPU's place
// (cuda/testing/emulation.h). Nothing else in device/ knows on which it runs.
#pragma once

#include "cuda/abi.h"

#if defined(TDBG_CUDA_ON_HOST)
#include "cuda/testing/emulation.h"
#elif defined(__HIP__)
#include <hip/hip_runtime.h>
// Not tried on any machine. A wavefront of 64 lanes (gfx9) runs two of our warps: shuffles of width 32 keep them apart, the
// ballot is cut out of the wide one.
#define __grid_constant__
#define TDBG_SHUFFLE_XOR(x, o) __shfl_xor(x, o, 32)
#define TDBG_SHUFFLE_DOWN(x, o) __shfl_down(x, o, 32)
#define TDBG_SHUFFLE_UP(x, o) __shfl_up(x, o, 32)
#define TDBG_SHUFFLE(x, lane) __shfl(x, lane, 32)
#else
#define TDBG_SHUFFLE_XOR(x, o) __shfl_xor_sync(0xffffffffu, x, o)
#define TDBG_SHUFFLE_DOWN(x, o) __shfl_down_sync(0xffffffffu, x, o)
#define TDBG_SHUFFLE_UP(x, o) __shfl_up_sync(0xffffffffu, x, o)
#define TDBG_SHUFFLE(x, lane) __shfl_sync(0xffffffffu, x, lane)
#endif

#if defined(TDBG_CUDA_ON_HOST)
#define TDBG_DEVICE inline
#define TDBG_SHARED_CODE inline
#define TDBG_UNROLL
#define TDBG_NO_UNROLL
#define TDBG_ARGUMENT(Type) const Type&
#else
#define TDBG_DEVICE __device__ __forceinline__
// A function of its own: what a block does once, or hardly ever, should not be there for every type, and may not take
// registers from the loop that reads.
#define TDBG_SHARED_CODE __device__ __noinline__
#define TDBG_UNROLL _Pragma("unroll")
#define TDBG_NO_UNROLL _Pragma("unroll 1")
#define TDBG_ARGUMENT(Type) const __grid_constant__ Type  // read where it lies: no copy into each thread's memory
#endif

namespace tdbg::cuda {
namespace device {

/// 16 bytes, loaded and stored at once.
struct alignas(16) Vector16 {
  uint32_t w[4];
};

#if defined(TDBG_CUDA_ON_HOST)

TDBG_DEVICE uint32_t BitsOf(float x) { return std::bit_cast<uint32_t>(x); }
TDBG_DEVICE float FloatOf(uint32_t bits) { return std::bit_cast<float>(bits); }
TDBG_DEVICE uint64_t BitsOf(double x) { return std::bit_cast<uint64_t>(x); }
TDBG_DEVICE double DoubleOf(uint64_t bits) { return std::bit_cast<double>(bits); }
TDBG_DEVICE float HalfToFloat(uint32_t bits) { return emulation::HalfToFloat(static_cast<uint16_t>(bits)); }
TDBG_DEVICE int LeadingZeros(uint32_t x) { return x == 0 ? 32 : __builtin_clz(x); }
TDBG_DEVICE int LeadingZeros(uint64_t x) { return x == 0 ? 64 : __builtin_clzll(x); }
TDBG_DEVICE uint32_t PopulationCount(uint32_t x) { return static_cast<uint32_t>(__builtin_popcount(x)); }
TDBG_DEVICE uint32_t Ballot(bool yes) { return emulation::Ballot(yes); }
TDBG_DEVICE uint32_t ToUpperHalf(uint32_t x) { return x << 16; }
/// A load of what is read once: it need not push anything out of the caches.
TDBG_DEVICE Vector16 LoadOnce(const Vector16* p) { return *p; }
TDBG_DEVICE uint64_t Clock() { return emulation::Clock(); }
/// What this thread wrote before, and what it knows others to have written, is there for the whole device.
TDBG_DEVICE void DeviceFence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
TDBG_DEVICE void StoreRelease(uint64_t* p, uint64_t x) { __atomic_store_n(p, x, __ATOMIC_RELEASE); }

#else

TDBG_DEVICE uint32_t BitsOf(float x) { return __float_as_uint(x); }
TDBG_DEVICE float FloatOf(uint32_t bits) { return __uint_as_float(bits); }
TDBG_DEVICE uint64_t BitsOf(double x) { return static_cast<uint64_t>(__double_as_longlong(x)); }
TDBG_DEVICE double DoubleOf(uint64_t bits) { return __longlong_as_double(static_cast<long long>(bits)); }
TDBG_DEVICE void DeviceFence() { __threadfence(); }
TDBG_DEVICE int LeadingZeros(uint32_t x) { return __clz(static_cast<int>(x)); }
TDBG_DEVICE int LeadingZeros(uint64_t x) { return __clzll(static_cast<long long>(x)); }
TDBG_DEVICE uint32_t PopulationCount(uint32_t x) { return static_cast<uint32_t>(__popc(x)); }

#if defined(__HIP__)
TDBG_DEVICE float HalfToFloat(uint32_t bits) {
  const auto narrow = static_cast<uint16_t>(bits);
  _Float16 half;
  __builtin_memcpy(&half, &narrow, 2);
  return static_cast<float>(half);
}
TDBG_DEVICE uint32_t Ballot(bool yes) {
  return static_cast<uint32_t>(__ballot(yes) >> (warpSize == 64 ? (threadIdx.x & 32u) : 0u));
}
TDBG_DEVICE uint32_t ToUpperHalf(uint32_t x) { return x << 16; }
TDBG_DEVICE Vector16 LoadOnce(const Vector16* p) { return *p; }
TDBG_DEVICE uint64_t Clock() { return wall_clock64(); }
#else
TDBG_DEVICE float HalfToFloat(uint32_t bits) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(static_cast<unsigned short>(bits)));
  return x;
}
/// The lower half moved up. The compiler is not to see what it is: it would find another way from there to the leading bits, of
/// one instruction more for each element.
TDBG_DEVICE uint32_t ToUpperHalf(uint32_t x) {
  uint32_t y;
  asm("shl.b32 %0, %1, 16;" : "=r"(y) : "r"(x));
  return y;
}
TDBG_DEVICE uint32_t Ballot(bool yes) { return __ballot_sync(0xffffffffu, yes); }
TDBG_DEVICE Vector16 LoadOnce(const Vector16* p) {
  Vector16 v;
  asm volatile("ld.global.cs.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
               : "l"(p));
  return v;
}
TDBG_DEVICE uint64_t Clock() {
  uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}
#endif
/// After a system-wide fence: nothing that follows is written before it.
TDBG_DEVICE void StoreRelease(uint64_t* p, uint64_t x) { *static_cast<volatile uint64_t*>(p) = x; }

#endif

// Two 16-bit elements in a word at once, for the half of the work on them that is extrema. NaN may give anything: a chunk
// that has one is done again.
#if !defined(TDBG_CUDA_ON_HOST) && !defined(__HIP__) && __CUDA_ARCH__ >= 800
#define TDBG_PAIR(name, instruction)                                                   \
  TDBG_DEVICE uint32_t name(uint32_t a, uint32_t b) {                                  \
    uint32_t r;                                                                        \
    asm(instruction " %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));                        \
    return r;                                                                          \
  }
TDBG_PAIR(MinBFloats, "min.bf16x2")
TDBG_PAIR(MaxBFloats, "max.bf16x2")
TDBG_PAIR(MinHalves, "min.f16x2")
TDBG_PAIR(MaxHalves, "max.f16x2")
#undef TDBG_PAIR
#else
template <bool kMin, class Widen>
TDBG_DEVICE uint32_t PickHalf(uint32_t a, uint32_t b, Widen widen) {
  const float x = widen(a & 0xffffu), y = widen(b & 0xffffu);
  return (kMin ? y < x : y > x) ? b & 0xffffu : a & 0xffffu;
}
template <bool kMin, class Widen>
TDBG_DEVICE uint32_t Pick(uint32_t a, uint32_t b, Widen widen) {
  return PickHalf<kMin>(a, b, widen) | PickHalf<kMin>(a >> 16, b >> 16, widen) << 16;
}
struct WidenBFloat {
  TDBG_DEVICE float operator()(uint32_t bits) const { return FloatOf(bits << 16); }
};
struct WidenHalf {
  TDBG_DEVICE float operator()(uint32_t bits) const { return HalfToFloat(bits); }
};
TDBG_DEVICE uint32_t MinBFloats(uint32_t a, uint32_t b) { return Pick<true>(a, b, WidenBFloat()); }
TDBG_DEVICE uint32_t MaxBFloats(uint32_t a, uint32_t b) { return Pick<false>(a, b, WidenBFloat()); }
TDBG_DEVICE uint32_t MinHalves(uint32_t a, uint32_t b) { return Pick<true>(a, b, WidenHalf()); }
TDBG_DEVICE uint32_t MaxHalves(uint32_t a, uint32_t b) { return Pick<false>(a, b, WidenHalf()); }
#endif

/// Of each half of `a` less 1 (of 0: the largest) and of `b`, the smaller as unsigned numbers.
#if !defined(TDBG_CUDA_ON_HOST) && !defined(__HIP__) && __CUDA_ARCH__ >= 900
TDBG_DEVICE uint32_t MinOfOneLess(uint32_t a, uint32_t b) { return __viaddmin_u16x2(a, 0xffffffffu, b); }
#else
TDBG_DEVICE uint32_t MinOfOneLess(uint32_t a, uint32_t b) {
  const uint32_t low = ((a & 0xffffu) - 1) & 0xffffu, high = (a >> 16) - 1;  // of 0: 2^32 - 1, above every half
  const uint32_t b_low = b & 0xffffu, b_high = b >> 16;
  return (low < b_low ? low : b_low) | (high < b_high ? high : b_high) << 16;
}
#endif

}  // namespace device
}  // namespace tdbg::cuda
