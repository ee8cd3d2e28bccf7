// CRC-32C (Castagnoli, reflected polynomial 0x82F63B78), and the masked form that record files store.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tdbg::tfevents {

/// With the processor's instruction where it has one (SSE 4.2), else by table.
uint32_t Crc32c(std::span<const std::byte> bytes);

/// What a record stores instead of the checksum itself: a checksum over bytes that contain their own checksum
/// says little, and records lie inside records.
constexpr uint32_t MaskCrc(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; }
inline uint32_t MaskedCrc32c(std::span<const std::byte> bytes) { return MaskCrc(Crc32c(bytes)); }

namespace internal {
/// The way without the instruction, for the test that compares both.
uint32_t Crc32cByTable(std::span<const std::byte> bytes);
}  // namespace internal

}  // namespace tdbg::tfevents
