// The mark of a batch (the batch_fingerprint series).
#pragma once

#include <cstdint>
#include <optional>

namespace tdbg::python {

/// XXH3 of 64 evenly spread pieces of 64 bytes (of everything, where that is less): the same batch has the
/// same mark, and looking at it costs a microsecond whatever its size. 32 bits, so that a double holds it
/// exactly.
uint32_t Fingerprint(uintptr_t pointer, uint64_t bytes);
/// The same of memory that may have been taken away: a mapped file that another process has cut short, pages
/// that the training has protected; none where that is so. Its ends are asked for, because files are cut
/// there, and a tensor is protected whole: two system calls, 0.6 us. Not for what is smaller than a page,
/// which shares it with others.
std::optional<uint32_t> FingerprintIfThere(uintptr_t pointer, uint64_t bytes);

}  // namespace tdbg::python
