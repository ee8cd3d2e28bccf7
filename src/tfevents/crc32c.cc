#include "tfevents/crc32c.h"

#include <array>

#include "base/bytes.h"

namespace tdbg::tfevents {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78u;

// Eight tables, so that eight bytes go through per turn: table[k] is the effect of a byte k places further
// on.
constexpr auto kTables = [] {
  std::array<std::array<uint32_t, 256>, 8> tables{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? kPolynomial : 0);
    tables[0][i] = crc;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (size_t i = 0; i < 256; ++i) {
      const uint32_t before = tables[k - 1][i];
      tables[k][i] = (before >> 8) ^ tables[0][before & 0xff];
    }
  }
  return tables;
}();

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t ByInstruction(std::span<const std::byte> bytes) {
  uint64_t crc = 0xffffffffu;
  const std::byte* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) crc = __builtin_ia32_crc32di(crc, base::Load<uint64_t>(at));
  auto rest = static_cast<uint32_t>(crc);
  for (; left != 0; --left, ++at) rest = __builtin_ia32_crc32qi(rest, static_cast<unsigned char>(*at));
  return ~rest;
}
#endif

}  // namespace

uint32_t internal::Crc32cByTable(std::span<const std::byte> bytes) {
  uint32_t crc = 0xffffffffu;
  const std::byte* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) {
    const uint64_t word = base::Load<uint64_t>(at) ^ crc;
    crc = 0;
    for (size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][(word >> (8 * k)) & 0xff];
  }
  for (; left != 0; --left, ++at) crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<uint32_t>(*at)) & 0xff];
  return ~crc;
}

uint32_t Crc32c(std::span<const std::byte> bytes) {
#if defined(__x86_64__)
  static const bool instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (instruction) return ByInstruction(bytes);
#endif
  return internal::Crc32cByTable(bytes);
}

}  // namespace tdbg::tfevents
