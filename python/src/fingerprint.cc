#include "fingerprint.h"

#include <cstddef>
#include <cstring>

#include "base/bus_guard.h"
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

std::optional<uint32_t> FingerprintIfThere(uintptr_t pointer, uint64_t bytes) {
  constexpr uint64_t kPage = 4096;
  const auto* data = reinterpret_cast<const std::byte*>(pointer);
  if (bytes >= kPage && !(base::IsReadable(data, 1) && base::IsReadable(data + bytes - 1, 1)))
    return std::nullopt;
  return Fingerprint(pointer, bytes);
}

}  // namespace tdbg::python
