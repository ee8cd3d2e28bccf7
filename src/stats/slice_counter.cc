// g++ 12 takes the undefined operand of its own intrinsics for a mistake of ours.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include "stats/slice_counter.h"

#include <hwy/highway.h>
#include <hwy/targets.h>

#include <cstring>
#include <utility>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define TDBG_SLICES 1
#else
#define TDBG_SLICES 0
#endif

namespace tdbg::stats {

#if TDBG_SLICES
namespace {

bool g_allowed = true;

#define TDBG_TARGET \
  __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,avx512vpopcntdq,gfni,popcnt")))
#define TDBG_INLINE TDBG_TARGET __attribute__((always_inline)) inline

struct Planes {
  __m512i p[8];
};

// Bit j of 512 ids. The order of the ids within a plane is of no interest, only that all planes have the
// same.
TDBG_INLINE Planes Slice(const uint8_t* ids) {
  // Row i of the matrix is the unit vector i: the product with eight ids is their transpose.
  const __m512i identity = _mm512_set1_epi64(static_cast<int64_t>(0x8040201008040201u));
  const __m512i gather =
      _mm512_set_epi8(63, 55, 47, 39, 31, 23, 15, 7, 62, 54, 46, 38, 30, 22, 14, 6, 61, 53, 45, 37, 29, 21,
                      13, 5, 60, 52, 44, 36, 28, 20, 12, 4, 59, 51, 43, 35, 27, 19, 11, 3, 58, 50, 42, 34, 26,
                      18, 10, 2, 57, 49, 41, 33, 25, 17, 9, 1, 56, 48, 40, 32, 24, 16, 8, 0);
  __m512i u[8];  // quadword j of u[r]: plane j of ids 64 r .. 64 r + 63
  for (int r = 0; r < 8; ++r) {
    const __m512i bytes = _mm512_loadu_si512(ids + 64 * r);
    u[r] = _mm512_permutexvar_epi8(gather, _mm512_gf2p8affine_epi64_epi8(identity, bytes, 0));
  }
  // And the 8 x 8 quadwords transposed, in three rounds of pairs 1, 2 and 4 apart.
  __m512i a[8], b[8];
  for (int r = 0; r < 8; r += 2) {
    a[r] = _mm512_unpacklo_epi64(u[r], u[r + 1]);      // planes 0 2 4 6
    a[r + 1] = _mm512_unpackhi_epi64(u[r], u[r + 1]);  // planes 1 3 5 7
  }
  for (int r = 0; r < 8; r += 4) {
    for (int odd = 0; odd < 2; ++odd) {
      b[r + odd] = _mm512_shuffle_i64x2(a[r + odd], a[r + 2 + odd], 0x44);      // planes 0 2, 0 2
      b[r + 2 + odd] = _mm512_shuffle_i64x2(a[r + odd], a[r + 2 + odd], 0xee);  // planes 4 6, 4 6
    }
  }
  Planes out;
  for (int odd = 0; odd < 2; ++odd) {
    out.p[0 + odd] = _mm512_shuffle_i64x2(b[0 + odd], b[4 + odd], 0x88);
    out.p[2 + odd] = _mm512_shuffle_i64x2(b[0 + odd], b[4 + odd], 0xdd);
    out.p[4 + odd] = _mm512_shuffle_i64x2(b[2 + odd], b[6 + odd], 0x88);
    out.p[6 + odd] = _mm512_shuffle_i64x2(b[2 + odd], b[6 + odd], 0xdd);
  }
  return out;
}

// Of two planes the four combinations: [k] where high is bit 1 and low bit 0 of k.
struct Quarters {
  __m512i q[4];
};

TDBG_INLINE Quarters QuartersOf(__m512i high, __m512i low) {
  return {{_mm512_ternarylogic_epi64(high, high, low, 0x01), _mm512_andnot_si512(high, low),
           _mm512_andnot_si512(low, high), _mm512_and_si512(high, low)}};
}

template <int kBlocks>
struct Quartered {
  Quarters middle[kBlocks], low[kBlocks];  // bits 3 and 2 of an id, 1 and 0
};

// How many of an id, in each eighth of the blocks.
template <int kBlocks, int kLow>
TDBG_INLINE __m512i Leaf(const __m512i (&mask)[kBlocks], const Quartered<kBlocks>& ids) {
  __m512i sum = _mm512_popcnt_epi64(_mm512_and_si512(mask[0], ids.low[0].q[kLow]));
  for (int b = 1; b < kBlocks; ++b) {
    sum = _mm512_add_epi64(sum, _mm512_popcnt_epi64(_mm512_and_si512(mask[b], ids.low[b].q[kLow])));
  }
  return sum;
}

// 4 ids.
template <int kBlocks, int kMiddle>
TDBG_INLINE void Octave(const __m512i (&group)[kBlocks], const Quartered<kBlocks>& ids, uint64_t* lanes) {
  __m512i mask[kBlocks];
  for (int b = 0; b < kBlocks; ++b) mask[b] = _mm512_and_si512(group[b], ids.middle[b].q[kMiddle]);
  const __m512i one = _mm512_slli_epi64(Leaf<kBlocks, 1>(mask, ids), 16);
  const __m512i two = _mm512_slli_epi64(Leaf<kBlocks, 2>(mask, ids), 32);
  const __m512i three = _mm512_slli_epi64(Leaf<kBlocks, 3>(mask, ids), 48);
  const __m512i four = _mm512_ternarylogic_epi64(one, two, three, 0xfe);
  const __m512i sum =
      _mm512_add_epi64(_mm512_or_si512(Leaf<kBlocks, 0>(mask, ids), four), _mm512_load_si512(lanes));
  _mm512_store_si512(lanes, sum);
}

// 16 ids. Many tensors leave some groups empty: those far below the largest value, or of one sign.
template <int kBlocks>
TDBG_INLINE bool Group(const __m512i (&group)[kBlocks], const Quartered<kBlocks>& ids, uint64_t (*lanes)[8]) {
  __m512i any = group[0];
  for (int b = 1; b < kBlocks; ++b) any = _mm512_or_si512(any, group[b]);
  if (_mm512_test_epi64_mask(any, any) == 0) return false;
  Octave<kBlocks, 0>(group, ids, lanes[0]);
  Octave<kBlocks, 1>(group, ids, lanes[1]);
  Octave<kBlocks, 2>(group, ids, lanes[2]);
  Octave<kBlocks, 3>(group, ids, lanes[3]);
  return true;
}

// Those of `bytes` that are in one of the upper two quarters of the window; others are left out.
template <int kBlocks, bool kLower>
TDBG_TARGET void CountQuarter(const uint8_t* bytes, SliceCounter* counter) {
  Quartered<kBlocks> ids;
  // By the bits: sign and 4.
  __m512i groups[4][kBlocks];
  for (int b = 0; b < kBlocks; ++b) {
    const Planes planes = Slice(bytes + SliceCounter::kBlock * static_cast<size_t>(b));
    ids.middle[b] = QuartersOf(planes.p[3], planes.p[2]);
    ids.low[b] = QuartersOf(planes.p[1], planes.p[0]);
    const Quarters quarters = QuartersOf(planes.p[7], planes.p[4]);
    // Bit 6 and, or and not, bit 5.
    constexpr int kWhich = kLower ? 0x20 : 0x80;
    for (int q = 0; q < 4; ++q) {
      groups[q][b] = _mm512_ternarylogic_epi64(planes.p[6], planes.p[5], quarters.q[q], kWhich);
    }
  }
  for (int sign = 0; sign < 2; ++sign) {
    const int half = 2 * sign + (kLower ? 0 : 1);
    uint64_t(*lanes)[8] = counter->lanes + 8 * half;
    bool any = Group<kBlocks>(groups[2 * sign], ids, lanes);
    any |= Group<kBlocks>(groups[2 * sign + 1], ids, lanes + 4);
    counter->used = static_cast<uint8_t>(counter->used | (any ? 1u : 0u) << half);
  }
}

// Appends to `to` those of `n` ids that lie below the upper quarter (kMask 0x60) or half (0x40) of the
// window. Returns its new end. Up to 63 bytes behind it are overwritten.
template <int kMask>
TDBG_TARGET uint8_t* Gather(const uint8_t* ids, size_t n, uint8_t* to) {
  const __m512i mask = _mm512_set1_epi8(kMask);
  for (size_t i = 0; i < n; i += 64) {
    const __m512i bytes = _mm512_loadu_si512(ids + i);
    const __mmask64 wanted = _mm512_cmpneq_epi8_mask(_mm512_and_si512(bytes, mask), mask);
    // Not straight to memory: AMD's processors take their microcode for that.
    _mm512_storeu_si512(to, _mm512_maskz_compress_epi8(wanted, bytes));
    to += __builtin_popcountll(wanted);
  }
  return to;
}

// Of gathered ids, whose number is rounded up to whole blocks with ids of the upper quarter.
template <int kBlocks>
void CountLow(const uint8_t* ids, SliceCounter* counter) {
  CountQuarter<kBlocks, true>(ids, counter);
  uint8_t deep[kBlocks * SliceCounter::kBlock + 64];
  const uint8_t* const end = Gather<0x40>(ids, kBlocks * SliceCounter::kBlock, deep);
  for (const uint8_t* id = deep; id != end; ++id) ++counter->deep[*id >> 7][*id & 63];
  if (end != deep) counter->any_deep = true;
}

// With this many or fewer, adding them one by one is quicker.
constexpr uint32_t kFewLow = 64;

// Counts those that wait.
void FlushLow(SliceCounter* counter, uint64_t* folded) {
  const uint32_t left = counter->low_count;
  counter->low_count = 0;
  if (left <= kFewLow) {
    for (uint32_t i = 0; i < left; ++i) {
      const uint8_t id = counter->low[i];
      ++folded[(id >> 7) * 1024 + counter->base + (id & 127)];
    }
    return;
  }
  std::memset(counter->low + left, SliceCounter::kWindow, SliceCounter::kLow - left);
  if (left > SliceCounter::kBlock) {
    CountLow<2>(counter->low, counter);
  } else {
    CountLow<1>(counter->low, counter);
  }
}

// Of the even quadwords of each 128-bit lane `a`'s pair sum, of the odd ones `b`'s.
TDBG_INLINE __m512i PairSums(__m512i a, __m512i b) {
  return _mm512_add_epi64(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

// The sums over the lanes of 8 octaves; empties them.
TDBG_INLINE __m512i TakeSums(uint64_t (*lanes)[8]) {
  __m512i v[8];
  for (int i = 0; i < 8; ++i) {
    v[i] = _mm512_load_si512(lanes[i]);
    _mm512_store_si512(lanes[i], _mm512_setzero_si512());
  }
  __m512i pair[4];  // lane L: octaves 2 i, 2 i + 1, a quarter of each
  for (int i = 0; i < 4; ++i) pair[i] = PairSums(v[2 * i], v[2 * i + 1]);
  __m512i four[2];  // lanes: octaves 4 i + 0 1, 0 1, 2 3, 2 3; a half of each
  for (int i = 0; i < 2; ++i) {
    four[i] = _mm512_add_epi64(_mm512_shuffle_i64x2(pair[2 * i], pair[2 * i + 1], 0x44),
                               _mm512_shuffle_i64x2(pair[2 * i], pair[2 * i + 1], 0xee));
  }
  return _mm512_add_epi64(_mm512_shuffle_i64x2(four[0], four[1], 0x88),
                          _mm512_shuffle_i64x2(four[0], four[1], 0xdd));
}

// Moves the counts of 32 ids, but for the one thrown away, to `counts`.
TDBG_TARGET void TakeHalf(uint64_t (*lanes)[8], bool lower, uint64_t* counts) {
  // The last id is the highest 16 bits.
  const __m512i kept =
      lower ? _mm512_set1_epi64(-1) : _mm512_set_epi64(0x0000ffffffffffff, -1, -1, -1, -1, -1, -1, -1);
  alignas(64) uint16_t sums[32];
  _mm512_store_si512(sums, _mm512_and_si512(TakeSums(lanes), kept));
  for (int i = 0; i < 32; i += 8) {
    const __m512i more = _mm512_cvtepu16_epi64(_mm_load_si128(reinterpret_cast<const __m128i*>(sums + i)));
    _mm512_storeu_si512(counts + i, _mm512_add_epi64(_mm512_loadu_si512(counts + i), more));
  }
}

}  // namespace

void SliceCounter::Count(size_t n) {
  const size_t blocks = (n + kBlock - 1) / kBlock;
  // With an id of the lowest quarter, of which the first look takes no notice; the second is not shown these.
  std::memset(ids + n, 0, blocks * kBlock - n);
  counted += static_cast<uint32_t>(n);
  // Two at a time: their masks stay in registers. Of four they were loaded again for each id, which took
  // 1.3 times as long.
  size_t b = 0;
  for (; b + 2 <= blocks; b += 2) CountQuarter<2, false>(ids + b * kBlock, this);
  if (b < blocks) CountQuarter<1, false>(ids + b * kBlock, this);
  low_count = static_cast<uint32_t>(Gather<0x60>(ids, n, low + low_count) - low);
  size_t done = 0;
  for (; low_count - done >= kLow; done += kLow) CountLow<2>(low + done, this);
  if (done != 0) {
    low_count -= static_cast<uint32_t>(done);
    std::memmove(low, low + done, low_count);
  }
}

bool HaveSliceCounter() {
  static const bool have = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi") &&
                           __builtin_cpu_supports("avx512vbmi2") &&
                           __builtin_cpu_supports("avx512vpopcntdq") && __builtin_cpu_supports("gfni");
  // Highway's list, so that who switches AVX-512 off there switches this off as well.
  return have && g_allowed && (hwy::SupportedTargets() & HWY_AVX3) != 0;
}
void AllowSliceCounter(bool allow) { g_allowed = allow; }

#else

void SliceCounter::Count(size_t) {}
bool HaveSliceCounter() { return false; }
void AllowSliceCounter(bool) {}
static void FlushLow(SliceCounter*, uint64_t*) {}
static void TakeHalf(uint64_t (*)[8], bool, uint64_t*) {}

#endif

void Fold(SliceCounter* slices, FloatCounter* counter) {
  if (slices->counted == 0) return;
  if (slices->low_count != 0) FlushLow(slices, counter->folded);
  for (int half = 0; half < 4; ++half) {
    if ((slices->used >> half & 1) == 0) continue;
    const bool lower = half % 2 == 0;
    TakeHalf(slices->lanes + 8 * half, lower,
             counter->folded + half / 2 * 1024 + slices->base + (lower ? 64 : 96));
  }
  for (int sign = 0; slices->any_deep && sign < 2; ++sign) {
    for (int i = 0; i < 64; ++i) {
      counter->folded[sign * 1024 + slices->base + i] += std::exchange(slices->deep[sign][i], 0);
    }
  }
  slices->any_deep = false;
  slices->used = 0;
  slices->counted = 0;
  counter->WillFold(slices->base, slices->base + SliceCounter::kWindow);
}

}  // namespace tdbg::stats
