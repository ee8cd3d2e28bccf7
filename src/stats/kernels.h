// The vector kernels: statistics of a dense block in one pass. One copy per instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "stats/counters.h"
#include "stats/slice_counter.h"

namespace tdbg::stats {

/// A kernel's results for a block. Kernels add to it, so several blocks can share one.
/// Power sums are about the pivot that the kernel was given.
struct Partial {
  uint64_t nan = 0;
  uint64_t pos_inf = 0;
  uint64_t neg_inf = 0;
  uint64_t zero = 0;
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
  double abs_min_nonzero = std::numeric_limits<double>::infinity();
  double abs_max = 0;
  double s1 = 0;  ///< sum (x - pivot)
  double s2 = 0;
  double s3 = 0;
  double s4 = 0;
  double l1 = 0;  ///< sum |x|
};

/// The largest block a fast kernel may be given: its counters are 32 bits wide per lane and its
/// input should still be in the second-level cache when a second look is needed.
inline constexpr size_t kSuperBlock = 16384;
/// How many elements are gathered or converted at a time.
inline constexpr size_t kChunk = 2048;

/// The element of the largest magnitude, without its sign: NaN if there is one. The 16-bit types as their
/// bits.
float AbsMaxF32(const float* x, size_t n);
float AbsMaxBF16(const uint16_t* x, size_t n);
float AbsMaxF16(const uint16_t* x, size_t n);

/// Any values, sums in double; non-finite ones are counted and left out.
void ExactF32(const float* x, size_t n, double pivot, Partial* out);
/// Sums are of x * scale; extrema stay in x's own unit. `pivot` is in the scaled unit.
void ExactF64(const double* x, size_t n, double pivot, double scale, Partial* out);

/// The same of x that are finite, with a scale of 1, in half the time.
/// \return false: something is not finite, or |x| add up to more than a double holds; `out` is unchanged.
bool FastF64(const double* x, size_t n, double pivot, Partial* out);

/// Sums in float32, flushed to double after 64 additions per lane. If `pairs` or `slices` (one of them) is
/// not null the block is counted there, except for what lies outside its window, which goes to `outside`.
///
/// `expect_zeros` affects speed only: true costs an eighth; false costs that much once, if there is a zero.
///
/// \pre x * scale and pivot * scale are far from overflow, scale is a power of two.
/// \return elements looked at: n less a remainder shorter than one iteration. With a non-finite
/// element among them, *all_finite is false and `out` is unchanged (the counters are right).
size_t FastF32(const float* x, size_t n, float pivot, float scale, bool expect_zeros, PairCounter* pairs,
               SliceCounter* slices, FloatCounter* outside, Partial* out, bool* all_finite);
size_t FastBF16(const uint16_t* x, size_t n, float pivot, float scale, bool expect_zeros, PairCounter* pairs,
                SliceCounter* slices, FloatCounter* outside, Partial* out, bool* all_finite);
size_t FastF16(const uint16_t* x, size_t n, float pivot, float scale, bool expect_zeros, PairCounter* pairs,
               SliceCounter* slices, FloatCounter* outside, Partial* out, bool* all_finite);
/// The counting alone, of any values.
void CountInWindow(const float* x, size_t n, SliceCounter* slices, FloatCounter* outside);

/// Adds to counts[id] how often `tables` have met each id, as either of a pair, and empties them. Both ids of
/// every pair are in one of the `groups` of PairCounter::kGroup ids listed in `used`.
void TakePairs(PairCounter::Cell (*tables)[PairCounter::kIndices], const int* used, int groups,
               uint64_t* counts);

/// Exact widening; the choice of type is ConvertsToFloat's.
enum class Source : uint8_t { kBool, kU8, kI8, kU16, kI16, kF16, kBF16 };
void ToFloat(Source source, const void* in, size_t n, float* out);
/// 64-bit integers round to nearest.
enum class WideSource : uint8_t { kU32, kI32, kU64, kI64 };
void ToDouble(WideSource source, const void* in, size_t n, double* out);

}  // namespace tdbg::stats
