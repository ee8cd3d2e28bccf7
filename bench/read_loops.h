// Plain loops that read memory once: what a pass over the same bytes is measured against.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__GNUC__) && defined(__x86_64__)
#define TDBG_CLONES __attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3"), noinline))
#else
#define TDBG_CLONES __attribute__((noinline))
#endif

typedef uint64_t Wide __attribute__((vector_size(64)));

/// Of any alignment. A type that is declared with less would do where the machine has such vectors: GCC 12
/// splits it into smaller ones elsewhere, and takes these for aligned.
inline __attribute__((always_inline)) void AddAt(const std::byte* data, Wide* sum) {
  Wide wide;
  std::memcpy(&wide, data, sizeof(wide));
  *sum ^= wide;
}

// How the loop is unrolled changes the rate by tens of percent, hence the best of several.
template <int kStreams>
inline __attribute__((always_inline)) uint64_t ReadLoop(const std::byte* data, size_t bytes) {
  Wide sum[kStreams] = {};
  const size_t n = bytes / sizeof(Wide) / kStreams;
  for (size_t i = 0; i < n; ++i) {
    for (int s = 0; s < kStreams; ++s)
      AddAt(data + (i * kStreams + static_cast<size_t>(s)) * sizeof(Wide), &sum[s]);
  }
  uint64_t r = 0;
  for (int s = 0; s < kStreams; ++s) {
    for (int j = 0; j < 8; ++j) r ^= sum[s][j];
  }
  return r;
}

TDBG_CLONES uint64_t Read1(const std::byte* data, size_t bytes) { return ReadLoop<1>(data, bytes); }
TDBG_CLONES uint64_t Read4(const std::byte* data, size_t bytes) { return ReadLoop<4>(data, bytes); }
TDBG_CLONES uint64_t Read8(const std::byte* data, size_t bytes) { return ReadLoop<8>(data, bytes); }

// Ahead by hand: hardware prefetchers stop at the end of a 4 KiB page.
template <size_t kAhead>
inline __attribute__((always_inline)) uint64_t ReadAhead(const std::byte* data, size_t bytes) {
  Wide sum = {};
  for (size_t i = 0; i < bytes; i += 256) {
    for (size_t j = 0; j < 256; j += 64) __builtin_prefetch(data + i + kAhead + j);
    for (size_t j = 0; j < 256; j += 64) AddAt(data + i + j, &sum);
  }
  return sum[0] ^ sum[1] ^ sum[2] ^ sum[3] ^ sum[4] ^ sum[5] ^ sum[6] ^ sum[7];
}

TDBG_CLONES uint64_t ReadAhead2K(const std::byte* data, size_t bytes) { return ReadAhead<2048>(data, bytes); }
TDBG_CLONES uint64_t ReadAhead8K(const std::byte* data, size_t bytes) { return ReadAhead<8192>(data, bytes); }
