// Counting 7-bit ids without counters in memory: 512 of them are turned into seven 512-bit planes (plane j
// holds bit j of every id), an id's members are the AND of the planes or their complements, and a population
// count says how many there are. All 128 ids together cost about as much as 70 increments of a counter.
#pragma once

#include <cstddef>
#include <cstdint>

#include "stats/counters.h"

namespace tdbg::stats {

/// An id is that of PairCounter: a sign and a place in a window of buckets. Ids 0, 63, 64 and 127 are
/// counted and thrown away.
struct SliceCounter {
  static constexpr size_t kBlock = 512;
  static constexpr size_t kMost = 4 * kBlock;
  /// The counts are 16 bits wide: with so many counted, and at most a third of it more, it must be folded.
  static constexpr uint32_t kFoldAfter = 48 << 10;

  /// Of four ids each, the lowest in the lowest 16 bits; to be added up over the eight. Empty between
  /// tensors.
  alignas(64) uint64_t lanes[32][8];
  alignas(64) uint8_t ids[kMost];  ///< filled by the caller
  uint32_t counted;                ///< since the last fold
  uint16_t base;                   ///< WindowBase's
  uint8_t used;                    ///< bit h: some of ids 32h..32h+31 were counted

  /// Counts the first `n` of `ids`. \pre n <= kMost, counted + n < 65536. Overwrites up to kBlock ids behind
  /// them.
  void Count(size_t n);
  /// How many of ids 0 and 64 it holds: of zeros, and of what is below the window.
  uint64_t CountedLowest() const {
    uint64_t sum = 0;
    for (int i = 0; i < 8; ++i) sum += (lanes[0][i] & 0xffff) + (lanes[16][i] & 0xffff);
    return sum;
  }
};

/// Whether this processor has the instructions (AVX-512 with VBMI, VPOPCNTDQ and GFNI: Intel since 2019, AMD
/// since 2022). Elsewhere Count must not be called.
bool HaveSliceCounter();

/// Moves all counts to `counter` and leaves `slices` empty.
void Fold(SliceCounter* slices, FloatCounter* counter);

}  // namespace tdbg::stats
