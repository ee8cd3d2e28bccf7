// Elements in a wider type that says the same: for files and readers that do not know the narrow one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tdbg/tensor.h"

namespace tdbg {

/// The value of one float8 element; exact. \pre `dtype` is one of the four float8 types
float Float8ToFloat(DType dtype, uint8_t bits);
inline float BFloat16ToFloat(uint16_t bits) {
  const uint32_t word = uint32_t{bits} << 16;
  return __builtin_bit_cast(float, word);
}
/// The value of an IEEE half; exact.
float HalfToFloat(uint16_t bits);

/// The type in which NumPy can hold every value of `dtype`: float32 for bfloat16 and the float8 types, else
/// itself.
DType NumpyDType(DType dtype);

/// The elements of `view` as C-ordered bytes of type `to`. Exact for every pair below, which are the accepted
/// ones: a type to itself; bfloat16, float8 -> float32; int8, int16, uint8, uint16 -> int32; uint32 -> int64;
/// uint64 -> int64 (values must fit, see LargestUInt64) or float64 (rounded); complex64 -> complex128.
/// \pre the pair is one of those
std::vector<std::byte> Widen(const TensorView& view, DType to);
/// The largest element. \pre view.dtype is kUInt64
uint64_t LargestUInt64(const TensorView& view);

}  // namespace tdbg
