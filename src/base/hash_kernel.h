// XXH3 as hash.cc and hash_avx2.cc compile it, each for its own instructions. Raw pointers and nothing of the
// standard library's templates: what the linker folds must not hold AVX2 where the processor has none.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <xxhash.h>

namespace tdbg::base {

/// \pre `bytes` are many: of few the call costs more than it saves
struct HashKernel {
  uint64_t (*hash)(const void* from, size_t bytes);
  uint64_t (*copy_and_hash)(void* to, const void* from, size_t bytes);
};

/// Null where it was not compiled in or the processor does not have it.
const HashKernel* Avx2HashKernel();

namespace {

// Half of a 32 KiB L1, so that a piece is still there when it is hashed.
constexpr size_t kPieceBytes = 16 << 10;

[[maybe_unused]] uint64_t HashMany(const void* from, size_t bytes) { return XXH3_64bits(from, bytes); }

/// The copy is hashed, never the source: a tensor that another thread still writes to must not give a
/// checksum that its stored bytes do not have.
[[maybe_unused]] uint64_t CopyAndHashMany(void* to, const void* from, size_t bytes) {
  XXH3_state_t state;  // on the stack: no allocation on the hot path
  XXH3_64bits_reset(&state);
  for (size_t done = 0; done < bytes;) {
    const size_t piece = bytes - done < kPieceBytes ? bytes - done : kPieceBytes;
    memcpy(static_cast<char*>(to) + done, static_cast<const char*>(from) + done, piece);
    XXH3_64bits_update(&state, static_cast<const char*>(to) + done, piece);
    done += piece;
  }
  return XXH3_64bits_digest(&state);
}

}  // namespace
}  // namespace tdbg::base
