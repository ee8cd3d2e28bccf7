// Counter tables of the histogram. All of them are zero between tensors: emptied by their reader,
// and only where something was counted, because a step has hundreds of tensors of a few hundred
// elements and clearing 128 KiB for each would cost more than counting them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tdbg/summary.h"

namespace tdbg::stats {

/// float32 and all that widens to it exactly. A value's cell is the top 11 bits of its float32:
///
///   | sign | exponent, 8 bits | 2 bits of mantissa | = one bucket, but for exponents 0 and 255
///
/// Exponent 255 (NaN, infinity) and 0 (zero, subnormals) are counted without asking and never read.
struct FloatCounter {
  static constexpr int kCells = 2048;
  static constexpr int kFirstNormal = 4;  ///< of the cells of one sign
  static constexpr int kFirstNonFinite = 1020;
  /// Four copies of each: with one, each of several equal values would wait for the previous store.
  uint32_t cells[kCells][4];
  uint64_t folded[kCells];        ///< from the counters of ids in a window
  uint64_t subnormal[2][4 * 23];  ///< [sign][k - 4 * -149]
  uint64_t outside_count;         ///< elements that missed the window, for the caller's use
  int folded_from, folded_to;     ///< the places of either sign, [from, to), where `folded` may hold some
  bool any_single;                ///< some of `cells` are
  bool any_subnormal;

  void AddSubnormal(uint32_t bits);
  /// Widened bits of a finite, non-zero value.
  void Add(uint32_t bits, size_t turn) {
    if ((bits & 0x7fffffffu) < 0x00800000u) {
      AddSubnormal(bits);
    } else {
      ++cells[bits >> 21][turn & 3];
      any_single = true;
    }
  }
  void WillFold(int from, int to) {
    folded_from = folded_to == 0 || from < folded_from ? from : folded_from;
    folded_to = to > folded_to ? to : folded_to;
  }
};

/// Counts a dense block. `with_subnormals`: the block may hold some.
void CountFloats(const float* x, size_t n, bool with_subnormals, FloatCounter* counter);

/// float64 and the wide integers: the top 14 bits, two of each.
struct DoubleCounter {
  static constexpr int kCells = 16384;
  static constexpr int kFirstNormal = 4;
  uint32_t cells[kCells][2];
  uint64_t subnormal[2][4 * 52];  ///< [sign][k - 4 * -1074]
  bool any_subnormal;
};

void CountDoubles(const double* x, size_t n, bool with_subnormals, DoubleCounter* counter);

/// Large float tensors: two elements per increment.
///
/// An 8-bit id is a sign and a place in a window of 127 buckets (31.75 octaves); place 127 means "not in the
/// window" (zeros, NaN, too small, too large) and its count is thrown away. The ids of two elements make one
/// index:
///
///   15       8 7        0
///   | id of b | id of a |      id = | sign | 7 bits: min(cell - base, unsigned, 127) |
///
/// whose bits 4 to 7 are then XORed with bits 8 to 11: the counters that real tensors use are few columns of
/// many rows, and would otherwise all meet in a quarter of the first-level cache (half the speed).
///
/// A window of half as many buckets needs a quarter of the counters, and left one in a hundred elements of a
/// heavy-tailed tensor to be counted one by one, which took a third of all time. The counters in use are
/// nearly the same ones.
struct PairCounter {
  static constexpr int kIds = 256;
  static constexpr int kIndices = kIds * kIds;
  static constexpr int kWindow = 127;
  static constexpr int kGroup = 16;  ///< ids whose counters are neighbours, whatever the other id is
  static constexpr size_t kPending = 1024;

  // Of 16 bits half as many lines are in use, and all must be folded every 262,144 elements: slower.
  using Cell = uint32_t;
  static constexpr uint64_t kFoldAfter = uint64_t{1} << 31;
  Cell tables[2][kIndices];
  /// Indices of the block before, counted while the vector units are busy with the next one: read
  /// at once they would still be in the store buffer, in wider stores than the loads (measured: half the
  /// speed).
  uint16_t indices[2][kPending];
  uint32_t pending;  ///< of indices[current]
  uint32_t current;
  uint16_t base;
  uint64_t elements;  ///< counted since the last fold

  void CountPending(size_t from);
  /// Makes at least `n` pending, of elements outside the window. \pre n <= kPending
  void FillPending(size_t n);
};

/// The `base`, the first cell, of a window of `buckets` near whose top `abs_max` is.
uint16_t WindowBase(float abs_max, int buckets);
/// Moves all counts to `counter` and leaves `pairs` empty. `abs_min` and `abs_max` are those of the non-zero
/// finite elements counted: of a tensor of few octaves most counters are known to be zero.
void Fold(PairCounter* pairs, float abs_min, float abs_max, FloatCounter* counter);

/// Overwrites `h`; multiplies counts by `times`; leaves the counters empty. The extrema are
/// those of the non-zero finite elements counted. \pre 0 < abs_min <= abs_max
void TakeFloats(FloatCounter* counter, float abs_min, float abs_max, uint64_t times, Histogram* h);
void TakeDoubles(DoubleCounter* counter, double abs_min, double abs_max, uint64_t times, Histogram* h);

}  // namespace tdbg::stats
