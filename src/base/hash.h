// XXH3-64 (seed 0), the checksum of everything we store.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tdbg::base {

uint64_t Hash64(std::span<const std::byte> bytes);
/// Copies and hashes in one walk, in cache-sized pieces: the hash then costs no second trip to memory.
uint64_t CopyAndHash64(std::byte* to, std::span<const std::byte> from);
/// 16 lower-case hex digits.
std::string Hex64(uint64_t value);
bool ParseHex64(const std::string& text, uint64_t* value);

}  // namespace tdbg::base
