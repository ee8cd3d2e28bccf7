// g++ 12 otherwise moves all loads of an iteration to its front, runs out of registers and keeps
// accumulators on the stack; with the pressure-aware scheduler bfloat16 runs 1.3 times as fast.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("schedule-insns", "sched-pressure")
#endif

#include "stats/kernels.h"

#include <bit>
#include <cstring>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stats/kernels.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "stats/loaders-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tdbg::stats::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Finite values, sums in float.

using DI32 = hn::RebindToSigned<D32>;
using DU8 = hn::ScalableTag<uint8_t>;
using V64 = hn::Vec<D64>;

// Hardware prefetchers stop at the end of a 4 KiB page, and the counters' stores keep the loads from
// running ahead by themselves: two pages ahead doubles the speed with the histogram and adds a third
// without (4 KiB ahead: less; 16 KiB: the first-level cache overflows).
constexpr size_t kAhead = 8192;

struct Sums {
  V32 s1, s2, s3a, s3b, s4a, s4b, l1;
};

template <class DU>
HWY_INLINE uint64_t SumLanes(hn::Vec<DU> v) {
  const DU du;
  HWY_ALIGN hn::TFromD<DU> lanes[hn::MaxLanes(DU())];
  hn::Store(v, du, lanes);
  uint64_t sum = 0;
  for (size_t i = 0; i < hn::Lanes(du); ++i) sum += lanes[i];
  return sum;
}

constexpr int kCellShift = 21;  // of a float32

// Few enough accumulators to stay in registers: with two of everything g++ 12 kept one on the stack,
// and its way through memory in every iteration was the longest chain of the whole loop. Adding pairs
// first halves the chains of the plain sums as well as two accumulators would.
//
// `kAbs`: nobody has looked at x, so that its magnitudes are not there.
template <bool kAbs>
HWY_INLINE void AddMoments(const Two& x, V32 scale, V32 pivot, Sums& s) {
  const V32 abs_a = kAbs ? hn::Abs(x.a) : x.abs_a;
  const V32 abs_b = kAbs ? hn::Abs(x.b) : x.abs_b;
  const V32 da = hn::MulSub(x.a, scale, pivot);
  const V32 db = hn::MulSub(x.b, scale, pivot);
  const V32 qa = hn::Mul(da, da);
  const V32 qb = hn::Mul(db, db);
  s.l1 = hn::Add(s.l1, hn::Add(abs_a, abs_b));
  s.s1 = hn::Add(s.s1, hn::Add(da, db));
  s.s2 = hn::Add(s.s2, hn::Add(qa, qb));
  s.s3a = hn::MulAdd(qa, da, s.s3a);
  s.s3b = hn::MulAdd(qb, db, s.s3b);
  s.s4a = hn::MulAdd(qa, qa, s.s4a);
  s.s4b = hn::MulAdd(qb, qb, s.s4b);
}

HWY_INLINE V64 AddWidened(V64 sum, V32 v) {
  const D64 d;
  const hn::Half<D32> half;
  sum = hn::Add(sum, hn::PromoteTo(d, hn::LowerHalf(half, v)));
  return hn::Add(sum, hn::PromoteTo(d, hn::UpperHalf(half, v)));
}

constexpr uint16_t kWindow = PairCounter::kWindow;
static_assert(kWindow == SliceCounter::kWindow);

// Of everything outside the window, zeros among it: kWindow. What is below it wraps around.
HWY_INLINE VU16 WindowPlace(VU16 top, VU16 base) {
  const DU16 d;
  const VU16 cell = hn::ShiftRight<5>(hn::And(top, hn::Set(d, 0x7fff)));
  return hn::Min(hn::Sub(cell, base), hn::Set(d, kWindow));
}

// Whether this instruction set can be one that SliceCounter is for.
constexpr bool kMayHaveSlices = HWY_TARGET == HWY_AVX3;

// Of two vectors' elements, in any order: a byte each, PairCounter's and SliceCounter's.
HWY_INLINE hn::Vec<DU8> WindowIds(VU16 place_a, VU16 place_b, VU16 top_a, VU16 top_b) {
  const DU8 d8;
#if HWY_TARGET == HWY_AVX3
  const hn::Vec<DU8> places{_mm512_packus_epi16(place_a.raw, place_b.raw)};
  const hn::Vec<DU8> signs{_mm512_packs_epi16(top_a.raw, top_b.raw)};
#elif HWY_TARGET == HWY_AVX2
  const hn::Vec<DU8> places{_mm256_packus_epi16(place_a.raw, place_b.raw)};
  const hn::Vec<DU8> signs{_mm256_packs_epi16(top_a.raw, top_b.raw)};
#else
  const DU16 d16;
  const auto places = hn::BitCast(d8, hn::Or(place_a, hn::ShiftLeft<8>(place_b)));
  const auto signs =
      hn::BitCast(d8, hn::IfVecThenElse(hn::Set(d16, 0xff00), top_b, hn::ShiftRight<8>(top_a)));
#endif
  return hn::OrAnd(places, signs, hn::Set(d8, 0x80));
}

// PairCounter's, of each two neighbours' ids.
HWY_INLINE VU16 PairIndices(hn::Vec<DU8> ids) {
  const DU16 d;
  const VU16 both = hn::BitCast(d, ids);
  return hn::Xor(both, hn::And(hn::ShiftRight<4>(both), hn::Set(d, 0xf0)));
}

// 32 iterations of a loop of four vectors are 64 additions per accumulator whatever the width: the error
// bound is the same for every instruction set.
constexpr size_t kIterations = 32;

// Bit i: lane i.
template <class DU>
HWY_INLINE uint64_t MaskBits(DU du, hn::Mask<DU> mask) {
  constexpr size_t kLanes = hn::MaxLanes(DU());
  // Of exactly the size that is stored: it then never sees memory.
  std::conditional_t<
      kLanes <= 8, uint8_t,
      std::conditional_t<kLanes == 16, uint16_t, std::conditional_t<kLanes == 32, uint32_t, uint64_t>>>
      bits = 0;
  hn::StoreMaskBits(du, mask, reinterpret_cast<uint8_t*>(&bits));
  return bits;
}

// Counts one by one what the window has no id for: of the `n` listed iterations of a block, elements whose
// magnitude is in [first, end) as lanes. Real gradients have one in a hundred below any window, in every
// second iteration one or two. A loop over as many as there are would guess wrong in each of them, which took
// as long as all other counting; compressed into a list, a whole vector was stored for the one element in it,
// and with AVX2, which cannot compress, that took four fifths of all time. So there is one loop over all bits
// of all masks, that goes on to the next mask without a branch. Not instrumented for TSan: GCC 12 then spills
// four bytes of a mask and takes eight back. It touches one thread's block and counter.
template <class Loader>
__attribute__((no_sanitize("thread"))) HWY_NOINLINE void CountOneByOne(const typename Loader::Word* x,
                                                                       const uint8_t* listed, size_t n,
                                                                       uint32_t first, uint32_t end,
                                                                       FloatCounter* outside) {
  using Lane = typename Loader::Lane;
  using T = hn::TFromD<Lane>;
  const Lane lane;
  const auto v_first = hn::Set(lane, static_cast<T>(first));
  const auto width = hn::Set(lane, static_cast<T>(end - first));
  const size_t step = 4 * hn::Lanes(D32());
  uint64_t masks[kIterations + 1];
  const typename Loader::Word* starts[kIterations + 1];
  size_t used = 0, count = 0;
  for (size_t k = 0; k < n; ++k) {
    const typename Loader::Word* start = x + listed[k] * step;
    uint64_t mask = 0;
    for (size_t j = 0; j < step; j += hn::Lanes(lane)) {
      const auto bits = hn::LoadU(lane, reinterpret_cast<const T*>(start + j));
      const auto wanted = hn::Lt(hn::Sub(Extremes<Lane>::Magnitude(bits), v_first), width);
      mask |= MaskBits(lane, wanted) << j;
    }
    masks[used] = mask;
    starts[used] = start;
    used += mask != 0 ? 1 : 0;
    count += static_cast<size_t>(std::popcount(mask));
  }
  masks[used] = 0;
  uint64_t mask = masks[0];
  for (size_t k = 0, i = 0; i < count; ++i) {
    outside->Add(Loader::BitsOf(starts[k][std::countr_zero(mask)]), i);
    mask &= mask - 1;
    const uint64_t next = mask == 0 ? 1 : 0;
    k += next;
    mask |= masks[k] & (uint64_t{0} - next);
  }
  outside->outside_count += count;
}

// What is above the window. Rare.
template <class Loader>
void CountAbove(const typename Loader::Word* x, size_t iterations, uint32_t first_out,
                FloatCounter* outside) {
  uint8_t all[kIterations];
  for (size_t i = 0; i < iterations; ++i) all[i] = static_cast<uint8_t>(i);
  CountOneByOne<Loader>(x, all, iterations, Loader::LaneOf(first_out), Loader::kFirstNonFinite, outside);
}

// What is below it.
template <class Loader>
void CountBelow(const typename Loader::Word* x, const uint8_t* listed, size_t n, uint32_t first_in,
                FloatCounter* outside) {
  CountOneByOne<Loader>(x, listed, n, 1, Loader::LaneOf(first_in), outside);
}

// What becomes of a block's ids.
enum class Ids { kNone, kPairs, kSlices };

// What one loop over a block does of all there is to do.
enum class Work { kLook, kSum, kBoth };

// AVX2 and before have 16 vector registers. One loop for everything needs 22: seven accumulators then went
// through memory in every iteration, and that way was the longest chain of all. So there are two loops, the
// second over a block that is in the first-level cache.
constexpr bool kFewRegisters = hn::MaxLanes(D32()) <= 8;

// What a loop over a block leaves.
template <class Lane>
struct Seen {
  hn::Vec<Lane> block_min;
  uint8_t listed[kIterations];  // iterations that have an element below the window
  size_t with_below;
};

template <Ids kIds, bool kExpectZeros, Work kWork, class Loader>
HWY_INLINE void Loop(const typename Loader::Word* HWY_RESTRICT x, size_t iterations, V32 scale, V32 pivot,
                     PairCounter* pairs, SliceCounter* slices, Extremes<typename Loader::Lane>& extremes,
                     Sums& sums, Seen<typename Loader::Lane>& seen) {
  constexpr bool kLook = kWork != Work::kSum;
  constexpr bool kSum = kWork != Work::kLook;
  constexpr bool kSlices = kLook && kIds == Ids::kSlices;
  constexpr bool kCountPrevious = kIds == Ids::kPairs;
  constexpr bool kPairs = kLook && kIds == Ids::kPairs;
  constexpr Zeros kZeros = !kExpectZeros          ? Zeros::kNotExpected
                           : kIds == Ids::kSlices ? Zeros::kExpected
                                                  : Zeros::kCounted;
  using Lane = typename Loader::Lane;
  const DU16 du16;
  const Lane lane;
  const size_t step = 4 * hn::Lanes(D32());
  const size_t indices = hn::Lanes(du16);
  // Of two loops each counts half of an iteration's: increments and vectors then wait for one another least.
  const size_t first_counted = kWork == Work::kSum ? indices / 2 : 0;
  const size_t end_counted = kWork == Work::kLook ? indices / 2 : indices;
  Extremes<Lane> e = extremes;
  Sums s = sums;
  hn::Vec<Lane> below = hn::Zero(lane);
  VU16 base = hn::Zero(du16);
  uint16_t* write = nullptr;
  const uint16_t* previous = nullptr;
  if constexpr (kPairs || kSlices) {
    const uint16_t window = kPairs ? pairs->base : slices->base;
    base = hn::Set(du16, window);
    const uint32_t first_in = uint32_t{window} << kCellShift;
    below = hn::Set(lane, static_cast<hn::TFromD<Lane>>(Loader::LaneOf(first_in) - (kExpectZeros ? 1 : 0)));
  }
  if constexpr (kPairs) write = pairs->indices[pairs->current ^ 1];
  if constexpr (kCountPrevious) previous = pairs->indices[pairs->current];
  hn::Vec<Lane> block_min = seen.block_min;
  size_t with_below = 0;
  for (size_t i = 0; i < iterations; ++i) {
    const typename Loader::Word* at = x + i * step;
    if constexpr (kLook) {  // the first of the two, where there are two
      for (size_t j = 0; j < step * sizeof(*x); j += 64)
        hwy::Prefetch(reinterpret_cast<const char*>(at) + kAhead + j);
    }
    VU16 first = base, first_top = base;
    hn::Vec<Lane> smallest = block_min;
    {
      Two two = Loader::Load(at);
      if constexpr (kPairs || kSlices) {
        first = WindowPlace(two.top, base);
        first_top = two.top;
      }
      if constexpr (kLook) smallest = Loader::template Look<kZeros>(two, e);
      if constexpr (kSum) AddMoments<!kLook>(two, scale, pivot, s);
    }
    if constexpr (kCountPrevious) {
      // Four indices per load. Besides saving loads this keeps long runs of one index fast (three
      // times so, measured on constant data), where one load each made every increment wait for the last.
      PairCounter::Cell* even_table = pairs->tables[0];
      PairCounter::Cell* odd_table = pairs->tables[1];
      for (size_t j = first_counted; j < end_counted; j += 4) {
        uint64_t four;
        std::memcpy(&four, previous + i * indices + j, sizeof four);
        ++even_table[four & 0xffff];
        ++odd_table[(four >> 16) & 0xffff];
        ++even_table[(four >> 32) & 0xffff];
        ++odd_table[four >> 48];
      }
    }
    {
      Two two = Loader::Load(at + step / 2);
      if constexpr (kPairs || kSlices) {
        const hn::Vec<DU8> ids = WindowIds(first, WindowPlace(two.top, base), first_top, two.top);
        if constexpr (kPairs) hn::StoreU(PairIndices(ids), du16, write + i * indices);
        if constexpr (kSlices) hn::StoreU(ids, DU8(), slices->ids + i * step);
      }
      if constexpr (kLook) smallest = hn::Min(smallest, Loader::template Look<kZeros>(two, e));
      if constexpr (kSum) AddMoments<!kLook>(two, scale, pivot, s);
    }
    if constexpr (kLook) block_min = hn::Min(block_min, smallest);
    if constexpr (kPairs || kSlices) {
      // Asked once per block it cost a second look at every fourth block of normal values, 15 % of all time.
      seen.listed[with_below] = static_cast<uint8_t>(i);
      with_below += hn::AllFalse(lane, hn::Lt(smallest, below)) ? 0 : 1;
    }
  }
  if constexpr (kLook) {
    seen.block_min = block_min;
    seen.with_below = with_below;
    extremes = e;
  }
  if constexpr (kSum) sums = s;
}

// Returns whether there was a zero, where none was expected.
template <Ids kIds, bool kExpectZeros, class Loader>
HWY_INLINE bool Block(const typename Loader::Word* HWY_RESTRICT x, size_t iterations, V32 scale, V32 pivot,
                      PairCounter* pairs, SliceCounter* slices, FloatCounter* outside,
                      Extremes<typename Loader::Lane>& e, V64 (&total)[5]) {
  using Lane = typename Loader::Lane;
  const Lane lane;
  const size_t step = 4 * hn::Lanes(D32());
  const V32 zero = hn::Zero(D32());
  Sums s{zero, zero, zero, zero, zero, zero, zero};
  Seen<Lane> seen;
  seen.block_min = hn::Set(lane, hwy::LimitsMax<hn::TFromD<Lane>>());
  seen.with_below = 0;
  if constexpr (kFewRegisters) {
    Loop<kIds, kExpectZeros, Work::kLook, Loader>(x, iterations, scale, pivot, pairs, slices, e, s, seen);
    Loop<kIds, kExpectZeros, Work::kSum, Loader>(x, iterations, scale, pivot, pairs, slices, e, s, seen);
  } else {
    Loop<kIds, kExpectZeros, Work::kBoth, Loader>(x, iterations, scale, pivot, pairs, slices, e, s, seen);
  }
  if constexpr (kIds != Ids::kNone) {
    const uint16_t window = kIds == Ids::kSlices ? slices->base : pairs->base;
    if (seen.with_below != 0) {
      CountBelow<Loader>(x, seen.listed, seen.with_below, uint32_t{window} << kCellShift, outside);
    }
  }
  const hn::Vec<Lane> block_min = seen.block_min;
  total[0] = AddWidened(total[0], s.s1);
  total[1] = AddWidened(total[1], s.s2);
  total[2] = AddWidened(total[2], hn::Add(s.s3a, s.s3b));
  total[3] = AddWidened(total[3], hn::Add(s.s4a, s.s4b));
  total[4] = AddWidened(total[4], s.l1);
  if constexpr (kExpectZeros) {
    e.abs_min = hn::Min(e.abs_min, block_min);
    return false;
  }
  if (HWY_LIKELY(hn::AllFalse(lane, hn::Eq(block_min, hn::Zero(lane))))) {
    e.abs_min = hn::Min(e.abs_min, hn::Sub(block_min, hn::Set(lane, 1)));
    return false;
  }
  e.CountZeros(reinterpret_cast<const hn::TFromD<Lane>*>(x), iterations * step);
  return true;
}

template <Ids kIds, class Loader>
size_t Fast(const typename Loader::Word* HWY_RESTRICT x, size_t n, float pivot, float scale,
            bool expect_zeros, PairCounter* pairs, SliceCounter* slices, FloatCounter* outside, Partial* out,
            bool* all_finite) {
  constexpr bool kPairs = kIds == Ids::kPairs;
  constexpr bool kSlices = kIds == Ids::kSlices;
  using Lane = typename Loader::Lane;
  const D32 d;
  const D64 d64;
  const size_t step = 4 * hn::Lanes(d);
  const size_t indices = 2 * hn::Lanes(d);
  static_assert(hn::MaxLanes(D32()) * 2 * kIterations <= PairCounter::kPending);
  static_assert(hn::MaxLanes(D32()) * 4 * kIterations <= SliceCounter::kMax);
  const V32 v_scale = hn::Set(d, scale);
  const V32 v_pivot = hn::Set(d, pivot * scale);
  Extremes<Lane> e;
  e.Reset();
  Extremes<Lane> whole = e;
  V64 total[5] = {hn::Zero(d64), hn::Zero(d64), hn::Zero(d64), hn::Zero(d64), hn::Zero(d64)};

  // The last place is that of zeros and of what lies outside the window.
  const uint64_t out_of_window = kSlices ? slices->CountedOutside() : 0;
  const uint64_t outside_before = kSlices ? outside->outside_count : 0;
  size_t zeros_counted = 0;  // elements among which they were
  const size_t done = n - n % step;
  for (size_t i = 0; i < done;) {
    const size_t iterations = HWY_MIN(kIterations, (done - i) / step);
    const size_t elements = iterations * step;
    const size_t made = iterations * indices;
    if constexpr (kPairs) pairs->FillPending(made);
    if (expect_zeros) {
      Block<kIds, true, Loader>(x + i, iterations, v_scale, v_pivot, pairs, slices, outside, e, total);
    } else {
      expect_zeros =
          Block<kIds, false, Loader>(x + i, iterations, v_scale, v_pivot, pairs, slices, outside, e, total);
    }
    if constexpr (kPairs) {
      pairs->CountPending(made);
      pairs->current ^= 1;
      pairs->pending = static_cast<uint32_t>(made);
    }
    if constexpr (kSlices) slices->Count(elements);
    if (expect_zeros) zeros_counted += elements;
    if constexpr (kPairs || kSlices) {
      const uint32_t end = kPairs ? pairs->base + PairCounter::kWindow : slices->base + SliceCounter::kWindow;
      const uint32_t first_out = end << kCellShift;
      if (HWY_UNLIKELY(Reduce(e).abs_max() >= Loader::LaneOf(first_out))) {
        CountAbove<Loader>(x + i, iterations, first_out, outside);
      }
      whole.AbsorbMaxima(e);
      e.ResetMaxima();
    }
    i += elements;
  }
  if constexpr (kPairs) pairs->elements += done;
  whole.AbsorbMaxima(e);
  whole.abs_min = e.abs_min;

  const Reduced r = Reduce(whole);
  *all_finite = r.abs_max() < Loader::kFirstNonFinite;
  if (!*all_finite || done == 0) return done;
  const auto as_double = [](int64_t magnitude) {
    return static_cast<double>(Loader::ValueOf(static_cast<uint32_t>(magnitude)));
  };
  const uint64_t zeros =
      kSlices ? slices->CountedOutside() - out_of_window - (outside->outside_count - outside_before)
              : zeros_counted - SumLanes<Lane>(e.nonzero);
  const double abs_min = zeros != 0 || r.abs_min_nonzero < 0 ? 0.0 : as_double(r.abs_min_nonzero);
  out->zero += zeros;
  out->abs_max = HWY_MAX(out->abs_max, as_double(r.abs_max()));
  if (r.abs_min_nonzero >= 0)
    out->abs_min_nonzero = HWY_MIN(out->abs_min_nonzero, as_double(r.abs_min_nonzero));
  out->min = HWY_MIN(out->min, r.largest_negative >= 0 ? -as_double(r.largest_negative) : abs_min);
  out->max = HWY_MAX(out->max, r.largest_positive >= 0 ? as_double(r.largest_positive) : -abs_min);
  const double unit = 1.0 / static_cast<double>(scale);
  out->s1 += hn::GetLane(hn::SumOfLanes(d64, total[0])) * unit;
  out->s2 += hn::GetLane(hn::SumOfLanes(d64, total[1])) * unit * unit;
  out->s3 += hn::GetLane(hn::SumOfLanes(d64, total[2])) * unit * unit * unit;
  out->s4 += hn::GetLane(hn::SumOfLanes(d64, total[3])) * (unit * unit) * (unit * unit);
  out->l1 += hn::GetLane(hn::SumOfLanes(d64, total[4]));
  return done;
}

template <class Loader>
HWY_INLINE size_t FastInto(const typename Loader::Word* x, size_t n, float pivot, float scale,
                           bool expect_zeros, PairCounter* pairs, SliceCounter* slices, FloatCounter* outside,
                           Partial* out, bool* all_finite) {
  auto fast = pairs != nullptr ? Fast<Ids::kPairs, Loader> : Fast<Ids::kNone, Loader>;
  if constexpr (kMayHaveSlices) {
    if (slices != nullptr) fast = Fast<Ids::kSlices, Loader>;
  }
  return fast(x, n, pivot, scale, expect_zeros, pairs, slices, outside, out, all_finite);
}

size_t FastF32Kernel(const float* x, size_t n, float pivot, float scale, bool expect_zeros,
                     PairCounter* pairs, SliceCounter* slices, FloatCounter* outside, Partial* out,
                     bool* all_finite) {
  return FastInto<LoadF32>(x, n, pivot, scale, expect_zeros, pairs, slices, outside, out, all_finite);
}

size_t FastBF16Kernel(const uint16_t* x, size_t n, float pivot, float scale, bool expect_zeros,
                      PairCounter* pairs, SliceCounter* slices, FloatCounter* outside, Partial* out,
                      bool* all_finite) {
  return FastInto<LoadBF16>(x, n, pivot, scale, expect_zeros, pairs, slices, outside, out, all_finite);
}

size_t FastF16Kernel(const uint16_t* x, size_t n, float pivot, float scale, bool expect_zeros,
                     PairCounter* pairs, SliceCounter* slices, FloatCounter* outside, Partial* out,
                     bool* all_finite) {
  return FastInto<LoadF16>(x, n, pivot, scale, expect_zeros, pairs, slices, outside, out, all_finite);
}

template <class Loader>
HWY_INLINE float LargestMagnitude(const typename Loader::Word* x, size_t n) {
  using Lane = typename Loader::Lane;
  using T = hn::TFromD<Lane>;
  const Lane lane;
  const size_t lanes = hn::Lanes(lane);
  const auto* bits = reinterpret_cast<const T*>(x);
  const T magnitude = hwy::LimitsMax<T>() >> 1;
  auto most = hn::Zero(lane);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hwy::Prefetch(reinterpret_cast<const char*>(x + i) + kAhead);
    most = hn::Max(most, Extremes<Lane>::Magnitude(hn::LoadU(lane, bits + i)));
  }
  T r = hn::GetLane(hn::MaxOfLanes(lane, most));
  for (; i < n; ++i) {
    T one;
    std::memcpy(&one, x + i, sizeof one);
    r = HWY_MAX(r, static_cast<T>(one & magnitude));
  }
  return Loader::ValueOf(r);
}

float AbsMaxF32Kernel(const float* x, size_t n) { return LargestMagnitude<LoadF32>(x, n); }
float AbsMaxBF16Kernel(const uint16_t* x, size_t n) { return LargestMagnitude<LoadBF16>(x, n); }
float AbsMaxF16Kernel(const uint16_t* x, size_t n) { return LargestMagnitude<LoadF16>(x, n); }

void CountInWindowKernel(const float* x, size_t n, SliceCounter* slices, FloatCounter* outside) {
  const D32 d;
  const DU32 du;
  const DI32 di;
  const size_t lanes = hn::Lanes(d);
  const size_t step = 4 * lanes;
  const VU16 base = hn::Set(DU16(), slices->base);
  const uint32_t first_in = uint32_t{slices->base} << kCellShift;
  const uint32_t first_out = first_in + (uint32_t{SliceCounter::kWindow} << kCellShift);
  const VU32 v_first_in = hn::Set(du, first_in - 1);
  const auto last_in = hn::Set(di, static_cast<int32_t>(first_out - 2));
  const VU32 one = hn::Set(du, 1);
  HWY_ALIGN float tail[4 * hn::MaxLanes(D32())] = {};
  size_t made = 0;
  const float* block = x;       // of kIterations iterations
  uint8_t listed[kIterations];  // its iterations that have an element below the window
  size_t with_below = 0;
  for (size_t i = 0; i < n; i += step) {
    const float* at = x + i;
    if (at == block + kIterations * step) {
      if (with_below != 0) CountBelow<LoadF32>(block, listed, with_below, first_in, outside);
      block = at;
      with_below = 0;
    }
    if (i + step > n) {  // filled up with zeros, which are counted and thrown away
      std::memcpy(tail, at, (n - i) * sizeof *x);
      at = tail;
    }
    const Two two[2] = {LoadF32::Load(at), LoadF32::Load(at + 2 * lanes)};
    const auto ids =
        WindowIds(WindowPlace(two[0].top, base), WindowPlace(two[1].top, base), two[0].top, two[1].top);
    hn::StoreU(ids, DU8(), slices->ids + made);
    // Less one, so that a zero is larger than anything.
    VU32 smallest = hn::Set(du, ~uint32_t{0});
    auto largest = hn::Zero(di);
    for (const Two& t : two) {
      const VU32 a = hn::Sub(hn::BitCast(du, hn::Abs(t.a)), one);
      const VU32 b = hn::Sub(hn::BitCast(du, hn::Abs(t.b)), one);
      smallest = hn::Min(smallest, hn::Min(a, b));
      largest = hn::Max(largest, hn::Max(hn::BitCast(di, a), hn::BitCast(di, b)));
    }
    const bool below = !hn::AllFalse(du, hn::Lt(smallest, v_first_in));
    if (HWY_UNLIKELY(at == tail)) {
      const uint8_t itself = 0;
      if (below) CountBelow<LoadF32>(at, &itself, 1, first_in, outside);
    } else {
      listed[with_below] = static_cast<uint8_t>((i - static_cast<size_t>(block - x)) / step);
      with_below += below ? 1 : 0;
    }
    if (HWY_UNLIKELY(!hn::AllFalse(di, hn::Gt(largest, last_in)))) {
      CountAbove<LoadF32>(at, 1, first_out, outside);
    }
    made += step;
    if (made == SliceCounter::kMax) {
      slices->Count(made);
      made = 0;
    }
  }
  if (with_below != 0) CountBelow<LoadF32>(block, listed, with_below, first_in, outside);
  if (made != 0) slices->Count(made);
}

}  // namespace tdbg::stats::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tdbg::stats {

HWY_EXPORT(FastF32Kernel);
HWY_EXPORT(FastBF16Kernel);
HWY_EXPORT(FastF16Kernel);
HWY_EXPORT(AbsMaxF32Kernel);
HWY_EXPORT(AbsMaxBF16Kernel);
HWY_EXPORT(AbsMaxF16Kernel);
HWY_EXPORT(CountInWindowKernel);

size_t FastF32(const float* x, size_t n, float pivot, float scale, bool expect_zeros, PairCounter* pairs,
               SliceCounter* slices, FloatCounter* outside, Partial* out, bool* all_finite) {
  return HWY_DYNAMIC_DISPATCH(FastF32Kernel)(x, n, pivot, scale, expect_zeros, pairs, slices, outside, out,
                                             all_finite);
}
size_t FastBF16(const uint16_t* x, size_t n, float pivot, float scale, bool expect_zeros, PairCounter* pairs,
                SliceCounter* slices, FloatCounter* outside, Partial* out, bool* all_finite) {
  return HWY_DYNAMIC_DISPATCH(FastBF16Kernel)(x, n, pivot, scale, expect_zeros, pairs, slices, outside, out,
                                              all_finite);
}
size_t FastF16(const uint16_t* x, size_t n, float pivot, float scale, bool expect_zeros, PairCounter* pairs,
               SliceCounter* slices, FloatCounter* outside, Partial* out, bool* all_finite) {
  return HWY_DYNAMIC_DISPATCH(FastF16Kernel)(x, n, pivot, scale, expect_zeros, pairs, slices, outside, out,
                                             all_finite);
}
float AbsMaxF32(const float* x, size_t n) { return HWY_DYNAMIC_DISPATCH(AbsMaxF32Kernel)(x, n); }
float AbsMaxBF16(const uint16_t* x, size_t n) { return HWY_DYNAMIC_DISPATCH(AbsMaxBF16Kernel)(x, n); }
float AbsMaxF16(const uint16_t* x, size_t n) { return HWY_DYNAMIC_DISPATCH(AbsMaxF16Kernel)(x, n); }
void CountInWindow(const float* x, size_t n, SliceCounter* slices, FloatCounter* outside) {
  HWY_DYNAMIC_DISPATCH(CountInWindowKernel)(x, n, slices, outside);
}

}  // namespace tdbg::stats
#endif
