#include "tensor/widen.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace tdbg {
namespace {

struct Float8Layout {
  int mantissa_bits;
  int bias;
  bool has_infinity;       // E5M2: exponent of all ones is infinity and NaN, as in IEEE 754
  bool nan_is_minus_zero;  // the UZ types: one NaN, where -0 would be
};

Float8Layout LayoutOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat8E5M2:
      return {2, 15, true, false};
    case DType::kFloat8E4M3FNUZ:
      return {3, 8, false, true};
    case DType::kFloat8E5M2FNUZ:
      return {2, 16, false, true};
    default:
      return {3, 7, false, false};
  }
}

template <typename From, typename To, typename F>
std::vector<std::byte> Each(const std::vector<std::byte>& dense, F&& convert) {
  const size_t n = dense.size() / sizeof(From);
  std::vector<std::byte> out(n * sizeof(To));
  for (size_t i = 0; i < n; ++i) {
    From from;
    std::memcpy(&from, dense.data() + i * sizeof(From), sizeof(From));
    const To to = convert(from);
    std::memcpy(out.data() + i * sizeof(To), &to, sizeof(To));
  }
  return out;
}

template <typename From, typename To>
std::vector<std::byte> Cast(const std::vector<std::byte>& dense) {
  return Each<From, To>(dense, [](From value) { return static_cast<To>(value); });
}

std::vector<std::byte> Dense(const TensorView& view) {
  std::vector<std::byte> dense(view.byte_count());
  if (!dense.empty()) CopyContiguous(view, dense.data());
  return dense;
}

}  // namespace

float Float8ToFloat(DType dtype, uint8_t bits) {
  const Float8Layout layout = LayoutOf(dtype);
  const float sign = (bits & 0x80) ? -1.0f : 1.0f;
  const int exponent_bits = 7 - layout.mantissa_bits;
  const int largest_exponent = (1 << exponent_bits) - 1;
  const int exponent = (bits >> layout.mantissa_bits) & largest_exponent;
  const int mantissa = bits & ((1 << layout.mantissa_bits) - 1);
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  if (layout.nan_is_minus_zero && bits == 0x80) return kNaN;
  if (layout.has_infinity && exponent == largest_exponent) {
    return mantissa ? kNaN : sign * std::numeric_limits<float>::infinity();
  }
  // E4M3FN: all ones is the only NaN; its exponent otherwise counts like any other.
  if (dtype == DType::kFloat8E4M3FN && (bits & 0x7f) == 0x7f) return kNaN;
  const int one = 1 << layout.mantissa_bits;
  const int significand = exponent == 0 ? mantissa : mantissa + one;
  return sign * std::ldexp(static_cast<float>(significand),
                           std::max(exponent, 1) - layout.bias - layout.mantissa_bits);
}

float HalfToFloat(uint16_t bits) {
  const float sign = (bits & 0x8000u) ? -1.0f : 1.0f;
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 0x3ff;
  if (exponent == 31) return mantissa ? std::numeric_limits<float>::quiet_NaN() : sign * HUGE_VALF;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
  return sign * std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
}

DType NumpyDType(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
    case DType::kFloat8E4M3FN:
    case DType::kFloat8E5M2:
    case DType::kFloat8E4M3FNUZ:
    case DType::kFloat8E5M2FNUZ:
      return DType::kFloat32;
    default:
      return dtype;
  }
}

uint64_t LargestUInt64(const TensorView& view) {
  const std::vector<std::byte> dense = Dense(view);
  uint64_t largest = 0;
  for (size_t i = 0; i < dense.size(); i += sizeof(uint64_t)) {
    uint64_t value;
    std::memcpy(&value, dense.data() + i, sizeof(value));
    largest = std::max(largest, value);
  }
  return largest;
}

std::vector<std::byte> Widen(const TensorView& view, DType to) {
  std::vector<std::byte> dense = Dense(view);
  const DType from = view.dtype;
  if (from == to) return dense;
  if (to == DType::kFloat32) {
    if (from == DType::kBFloat16) return Each<uint16_t, float>(dense, BFloat16ToFloat);
    if (ItemSize(from) == 1 && NumpyDType(from) == to) {
      return Each<uint8_t, float>(dense, [from](uint8_t bits) { return Float8ToFloat(from, bits); });
    }
  } else if (to == DType::kInt32) {
    if (from == DType::kInt8) return Cast<int8_t, int32_t>(dense);
    if (from == DType::kInt16) return Cast<int16_t, int32_t>(dense);
    if (from == DType::kUInt8) return Cast<uint8_t, int32_t>(dense);
    if (from == DType::kUInt16) return Cast<uint16_t, int32_t>(dense);
  } else if (to == DType::kInt64) {
    if (from == DType::kUInt32) return Cast<uint32_t, int64_t>(dense);
    if (from == DType::kUInt64) return Cast<uint64_t, int64_t>(dense);
  } else if (to == DType::kFloat64 && from == DType::kUInt64) {
    return Cast<uint64_t, double>(dense);
  } else if (to == DType::kComplex128 && from == DType::kComplex64) {
    return Cast<float, double>(dense);
  }
  std::abort();  // a pair that the header does not name
}

}  // namespace tdbg
