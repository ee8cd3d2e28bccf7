#include "base/hash.h"

#include <algorithm>
#include <new>

#include "base/hash_kernel.h"

namespace tdbg::base {
namespace {

// Below, going through a pointer costs as much as wider registers save.
constexpr size_t kManyBytes = 1024;

const HashKernel& Kernel() {
  static constexpr HashKernel kPlain = {&HashMany, &Update};
  static const HashKernel* const kernel = Avx2HashKernel() != nullptr ? Avx2HashKernel() : &kPlain;
  return *kernel;
}

}  // namespace

uint64_t Hash64(std::span<const std::byte> bytes) {
  if (bytes.size() < kManyBytes) return XXH3_64bits(bytes.data(), bytes.size());
  return Kernel().hash(bytes.data(), bytes.size());
}

uint64_t CopyAndHash64(std::byte* to, std::span<const std::byte> from) {
  CopyingHash copy(to);
  copy.Put(from);
  return copy.Finish();
}

void CopyingHash::Put(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (filled_ == sizeof(piece_)) Flush();
    const size_t n = std::min(bytes.size(), sizeof(piece_) - filled_);
    memcpy(piece_ + filled_, bytes.data(), n);
    filled_ += n;
    bytes = bytes.subspan(n);
  }
}

void CopyingHash::Flush() {
  static_assert(sizeof(XXH3_state_t) <= sizeof(state_) && alignof(XXH3_state_t) <= 64);
  if (!streams_) XXH3_64bits_reset(new (state_) XXH3_state_t);
  streams_ = true;
  Kernel().update(state_, piece_, filled_);
  memcpy(to_, piece_, filled_);
  to_ += filled_;
  filled_ = 0;
}

uint64_t CopyingHash::Finish() {
  if (streams_) {
    Flush();
    return XXH3_64bits_digest(std::launder(reinterpret_cast<const XXH3_state_t*>(state_)));
  }
  if (filled_ != 0) memcpy(to_, piece_, filled_);
  return Hash64({piece_, filled_});
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
