// Counting 7-bit ids without counters in memory: 512 of them are turned into seven 512-bit planes (plane j
// holds bit j of every id), an id's members are the AND of the planes or their complements, and a population
// count says how many there are. 64 ids together cost about as much as 35 increments of a counter.
#pragma once

#include <cstddef>
#include <cstdint>

#include "stats/counters.h"

namespace tdbg::stats {

/// An id is a sign and a place in a window of 127 buckets (31.75 octaves), in a byte of its own:
///
///   7      6     0
///   | sign | place |      place 127: not in the window, counted and thrown away
///
/// Most elements are in the window's upper quarter, within 2^-8 of the largest value. Ids of the one below
/// are gathered until there are enough for a count of their own, so that every block pays for one quarter
/// only. What is deeper, one in a hundred of real gradients and next to nothing of anything else, is counted
/// one by one.
struct SliceCounter {
  static constexpr int kWindow = 127;
  static constexpr size_t kBlock = 512;
  static constexpr size_t kMax = 4 * kBlock;
  /// Gathered ids that are counted together.
  static constexpr size_t kLow = 2 * kBlock;
  /// The counts are 16 bits wide: fold after so many ids, before a third more have been counted.
  static constexpr uint32_t kFoldAfter = 48 << 10;

  /// Of four ids each, the lowest in the lowest 16 bits; to be added up over the eight. First those of the
  /// positive sign; the upper half of the window. Empty between tensors.
  alignas(64) uint64_t lanes[32][8];
  alignas(64) uint8_t ids[kMax];              ///< filled by the caller
  alignas(64) uint8_t low[kLow + kMax + 64];  ///< ids below the upper quarter that wait
  uint32_t deep[2][64];                       ///< [sign][place]: the lower half of the window
  uint32_t low_count;
  uint32_t counted;  ///< since the last fold
  uint16_t base;     ///< WindowBase's
  uint8_t used;      ///< bit h: some of lanes 8h..8h+7 were counted
  bool any_deep;

  /// Counts the first `n` of `ids`. \pre n <= kMax, n % 64 == 0, counted + n < 65536. Overwrites up to
  /// kBlock ids behind them.
  void Count(size_t n);
  /// How many ids were not in the window: zeros, and what is below or above it. Since the last fold.
  uint64_t CountedOutside() const {
    uint64_t sum = 0;
    for (int i = 0; i < 8; ++i) sum += (lanes[15][i] >> 48) + (lanes[31][i] >> 48);
    return sum;
  }
};

/// Whether this processor has the instructions (AVX-512 with VBMI, VBMI2, VPOPCNTDQ and GFNI: Intel since
/// 2019, AMD since 2022) and it is not switched off. Elsewhere Count must not be called.
bool HaveSliceCounter();
/// Switches it off, or on again, for a test or a benchmark.
void AllowSliceCounter(bool allow);

/// Moves all counts to `counter` and leaves `slices` empty.
void Fold(SliceCounter* slices, FloatCounter* counter);

}  // namespace tdbg::stats
