// The element types: how they are loaded, what number an element is, and which bin of the histogram it falls into.
#pragma once

#include "cuda/device/platform.cuh"

namespace tdbg::cuda {
namespace device {

TDBG_DEVICE float Infinity() { return FloatOf(0x7f800000u); }
TDBG_DEVICE double WideInfinity() { return DoubleOf(0x7ff0000000000000u); }
TDBG_DEVICE double NotANumber() { return DoubleOf(0x7ff8000000000000u); }
TDBG_DEVICE bool IsFinite(double x) { return fabs(x) < WideInfinity(); }
/// 2^e. \pre -1022 <= e <= 1023
TDBG_DEVICE double PowerOfTwo(int e) { return DoubleOf(static_cast<uint64_t>(e + 1023) << 52); }
/// \pre -126 <= e <= 127
TDBG_DEVICE float FloatPowerOfTwo(int e) { return FloatOf(static_cast<uint32_t>(e + 127) << 23); }
/// x 2^e for any e: in three factors, each of which a double holds.
TDBG_SHARED_CODE double Scale(double x, int e) {
  TDBG_NO_UNROLL
  for (int i = 0; i < 3 && e != 0; ++i) {
    const int part = e > 1000 ? 1000 : e < -1000 ? -1000 : e;
    x *= PowerOfTwo(part);
    e -= part;
  }
  if (e == 0 || x == 0) return x;
  return e < 0 ? 0 : x * WideInfinity();  // 3,000 octaves away nothing is left, or nothing fits
}
/// The exponent of a finite double that is not 0.
TDBG_DEVICE int ExponentOf(double x) {
  const uint64_t bits = BitsOf(x) & 0x7fffffffffffffffu;
  const int field = static_cast<int>(bits >> 52);
  return field != 0 ? field - 1023 : 63 - LeadingZeros(bits) - 1074;
}

// ---- Types that are summed in float32 ------------------------------------------------------------------------------

/// Least and greatest element, and the least |x| that is not 0 as bits of a float, less 1 (none: all ones).
struct FloatExtremes {
  float min = Infinity(), max = -Infinity();
  uint32_t small = 0xffffffffu;

  TDBG_DEVICE void Take(float x) {
    min = fminf(min, x);
    max = fmaxf(max, x);
    const uint32_t s = (BitsOf(x) & 0x7fffffffu) - 1;
    small = s < small ? s : small;
  }
};

struct Float32 {
  using Word = float;
  static constexpr uint32_t kPerVector = 4;
  static constexpr uint32_t kUnroll = 6;  ///< vectors under way; a divisor of those that a thread has of a whole chunk
  static TDBG_DEVICE float Widen(float x) { return x; }
  static TDBG_DEVICE void Unpack(const Vector16& v, float* x) {
    TDBG_UNROLL
    for (int i = 0; i < 4; ++i) x[i] = FloatOf(v.w[i]);
  }
  struct Extremes {
    FloatExtremes e;
    TDBG_DEVICE void Take(const Vector16& v) {
      TDBG_UNROLL
      for (int i = 0; i < 4; ++i) e.Take(FloatOf(v.w[i]));
    }
    TDBG_DEVICE void TakeOne(float x) { e.Take(x); }
    TDBG_DEVICE FloatExtremes Get() const { return e; }
  };
};

/// Extrema of 16-bit types are kept two at a time, each half of a word for itself.
template <class Type>
struct PairExtremes {
  uint32_t min = Type::kInfinities, max = Type::kInfinities | 0x80008000u, small = 0xffffffffu;

  TDBG_DEVICE void Take(const Vector16& v) {
    TDBG_UNROLL
    for (int i = 0; i < 4; ++i) TakePair(v.w[i]);
  }
  TDBG_DEVICE void TakeOne(uint16_t x) { TakePair(static_cast<uint32_t>(x) << 16 | x); }
  TDBG_DEVICE void TakePair(uint32_t pair) {
    min = Type::Min(min, pair);
    max = Type::Max(max, pair);
    small = MinOfOneLess(pair & 0x7fff7fffu, small);
  }
  TDBG_DEVICE FloatExtremes Get() const {
    FloatExtremes e;
    TDBG_UNROLL
    for (int i = 0; i < 2; ++i) {
      e.min = fminf(e.min, Type::Widen(static_cast<uint16_t>(min >> 16 * i)));
      e.max = fmaxf(e.max, Type::Widen(static_cast<uint16_t>(max >> 16 * i)));
      const uint32_t s = small >> 16 * i & 0xffffu;
      const uint32_t wide = s == 0xffffu ? 0xffffffffu : BitsOf(Type::Widen(static_cast<uint16_t>(s + 1))) - 1;
      e.small = wide < e.small ? wide : e.small;
    }
    return e;
  }
};

struct BFloat16 {
  using Word = uint16_t;
  static constexpr uint32_t kPerVector = 8;
  static constexpr uint32_t kUnroll = 3;
  static constexpr uint32_t kInfinities = 0x7f807f80u;
  static TDBG_DEVICE float Widen(uint16_t x) { return FloatOf(static_cast<uint32_t>(x) << 16); }
  static TDBG_DEVICE void Unpack(const Vector16& v, float* x) {
    TDBG_UNROLL
    for (int i = 0; i < 4; ++i) {
      x[2 * i] = FloatOf(ToUpperHalf(v.w[i]));
      x[2 * i + 1] = FloatOf(v.w[i] & 0xffff0000u);
    }
  }
  static TDBG_DEVICE uint32_t Min(uint32_t a, uint32_t b) { return MinBFloats(a, b); }
  static TDBG_DEVICE uint32_t Max(uint32_t a, uint32_t b) { return MaxBFloats(a, b); }
  using Extremes = PairExtremes<BFloat16>;
};

struct Float16 {
  using Word = uint16_t;
  static constexpr uint32_t kPerVector = 8;
  static constexpr uint32_t kUnroll = 3;
  static constexpr uint32_t kInfinities = 0x7c007c00u;
  static TDBG_DEVICE float Widen(uint16_t x) { return HalfToFloat(x); }
  static TDBG_DEVICE void Unpack(const Vector16& v, float* x) {
    TDBG_UNROLL
    for (int i = 0; i < 4; ++i) {
      x[2 * i] = HalfToFloat(v.w[i] & 0xffffu);
      x[2 * i + 1] = HalfToFloat(v.w[i] >> 16);
    }
  }
  static TDBG_DEVICE uint32_t Min(uint32_t a, uint32_t b) { return MinHalves(a, b); }
  static TDBG_DEVICE uint32_t Max(uint32_t a, uint32_t b) { return MaxHalves(a, b); }
  using Extremes = PairExtremes<Float16>;
};

// ---- Types of one byte ---------------------------------------------------------------------------------------------

/// A float8: `exponent_bits` of exponent with `bias` and what is left of seven bits of mantissa. The types whose name
/// ends in "fn" have no infinities, one NaN of each sign; "fnuz" one NaN, where others have -0.
TDBG_DEVICE float Float8(uint32_t bits, int exponent_bits, int bias, bool infinities, bool unsigned_zero) {
  const int mantissa_bits = 7 - exponent_bits;
  const uint32_t magnitude = bits & 0x7fu;
  const uint32_t mantissa = magnitude & ((1u << mantissa_bits) - 1);
  const int exponent = static_cast<int>(magnitude >> mantissa_bits);
  if (unsigned_zero ? bits == 0x80u : !infinities && magnitude == 0x7fu) return FloatOf(0x7fc00000u);
  float x = 0;
  if (infinities && exponent == (1 << exponent_bits) - 1) {
    x = mantissa != 0 ? FloatOf(0x7fc00000u) : Infinity();
  } else if (exponent == 0) {
    x = static_cast<float>(mantissa) * FloatPowerOfTwo(1 - bias - mantissa_bits);
  } else {
    x = static_cast<float>((1u << mantissa_bits) + mantissa) * FloatPowerOfTwo(exponent - bias - mantissa_bits);
  }
  return (bits & 0x80u) != 0 ? -x : x;
}

/// What a byte of this type means.
TDBG_DEVICE float ByteToFloat(uint32_t code, uint32_t bits) {
  switch (code) {
    case kBool:
      return bits != 0 ? 1.0f : 0.0f;
    case kInt8:
      return static_cast<float>(static_cast<int32_t>(bits ^ 0x80u) - 128);
    case kFloat8E4M3FN:
      return Float8(bits, 4, 7, false, false);
    case kFloat8E5M2:
      return Float8(bits, 5, 15, true, false);
    case kFloat8E4M3FNUZ:
      return Float8(bits, 4, 8, false, true);
    case kFloat8E5M2FNUZ:
      return Float8(bits, 5, 16, false, true);
    default:
      return static_cast<float>(bits);
  }
}

// ---- Any type --------------------------------------------------------------------------------------------------------

/// Element i as a number. The type is the same for a block, so that the choice costs a branch that all take; fast paths
/// have it made by the compiler. `kBytes`: types of one byte, too.
template <bool kBytes>
TDBG_DEVICE double NumberAt(const unsigned char* data, uint32_t code, uint64_t i) {
  switch (code) {
    case kFloat32:
      return reinterpret_cast<const float*>(data)[i];
    case kBFloat16:
      return BFloat16::Widen(reinterpret_cast<const uint16_t*>(data)[i]);
    case kFloat16:
      return Float16::Widen(reinterpret_cast<const uint16_t*>(data)[i]);
    case kFloat64:
      return reinterpret_cast<const double*>(data)[i];
    case kUInt16:
      return reinterpret_cast<const uint16_t*>(data)[i];
    case kInt16:
      return reinterpret_cast<const int16_t*>(data)[i];
    case kUInt32:
      return reinterpret_cast<const uint32_t*>(data)[i];
    case kInt32:
      return reinterpret_cast<const int32_t*>(data)[i];
    case kUInt64:
      return static_cast<double>(reinterpret_cast<const uint64_t*>(data)[i]);
    case kInt64:
      return static_cast<double>(reinterpret_cast<const int64_t*>(data)[i]);
    case kComplex64: {
      const auto* p = reinterpret_cast<const float*>(data) + 2 * i;
      const double re = p[0], im = p[1];
      if (fabs(re) == WideInfinity() || fabs(im) == WideInfinity()) return WideInfinity();
      return sqrt(re * re + im * im);  // the squares of floats are exact
    }
    case kComplex128: {
      const auto* p = reinterpret_cast<const double*>(data) + 2 * i;
      return hypot(p[0], p[1]);
    }
  }
  if constexpr (kBytes) return ByteToFloat(code, data[i]);
  return 0;
}

// ---- Bins ----------------------------------------------------------------------------------------------------------

// A block counts in shared memory, floats by their eleven leading bits: sign, exponent, two of the mantissa.
inline constexpr uint32_t kSlots = 2048;
/// Behind them those of the subnormal floats, by leading bit and the two after it.
inline constexpr uint32_t kSubnormalsOfASign = 23 * 4;
inline constexpr uint32_t kTable = kSlots + 2 * kSubnormalsOfASign;

/// k = 4e + m of a finite double that is not 0 (stats/buckets.h).
TDBG_DEVICE int KOf(double x) {
  const uint64_t bits = BitsOf(x) & 0x7fffffffffffffffu;
  const int field = static_cast<int>(bits >> 50);
  if (field >= 4) return field - 4 * 1023;
  const int lead = 63 - LeadingZeros(bits);
  const int quarter = static_cast<int>((lead >= 2 ? bits >> (lead - 2) : bits << (2 - lead)) & 3u);
  return 4 * (lead - 1074) + quarter;
}

/// Says that there is something in one of the 32 bins of a group. Thousands of blocks come with the same few groups, and
/// atomic operations on one word wait for each other: so who finds it said already, says nothing.
TDBG_DEVICE void MarkGroup(uint32_t* table, uint32_t group) {
  const uint32_t bit = 1u << (group & 31u);
  if ((*static_cast<volatile uint32_t*>(&table[group >> 5]) & bit) == 0) atomicOr(&table[group >> 5], bit);
}

/// Adds to one bin in the device's memory.
TDBG_DEVICE void CountGlobally(uint32_t* table, const Bins& bins, uint32_t bin, uint32_t n) {
  atomicAdd(&table[bins.masks + bin], n);
  MarkGroup(table, bin >> 5);
}

}  // namespace device
}  // namespace tdbg::cuda
