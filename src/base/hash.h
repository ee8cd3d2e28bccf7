// XXH3-64 (seed 0), the checksum of everything we store.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tdbg::base {

uint64_t Hash64(std::span<const std::byte> bytes);
/// Copies and hashes in one walk, in cache-sized pieces: the hash then costs no second trip to memory.
///
/// What is hashed is a piece in memory of our own, on its way from one to the other. Neither somebody who
/// still writes to the source nor somebody who writes to where the copy goes (a file that others can map)
/// makes it the checksum of bytes that were never there together.
uint64_t CopyAndHash64(std::byte* to, std::span<const std::byte> from);

/// The same for what is gathered: each piece that is put goes behind the one before it.
class CopyingHash {
 public:
  explicit CopyingHash(std::byte* to) : to_(to) {}
  void Put(std::span<const std::byte> bytes);
  /// Copies what is left. \return the hash of all that was put; to be called once
  uint64_t Finish();

 private:
  void Flush();

  std::byte* to_;
  size_t filled_ = 0;     // of the piece
  bool streams_ = false;  // there was more than a piece, and the state has what came before it
  alignas(64) std::byte piece_[8 << 10];  // a quarter of a 32 KiB L1, through which both copies go
  alignas(64) std::byte state_[576];      // xxHash's, which no header of ours brings along
};
/// 16 lower-case hex digits.
std::string Hex64(uint64_t value);
bool ParseHex64(const std::string& text, uint64_t* value);

}  // namespace tdbg::base
