#include "fingerprint.h"

#include <cstddef>
#include <cstring>

#include "base/hash.h"

namespace tdbg::python {

uint32_t Fingerprint(uintptr_t pointer, uint64_t bytes) {
  constexpr uint64_t kPieces = 64, kPiece = 64;
  const auto* data = reinterpret_cast<const std::byte*>(pointer);
  if (bytes <= kPieces * kPiece) return static_cast<uint32_t>(tdbg::base::Hash64({data, bytes}));
  std::byte sample[kPieces * kPiece];
  for (uint64_t i = 0; i < kPieces; ++i) {
    std::memcpy(sample + i * kPiece, data + i * (bytes - kPiece) / (kPieces - 1), kPiece);
  }
  return static_cast<uint32_t>(tdbg::base::Hash64(sample));
}

}  // namespace tdbg::python
