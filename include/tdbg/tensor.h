// Tensors as tdbg sees them: borrowed views of somebody else's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace tdbg {

/// Element types. Stored in files; never renumber.
/// Of complex numbers the statistics are those of their magnitudes. float8 types in host memory, and texts,
/// are kept as raw values and have none (on a GPU float8 has: docs/gpu.md).
enum class DType : uint8_t {
  kInvalid = 0,
  kBool = 1,
  kUInt8 = 2,
  kInt8 = 3,
  kUInt16 = 4,
  kInt16 = 5,
  kUInt32 = 6,
  kInt32 = 7,
  kUInt64 = 8,
  kInt64 = 9,
  kFloat16 = 10,
  kBFloat16 = 11,
  kFloat32 = 12,
  kFloat64 = 13,
  kComplex64 = 14,
  kComplex128 = 15,
  kFloat8E4M3FN = 16,
  kFloat8E5M2 = 17,
  kFloat8E4M3FNUZ = 18,
  kFloat8E5M2FNUZ = 19,
  /// One code point (UTF-32) of a text; the last axis is the width of the texts, filled up with 0: the memory
  /// of a NumPy array of type "U".
  kText = 20,
};

/// Bytes of one element; 0 for kInvalid.
size_t ItemSize(DType dtype);
/// NumPy's name where it has one ("float32"), else the framework's ("bfloat16", "float8_e4m3fn").
std::string_view DTypeName(DType dtype);
std::optional<DType> DTypeFromName(std::string_view name);
/// True for the types `Summarize` accepts: bool, integers, float16/bfloat16/float32/float64.
bool HasStatistics(DType dtype);

/// A borrowed, possibly strided tensor in host memory.
///
/// Ownership: borrows `data`, `shape` and `strides` for the duration of the call it is passed to.
/// Rank 0 (one element) and empty tensors (a zero in shape; data may be null) are valid.
struct TensorView {
  const void* data = nullptr;
  DType dtype = DType::kInvalid;
  std::span<const int64_t> shape = {};    ///< elements per axis, outermost first; none negative
  std::span<const int64_t> strides = {};  ///< in elements, may be 0 or negative; empty means C order

  int64_t element_count() const {
    int64_t n = 1;
    for (const int64_t d : shape) n *= d;
    return n;
  }
  size_t byte_count() const { return static_cast<size_t>(element_count()) * ItemSize(dtype); }
  /// C order without gaps (axes of length 1 may have any stride).
  bool is_contiguous() const;
};

/// Copies `view` to `out` in C order. \pre out has view.byte_count() bytes and does not overlap.
void CopyContiguous(const TensorView& view, std::byte* out);

}  // namespace tdbg
