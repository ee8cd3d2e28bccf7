// Reading elements of one type and looking for their extremes, once per instruction set: included by files
// that Highway compiles so.

// Toggled by Highway's own guard, because each instruction set includes this file again.
#if defined(TDBG_STATS_LOADERS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TDBG_STATS_LOADERS_INL_H_
#undef TDBG_STATS_LOADERS_INL_H_
#else
#define TDBG_STATS_LOADERS_INL_H_
#endif

#include <hwy/highway.h>

#include <bit>
#include <cstddef>
#include <cstdint>

#include "stats/half-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tdbg::stats::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D64 = hn::ScalableTag<double>;
using D32 = hn::ScalableTag<float>;
using DU32 = hn::RebindToUnsigned<D32>;
using DU16 = hn::ScalableTag<uint16_t>;
using V32 = hn::Vec<D32>;
using VU32 = hn::Vec<DU32>;
using VU16 = hn::Vec<DU16>;

// Whether a block is checked for zeros. Most tensors have none, and the check is three of the fourteen
// instructions per vector: without it, a block that turns out to have a zero is processed again.
enum class Zeros { kNotExpected, kExpected, kCounted };

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
  static HWY_INLINE hn::Vec<DU> Magnitude(hn::Vec<DU> bits) {
    return hn::And(bits, hn::Set(DU(), hwy::LimitsMax<hn::TFromD<DU>>() >> 1));
  }
  /// Everything but abs_min, for which |bits| is returned, less 1 where zeros are expected: the caller has
  /// other uses for it. So with |bits|, `magnitude`.
  template <Zeros kZeros>
  HWY_INLINE hn::Vec<DU> Look(hn::Vec<DU> bits, hn::Vec<DU>* magnitude) {
    const DU du;
    const hn::RebindToSigned<DU> di;
    const auto one = hn::Set(du, 1);
    *magnitude = Magnitude(bits);
    signed_max = hn::BitCast(du, hn::Max(hn::BitCast(di, signed_max), hn::BitCast(di, bits)));
    unsigned_max = hn::Max(unsigned_max, bits);
    if constexpr (kZeros == Zeros::kNotExpected) return *magnitude;
    if constexpr (kZeros == Zeros::kCounted) nonzero = hn::Add(nonzero, hn::Min(*magnitude, one));
    return hn::Sub(*magnitude, one);
  }
  /// Of a block in which no zero was expected: what else Look would have done.
  HWY_INLINE void CountZeros(const hn::TFromD<DU>* bits, size_t n) {
    const DU du;
    const auto one = hn::Set(du, 1);
    for (size_t i = 0; i < n; i += hn::Lanes(du)) {
      const auto magnitude = Magnitude(hn::LoadU(du, bits + i));
      nonzero = hn::Add(nonzero, hn::Min(magnitude, one));
      abs_min = hn::Min(abs_min, hn::Sub(magnitude, one));
    }
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

// Two vectors of float32, and their upper halves as one vector of 16-bit lanes, in whatever order is
// cheapest: nothing here depends on it.
struct Two {
  V32 a, b;
  VU16 top;
  V32 abs_a, abs_b;  // Look's
  VU16 half;         // LoadF16's raw bits
};

HWY_INLINE VU16 UpperHalves(V32 a, V32 b) {
  const DU32 du;
  const VU32 low = hn::ShiftRight<16>(hn::BitCast(du, b));
  return hn::BitCast(DU16(), hn::OrAnd(low, hn::BitCast(du, a), hn::Set(du, 0xffff0000u)));
}

// A loader reads elements of one type. Its lane holds an element's raw bits; LaneOf is the smallest such
// magnitude that is at least a float32's, ValueOf the other way round; BitsOf are an element's as float32.
struct LoadF32 {
  using Word = float;
  using Lane = DU32;
  static constexpr int64_t kFirstNonFinite = 0x7f800000;
  static uint32_t LaneOf(uint32_t bits) { return bits; }
  static float ValueOf(uint32_t magnitude) { return std::bit_cast<float>(magnitude); }
  static uint32_t BitsOf(float x) { return std::bit_cast<uint32_t>(x); }
  static HWY_INLINE Two Load(const float* at) {
    const D32 d;
    Two r;
    r.a = hn::LoadU(d, at);
    r.b = hn::LoadU(d, at + hn::Lanes(d));
    r.top = UpperHalves(r.a, r.b);
    return r;
  }
  template <Zeros kZeros>
  static HWY_INLINE VU32 Look(Two& x, Extremes<Lane>& e) {
    VU32 abs_a, abs_b;
    const VU32 a = e.Look<kZeros>(hn::BitCast(DU32(), x.a), &abs_a);
    const VU32 b = e.Look<kZeros>(hn::BitCast(DU32(), x.b), &abs_b);
    x.abs_a = hn::BitCast(D32(), abs_a);
    x.abs_b = hn::BitCast(D32(), abs_b);
    return hn::Min(a, b);
  }
};

struct LoadBF16 {
  using Word = uint16_t;
  using Lane = DU16;
  static constexpr int64_t kFirstNonFinite = 0x7f80;
  static uint32_t LaneOf(uint32_t bits) { return (bits + 0xffff) >> 16; }
  static float ValueOf(uint32_t magnitude) { return std::bit_cast<float>(magnitude << 16); }
  static uint32_t BitsOf(uint16_t x) { return uint32_t{x} << 16; }
  static HWY_INLINE Two Load(const uint16_t* at) {
    const D32 d;
    const DU32 du;
    Two r;
    r.top = hn::LoadU(DU16(), at);
    r.a = hn::BitCast(d, hn::And(hn::BitCast(du, r.top), hn::Set(du, 0xffff0000u)));
    r.b = hn::BitCast(d, hn::ShiftLeft<16>(hn::BitCast(du, r.top)));
    return r;
  }
  template <Zeros kZeros>
  static HWY_INLINE VU16 Look(Two& x, Extremes<Lane>& e) {
    VU16 magnitude;
    const VU16 r = e.Look<kZeros>(x.top, &magnitude);
    x.abs_a = hn::Abs(x.a);
    x.abs_b = hn::Abs(x.b);
    return r;
  }
};

struct LoadF16 {
  using Word = uint16_t;
  using Lane = DU16;
  static constexpr int64_t kFirstNonFinite = 0x7c00;
  static uint32_t LaneOf(uint32_t bits) {
    constexpr uint32_t kSmallestNormal = 113u << 23;
    if (bits >= 143u << 23) return 0x7c00;
    if (bits >= kSmallestNormal) return ((bits + 0x1fff) >> 13) - (112u << 10);
    const float units = std::bit_cast<float>(bits) * 0x1p24f;
    const auto whole = static_cast<uint32_t>(units);
    return whole + (static_cast<float>(whole) < units ? 1 : 0);
  }
  static float ValueOf(uint32_t magnitude) {
    if (magnitude < 0x400) return static_cast<float>(magnitude) * 0x1p-24f;
    return std::bit_cast<float>((magnitude << 13) + ((magnitude < 0x7c00 ? 112u : 224u) << 23));
  }
  static uint32_t BitsOf(uint16_t x) {
    const uint32_t sign = uint32_t{x} >> 15 << 31;
    return std::bit_cast<uint32_t>(ValueOf(x & 0x7fffu)) | sign;
  }
  static HWY_INLINE Two Load(const uint16_t* at) {
    Two r;
    r.half = hn::LoadU(DU16(), at);
    r.a = WidenF16(at);
    r.b = WidenF16(at + hn::Lanes(D32()));
    r.top = UpperHalves(r.a, r.b);
    return r;
  }
  template <Zeros kZeros>
  static HWY_INLINE VU16 Look(Two& x, Extremes<Lane>& e) {
    VU16 magnitude;
    const VU16 r = e.Look<kZeros>(x.half, &magnitude);
    x.abs_a = hn::Abs(x.a);
    x.abs_b = hn::Abs(x.b);
    return r;
  }
};

}  // namespace tdbg::stats::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
