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
  /// `state`: an XXH3_state_t, which is the same in memory whatever it is updated by.
  void (*update)(void* state, const void* from, size_t bytes);
};

/// Null where it was not compiled in or the processor does not have it.
const HashKernel* Avx2HashKernel();

namespace {

[[maybe_unused]] uint64_t HashMany(const void* from, size_t bytes) { return XXH3_64bits(from, bytes); }
[[maybe_unused]] void Update(void* state, const void* from, size_t bytes) {
  XXH3_64bits_update(static_cast<XXH3_state_t*>(state), from, bytes);
}

}  // namespace
}  // namespace tdbg::base
