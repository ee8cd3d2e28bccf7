#include "base/hash.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>

namespace tdbg::base {
namespace {

// Half of a 32 KiB L1, so that a piece is still there when it is hashed.
constexpr size_t kPieceBytes = 16 << 10;

}  // namespace

uint64_t Hash64(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

uint64_t CopyAndHash64(std::byte* to, std::span<const std::byte> from) {
  if (from.empty()) return XXH3_64bits(nullptr, 0);
  // The copy is hashed, never the source: a tensor that another thread still writes to must not give a
  // checksum that its stored bytes do not have.
  if (from.size() <= kPieceBytes) {
    std::memcpy(to, from.data(), from.size());
    return XXH3_64bits(to, from.size());
  }
  XXH3_state_t state;  // on the stack: no allocation on the hot path
  XXH3_64bits_reset(&state);
  for (size_t done = 0; done < from.size();) {
    const size_t piece = std::min(kPieceBytes, from.size() - done);
    std::memcpy(to + done, from.data() + done, piece);
    XXH3_64bits_update(&state, to + done, piece);
    done += piece;
  }
  return XXH3_64bits_digest(&state);
}

std::string Hex64(uint64_t value) {
  std::string text(16, '0');
  for (int i = 15; i >= 0; --i, value >>= 4) text[static_cast<size_t>(i)] = "0123456789abcdef"[value & 15];
  return text;
}

bool ParseHex64(const std::string& text, uint64_t* value) {
  if (text.size() != 16) return false;
  uint64_t parsed = 0;
  for (const char c : text) {
    // Lower case only: one checksum has one spelling, so files can be compared as text.
    if (c >= '0' && c <= '9') {
      parsed = parsed << 4 | static_cast<uint64_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      parsed = parsed << 4 | static_cast<uint64_t>(c - 'a' + 10);
    } else {
      return false;
    }
  }
  *value = parsed;
  return true;
}

}  // namespace tdbg::base
