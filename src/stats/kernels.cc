// g++ 12 otherwise moves all loads of an iteration to its front, runs out of registers and keeps
// accumulators on the stack; with the pressure-aware scheduler bfloat16 runs 1.3 times as fast.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("schedule-insns", "sched-pressure")
#endif

#include "stats/kernels.h"

#include <bit>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stats/kernels.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tdbg::stats::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Finite values, sums in float.

using D64 = hn::ScalableTag<double>;
using D32 = hn::ScalableTag<float>;
using DU32 = hn::RebindToUnsigned<D32>;
using DI32 = hn::RebindToSigned<D32>;
using DU16 = hn::ScalableTag<uint16_t>;
using DU8 = hn::ScalableTag<uint8_t>;
using V64 = hn::Vec<D64>;
using V32 = hn::Vec<D32>;
using VU32 = hn::Vec<DU32>;
using VU16 = hn::Vec<DU16>;

// Hardware prefetchers stop at the end of a 4 KiB page, and the counters' stores keep the loads from
// running ahead by themselves: two pages ahead doubles the speed with the histogram and adds a third
// without (4 KiB ahead: less; 16 KiB: the first-level cache overflows).
constexpr size_t kAhead = 8192;

struct Sums {
  V32 s1, s2, s3a, s3b, s4a, s4b, l1;
};

// Extremes by integer comparison of the raw bits, in lanes as wide as the element: of bfloat16 one
// vector holds twice as many as its float32 form would. As signed integers the non-negative floats
// ascend, so their maximum is right whenever there is one; as unsigned integers the negative ones are
// on top, the most negative highest. What is missing when all have one sign, abs_min supplies.
template <class DU>
struct Extremes {
  hn::Vec<DU> abs_min;  ///< of |bits| - 1: a zero wraps around to the largest
  hn::Vec<DU> signed_max;
  hn::Vec<DU> unsigned_max;
  hn::Vec<DU> nonzero;  ///< count per lane

  HWY_INLINE void Reset() {
    const DU du;
    abs_min = hn::Set(du, hwy::LimitsMax<hn::TFromD<DU>>());
    nonzero = hn::Zero(du);
    ResetMaxima();
  }
  HWY_INLINE void ResetMaxima() {
    const DU du;
    signed_max = hn::Set(du, SignBit());
    unsigned_max = hn::Zero(du);
  }
  static constexpr hn::TFromD<DU> SignBit() {
    return static_cast<hn::TFromD<DU>>(hn::TFromD<DU>{1} << (sizeof(hn::TFromD<DU>) * 8 - 1));
  }
  /// Everything but abs_min, for which |bits| - 1 is returned: the caller has other uses for it. So with
  /// |bits|, `magnitude`. kCountZeros: else `nonzero` is left alone.
  template <bool kCountZeros>
  HWY_INLINE hn::Vec<DU> Look(hn::Vec<DU> bits, hn::Vec<DU>* magnitude) {
    const DU du;
    const hn::RebindToSigned<DU> di;
    const auto one = hn::Set(du, 1);
    *magnitude = hn::AndNot(hn::Set(du, SignBit()), bits);
    signed_max = hn::BitCast(du, hn::Max(hn::BitCast(di, signed_max), hn::BitCast(di, bits)));
    unsigned_max = hn::Max(unsigned_max, bits);
    if constexpr (kCountZeros) nonzero = hn::Add(nonzero, hn::Min(*magnitude, one));
    return hn::Sub(*magnitude, one);
  }
  HWY_INLINE void AbsorbMaxima(const Extremes& o) {
    const hn::RebindToSigned<DU> di;
    const DU du;
    signed_max = hn::BitCast(du, hn::Max(hn::BitCast(di, signed_max), hn::BitCast(di, o.signed_max)));
    unsigned_max = hn::Max(unsigned_max, o.unsigned_max);
  }
};

// The same of all lanes together. Magnitudes are raw bits without the sign; -1 stands for "none".
struct Reduced {
  int64_t abs_min_nonzero;
  int64_t largest_positive;  ///< or zero; -1 if every element has its sign bit set
  int64_t largest_negative;  ///< magnitude; -1 if no element has its sign bit set
  int64_t abs_max() const { return HWY_MAX(largest_positive, largest_negative); }
};

template <class DU>
HWY_INLINE Reduced Reduce(const Extremes<DU>& e) {
  using T = hn::TFromD<DU>;
  const DU du;
  const hn::RebindToSigned<DU> di;
  constexpr int64_t kSign = static_cast<int64_t>(Extremes<DU>::SignBit());
  Reduced r;
  const T abs_min = hn::GetLane(hn::MinOfLanes(du, e.abs_min));
  r.abs_min_nonzero = abs_min == hwy::LimitsMax<T>() ? -1 : int64_t{abs_min} + 1;
  r.largest_positive = hn::GetLane(hn::MaxOfLanes(di, hn::BitCast(di, e.signed_max)));
  if (r.largest_positive < 0) r.largest_positive = -1;
  r.largest_negative = int64_t{hn::GetLane(hn::MaxOfLanes(du, e.unsigned_max))} - kSign;
  if (r.largest_negative < 0) r.largest_negative = -1;
  return r;
}

template <class DU>
HWY_INLINE uint64_t SumLanes(hn::Vec<DU> v) {
  const DU du;
  HWY_ALIGN hn::TFromD<DU> lanes[hn::MaxLanes(DU())];
  hn::Store(v, du, lanes);
  uint64_t sum = 0;
  for (size_t i = 0; i < hn::Lanes(du); ++i) sum += lanes[i];
  return sum;
}

// Two vectors of float32, and their upper halves as one vector of 16-bit lanes, in whatever order is
// cheapest: nothing here depends on it.
struct Two {
  V32 a, b;
  VU16 top;
  V32 abs_a, abs_b;  // Look's
};

struct LoadF32 {
  using Word = float;
  using Lane = DU32;
  static constexpr int kCellShift = 21;
  static HWY_INLINE Two Load(const float* at) {
    const D32 d;
    const DU32 du;
    Two r;
    r.a = hn::LoadU(d, at);
    r.b = hn::LoadU(d, at + hn::Lanes(d));
    const VU32 low = hn::ShiftRight<16>(hn::BitCast(du, r.b));
    r.top = hn::BitCast(DU16(), hn::OrAnd(low, hn::BitCast(du, r.a), hn::Set(du, 0xffff0000u)));
    return r;
  }
  template <bool kCountZeros>
  static HWY_INLINE VU32 Look(Two& x, Extremes<Lane>& e) {
    VU32 abs_a, abs_b;
    const VU32 a = e.Look<kCountZeros>(hn::BitCast(DU32(), x.a), &abs_a);
    const VU32 b = e.Look<kCountZeros>(hn::BitCast(DU32(), x.b), &abs_b);
    x.abs_a = hn::BitCast(D32(), abs_a);
    x.abs_b = hn::BitCast(D32(), abs_b);
    return hn::Min(a, b);
  }
  static HWY_INLINE V32 One(const float* at) { return hn::LoadU(D32(), at); }
};

struct LoadBF16 {
  using Word = uint16_t;
  using Lane = DU16;
  static constexpr int kCellShift = 5;
  static HWY_INLINE Two Load(const uint16_t* at) {
    const D32 d;
    const DU32 du;
    Two r;
    r.top = hn::LoadU(DU16(), at);
    r.a = hn::BitCast(d, hn::And(hn::BitCast(du, r.top), hn::Set(du, 0xffff0000u)));
    r.b = hn::BitCast(d, hn::ShiftLeft<16>(hn::BitCast(du, r.top)));
    return r;
  }
  template <bool kCountZeros>
  static HWY_INLINE VU16 Look(Two& x, Extremes<Lane>& e) {
    VU16 magnitude;
    const VU16 r = e.Look<kCountZeros>(x.top, &magnitude);
    x.abs_a = hn::Abs(x.a);
    x.abs_b = hn::Abs(x.b);
    return r;
  }
  static HWY_INLINE V32 One(const uint16_t* at) {
    const hn::Rebind<uint16_t, D32> half;
    return hn::BitCast(D32(), hn::ShiftLeft<16>(hn::PromoteTo(DU32(), hn::LoadU(half, at))));
  }
};

// Few enough accumulators to stay in registers: with two of everything g++ 12 kept one on the stack,
// and its way through memory in every iteration was the longest chain of the whole loop. Adding pairs
// first halves the chains of the plain sums as well as two accumulators would.
HWY_INLINE void AddMoments(const Two& x, V32 scale, V32 pivot, Sums& s) {
  const V32 da = hn::MulSub(x.a, scale, pivot);
  const V32 db = hn::MulSub(x.b, scale, pivot);
  const V32 qa = hn::Mul(da, da);
  const V32 qb = hn::Mul(db, db);
  s.l1 = hn::Add(s.l1, hn::Add(x.abs_a, x.abs_b));
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

HWY_INLINE VU16 WindowId(VU16 top, VU16 base) {
  const DU16 d;
  const VU16 magnitude = hn::And(top, hn::Set(d, 0x7fff));
  const VU16 place = hn::Min(hn::SaturatedSub(hn::ShiftRight<5>(magnitude), base), hn::Set(d, 63));
  return hn::Or(place, hn::ShiftRight<9>(hn::Xor(top, magnitude)));
}

// 32 iterations of a loop of four vectors are 64 additions per accumulator whatever the width: the error
// bound is the same for every instruction set.
constexpr size_t kIterations = 32;

// Elements that the window has no id for: those whose magnitude's bits are in [first, end). They are gathered
// without asking, vector by vector, and counted one by one at the end: real gradients have one in a hundred
// below any window, somewhere in every second iteration, and a branch there cost more than all the rest.
template <class Loader>
struct Gathered {
  using Word = typename Loader::Word;
  static constexpr size_t kMost = kIterations * 4 * hn::MaxLanes(D32());
  HWY_ALIGN uint32_t found[kMost + hn::MaxLanes(DU32())];
  size_t count = 0;

  HWY_INLINE void Add(const Word* x, size_t n, uint32_t first, uint32_t end) {
    const DU32 du;
    const VU32 v_first = hn::Set(du, first);
    const VU32 width = hn::Set(du, end - first);
    for (size_t i = 0; i < n; i += hn::Lanes(du)) {
      const V32 v = Loader::One(x + i);
      const auto wanted = hn::Lt(hn::Sub(hn::BitCast(du, hn::Abs(v)), v_first), width);
      // Not CompressStore: where its one instruction writes to memory, AMD's processors take its microcode.
      hn::StoreU(hn::Compress(hn::BitCast(du, v), wanted), du, found + count);
      count += hn::CountTrue(du, wanted);
    }
  }
  HWY_INLINE void Count(FloatCounter* outside) const {
    for (size_t j = 0; j < count; ++j) outside->Add(found[j], j);
    outside->outside_count += count;
  }
};

// Of a block of at most kIterations iterations. Rare.
template <class Loader>
HWY_NOINLINE void CountRange(const typename Loader::Word* x, size_t n, uint32_t first, uint32_t end,
                             FloatCounter* outside) {
  Gathered<Loader> gathered;
  gathered.Add(x, n, first, end);
  gathered.Count(outside);
}

// Of the listed iterations of a block. Returns how many there were.
template <class Loader>
HWY_NOINLINE size_t CountBelow(const typename Loader::Word* x, const uint8_t* listed, size_t n, size_t step,
                               uint32_t first_in, FloatCounter* outside) {
  Gathered<Loader> gathered;
  for (size_t k = 0; k < n; ++k) gathered.Add(x + listed[k] * step, step, 1, first_in);
  gathered.Count(outside);
  return gathered.count;
}

// What becomes of a block's ids.
enum class Ids { kNone, kPairs, kPairsCountingPrevious, kSlices };

// Returns how many elements, zeros left out, lie below the window.
template <Ids kIds, class Loader>
HWY_INLINE size_t Block(const typename Loader::Word* HWY_RESTRICT x, size_t iterations, V32 scale, V32 pivot,
                        PairCounter* pairs, SliceCounter* slices, FloatCounter* outside,
                        Extremes<typename Loader::Lane>& e, V64 (&total)[5]) {
  constexpr bool kSlices = kIds == Ids::kSlices;
  constexpr bool kCountPrevious = kIds == Ids::kPairsCountingPrevious;
  constexpr bool kPairs = kIds == Ids::kPairs || kCountPrevious;
  const D32 d;
  const DU16 du16;
  const size_t step = 4 * hn::Lanes(d);
  const size_t indices = hn::Lanes(du16);
  const V32 zero = hn::Zero(d);
  Sums s{zero, zero, zero, zero, zero, zero, zero};
  using Lane = typename Loader::Lane;
  uint32_t first_in = 0;
  hn::Vec<Lane> below = hn::Zero(Lane());
  VU16 base = hn::Zero(du16);
  uint16_t* write = nullptr;
  const uint16_t* previous = nullptr;
  if constexpr (kPairs || kSlices) {
    const uint16_t window = kPairs ? pairs->base : slices->base;
    base = hn::Set(du16, window);
    first_in = uint32_t{window} + 1;
    below = hn::Set(Lane(), static_cast<hn::TFromD<Lane>>((first_in << Loader::kCellShift) - 1));
    first_in <<= LoadF32::kCellShift;
  }
  if constexpr (kPairs) {
    write = pairs->indices[pairs->current ^ 1];
    previous = pairs->indices[pairs->current];
  }
  uint8_t listed[kIterations];  // iterations that have an element below the window
  size_t with_below = 0;
  for (size_t i = 0; i < iterations; ++i) {
    const typename Loader::Word* at = x + i * step;
    for (size_t j = 0; j < step * sizeof(*x); j += 64)
      hwy::Prefetch(reinterpret_cast<const char*>(at) + kAhead + j);
    VU16 ids = base;
    hn::Vec<Lane> smallest = below;
    {
      Two two = Loader::Load(at);
      if constexpr (kPairs || kSlices) ids = WindowId(two.top, base);
      smallest = Loader::template Look<!kSlices>(two, e);
      AddMoments(two, scale, pivot, s);
    }
    if constexpr (kCountPrevious) {
      // Four indices per load. Besides saving loads this keeps long runs of one index fast (three
      // times so, measured on constant data), where one load each made every increment wait for the last.
      PairCounter::Cell* even_table = pairs->tables[0];
      PairCounter::Cell* odd_table = pairs->tables[1];
      for (size_t j = 0; j < indices; j += 4) {
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
      if constexpr (kPairs) {
        ids = hn::Or(ids, hn::ShiftLeft<7>(WindowId(two.top, base)));
        hn::StoreU(ids, du16, write + i * indices);
      }
      if constexpr (kSlices) {
        ids = hn::Or(ids, hn::ShiftLeft<8>(WindowId(two.top, base)));
        hn::StoreU(hn::BitCast(DU8(), ids), DU8(), slices->ids + i * step);
      }
      smallest = hn::Min(smallest, Loader::template Look<!kSlices>(two, e));
      AddMoments(two, scale, pivot, s);
    }
    e.abs_min = hn::Min(e.abs_min, smallest);
    if constexpr (kPairs || kSlices) {
      // Asked once per block it cost a second look at every fourth block of normal values, 15 % of all time.
      listed[with_below] = static_cast<uint8_t>(i);
      with_below += hn::AllFalse(Lane(), hn::Lt(smallest, below)) ? 0 : 1;
    }
  }
  const size_t below_window =
      with_below == 0 ? 0 : CountBelow<Loader>(x, listed, with_below, step, first_in, outside);
  total[0] = AddWidened(total[0], s.s1);
  total[1] = AddWidened(total[1], s.s2);
  total[2] = AddWidened(total[2], hn::Add(s.s3a, s.s3b));
  total[3] = AddWidened(total[3], hn::Add(s.s4a, s.s4b));
  total[4] = AddWidened(total[4], s.l1);
  return below_window;
}

template <Ids kIds, class Loader>
size_t Fast(const typename Loader::Word* HWY_RESTRICT x, size_t n, float pivot, float scale,
            PairCounter* pairs, SliceCounter* slices, FloatCounter* outside, Partial* out, bool* all_finite) {
  constexpr bool kPairs = kIds == Ids::kPairs;
  constexpr bool kSlices = kIds == Ids::kSlices;
  const D32 d;
  const D64 d64;
  using Lane = typename Loader::Lane;
  const size_t step = 4 * hn::Lanes(d);
  const size_t indices = 2 * hn::Lanes(d);
  static_assert(hn::MaxLanes(D32()) * 2 * kIterations <= PairCounter::kPending);
  static_assert(hn::MaxLanes(D32()) * 4 * kIterations <= SliceCounter::kMost);
  const V32 v_scale = hn::Set(d, scale);
  const V32 v_pivot = hn::Set(d, pivot * scale);
  Extremes<Lane> e;
  e.Reset();
  Extremes<Lane> whole = e;
  V64 total[5] = {hn::Zero(d64), hn::Zero(d64), hn::Zero(d64), hn::Zero(d64), hn::Zero(d64)};

  // Of place 0, which zeros and what lies below the window share.
  const uint64_t lowest = kSlices ? slices->CountedLowest() : 0;
  uint64_t below_window = 0;
  const size_t done = n - n % step;
  for (size_t i = 0; i < done;) {
    const size_t iterations = HWY_MIN(kIterations, (done - i) / step);
    if constexpr (kPairs) {
      const size_t made = iterations * indices;
      if (pairs->pending >= made) {
        Block<Ids::kPairsCountingPrevious, Loader>(x + i, iterations, v_scale, v_pivot, pairs, slices,
                                                   outside, e, total);
        pairs->CountPending(made);
      } else {
        pairs->CountPending(0);
        Block<Ids::kPairs, Loader>(x + i, iterations, v_scale, v_pivot, pairs, slices, outside, e, total);
      }
      pairs->current ^= 1;
      pairs->pending = static_cast<uint32_t>(made);
    } else {
      below_window +=
          Block<kIds, Loader>(x + i, iterations, v_scale, v_pivot, pairs, slices, outside, e, total);
      if constexpr (kSlices) slices->Count(iterations * step);
    }
    if constexpr (kPairs || kSlices) {
      const uint32_t window = kPairs ? pairs->base : slices->base;
      const uint32_t first_out = (window + 1 + PairCounter::kWindow) << LoadF32::kCellShift;
      if (HWY_UNLIKELY(Reduce(e).abs_max() >= first_out >> (LoadF32::kCellShift - Loader::kCellShift))) {
        CountRange<Loader>(x + i, iterations * step, first_out, 0x7f800000u, outside);
      }
      whole.AbsorbMaxima(e);
      e.ResetMaxima();
    }
    i += iterations * step;
  }
  if constexpr (kPairs) pairs->elements += done;
  whole.AbsorbMaxima(e);
  whole.abs_min = e.abs_min;

  const Reduced r = Reduce(whole);
  *all_finite = r.abs_max() < int64_t{1020} << Loader::kCellShift;
  if (!*all_finite || done == 0) return done;
  const auto as_double = [](int64_t magnitude) {
    const uint32_t bits = static_cast<uint32_t>(magnitude) << (21 - Loader::kCellShift);
    float f;
    std::memcpy(&f, &bits, sizeof f);
    return static_cast<double>(f);
  };
  const uint64_t zeros =
      kSlices ? slices->CountedLowest() - lowest - below_window : done - SumLanes<Lane>(e.nonzero);
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
                           PairCounter* pairs, SliceCounter* slices, FloatCounter* outside, Partial* out,
                           bool* all_finite) {
  const auto fast = slices != nullptr  ? Fast<Ids::kSlices, Loader>
                    : pairs != nullptr ? Fast<Ids::kPairs, Loader>
                                       : Fast<Ids::kNone, Loader>;
  return fast(x, n, pivot, scale, pairs, slices, outside, out, all_finite);
}

size_t FastF32Kernel(const float* x, size_t n, float pivot, float scale, PairCounter* pairs,
                     SliceCounter* slices, FloatCounter* outside, Partial* out, bool* all_finite) {
  return FastInto<LoadF32>(x, n, pivot, scale, pairs, slices, outside, out, all_finite);
}

size_t FastBF16Kernel(const uint16_t* x, size_t n, float pivot, float scale, PairCounter* pairs,
                      SliceCounter* slices, FloatCounter* outside, Partial* out, bool* all_finite) {
  return FastInto<LoadBF16>(x, n, pivot, scale, pairs, slices, outside, out, all_finite);
}

// The largest bits without the sign, of float32 (DU32) or bfloat16 (DU16).
template <class DU>
HWY_INLINE uint32_t LargestMagnitude(DU du, const void* data, size_t n) {
  using T = hn::TFromD<DU>;
  const auto* x = static_cast<const T*>(data);
  const size_t lanes = hn::Lanes(du);
  const T magnitude = hwy::LimitsMax<T>() >> 1;
  auto most = hn::Zero(du);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hwy::Prefetch(reinterpret_cast<const char*>(x + i) + kAhead);
    most = hn::Max(most, hn::And(hn::LoadU(du, x + i), hn::Set(du, magnitude)));
  }
  T r = hn::GetLane(hn::MaxOfLanes(du, most));
  for (; i < n; ++i) {
    T bits;
    std::memcpy(&bits, x + i, sizeof bits);
    r = HWY_MAX(r, static_cast<T>(bits & magnitude));
  }
  return r;
}

uint32_t AbsMaxF32Kernel(const float* x, size_t n) { return LargestMagnitude(DU32(), x, n); }
uint32_t AbsMaxBF16Kernel(const uint16_t* x, size_t n) { return LargestMagnitude(DU16(), x, n) << 16; }

void CountInWindowKernel(const float* x, size_t n, SliceCounter* slices, FloatCounter* outside) {
  const D32 d;
  const DU32 du;
  const DI32 di;
  const size_t lanes = hn::Lanes(d);
  const size_t step = 4 * lanes;
  const VU16 base = hn::Set(DU16(), slices->base);
  const uint32_t first_in = (uint32_t{slices->base} + 1) << LoadF32::kCellShift;
  const uint32_t first_out = first_in + (uint32_t{PairCounter::kWindow} << LoadF32::kCellShift);
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
      if (with_below != 0) CountBelow<LoadF32>(block, listed, with_below, step, first_in, outside);
      block = at;
      with_below = 0;
    }
    if (i + step > n) {  // filled up with zeros, which are counted and thrown away
      std::memcpy(tail, at, (n - i) * sizeof *x);
      at = tail;
    }
    const Two two[2] = {LoadF32::Load(at), LoadF32::Load(at + 2 * lanes)};
    const VU16 ids = hn::Or(WindowId(two[0].top, base), hn::ShiftLeft<8>(WindowId(two[1].top, base)));
    hn::StoreU(hn::BitCast(DU8(), ids), DU8(), slices->ids + made);
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
      if (below) CountRange<LoadF32>(at, step, 1, first_in, outside);
    } else {
      listed[with_below] = static_cast<uint8_t>((i - static_cast<size_t>(block - x)) / step);
      with_below += below ? 1 : 0;
    }
    if (HWY_UNLIKELY(!hn::AllFalse(di, hn::Gt(largest, last_in)))) {
      CountRange<LoadF32>(at, step, first_out, 0x7f800000u, outside);
    }
    made += step;
    if (made == SliceCounter::kMost) {
      slices->Count(made);
      made = 0;
    }
  }
  if (with_below != 0) CountBelow<LoadF32>(block, listed, with_below, step, first_in, outside);
  if (made != 0) slices->Count(made);
}

}  // namespace tdbg::stats::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tdbg::stats {

HWY_EXPORT(FastF32Kernel);
HWY_EXPORT(FastBF16Kernel);
HWY_EXPORT(AbsMaxF32Kernel);
HWY_EXPORT(AbsMaxBF16Kernel);
HWY_EXPORT(CountInWindowKernel);

size_t FastF32(const float* x, size_t n, float pivot, float scale, PairCounter* pairs, SliceCounter* slices,
               FloatCounter* outside, Partial* out, bool* all_finite) {
  return HWY_DYNAMIC_DISPATCH(FastF32Kernel)(x, n, pivot, scale, pairs, slices, outside, out, all_finite);
}
size_t FastBF16(const uint16_t* x, size_t n, float pivot, float scale, PairCounter* pairs,
                SliceCounter* slices, FloatCounter* outside, Partial* out, bool* all_finite) {
  return HWY_DYNAMIC_DISPATCH(FastBF16Kernel)(x, n, pivot, scale, pairs, slices, outside, out, all_finite);
}
float AbsMax(const float* x, size_t n) {
  return std::bit_cast<float>(HWY_DYNAMIC_DISPATCH(AbsMaxF32Kernel)(x, n));
}
float AbsMax(const uint16_t* x, size_t n) {
  return std::bit_cast<float>(HWY_DYNAMIC_DISPATCH(AbsMaxBF16Kernel)(x, n));
}
void CountInWindow(const float* x, size_t n, SliceCounter* slices, FloatCounter* outside) {
  HWY_DYNAMIC_DISPATCH(CountInWindowKernel)(x, n, slices, outside);
}

}  // namespace tdbg::stats
#endif
