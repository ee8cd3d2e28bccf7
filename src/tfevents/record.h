// The framing of record files (TensorBoard's event files, smdebug's): a length, its checksum, that many
// bytes, and four bytes more. All little-endian.
//
//   u64 length | u32 masked CRC-32C of those 8 bytes | length bytes | u32 footer
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tdbg/status.h"

namespace tdbg::tfevents {

inline constexpr size_t kRecordHeaderBytes = 12;
inline constexpr size_t kRecordFooterBytes = 4;
inline constexpr size_t kRecordOverheadBytes = kRecordHeaderBytes + kRecordFooterBytes;

/// What smdebug puts into the footer of every record of its `events/`: a constant (the masked CRC-32C of the
/// ten characters "0x12345678"). Its reader refuses anything else, the true checksum included.
inline constexpr uint32_t kSmdebugFooter = 0x062dc0b3u;

enum class Footer : uint8_t {
  kPayloadCrc = 1,  ///< masked CRC-32C of the payload: TensorBoard's
  kSmdebug = 2,     ///< kSmdebugFooter
};

// ---- Writing
// ---------------------------------------------------------------------------------------------------

std::array<std::byte, kRecordHeaderBytes> EncodeRecordHeader(uint64_t payload_bytes);
std::array<std::byte, kRecordFooterBytes> EncodeRecordFooter(std::span<const std::byte> payload,
                                                             Footer footer);

// ---- Reading
// ---------------------------------------------------------------------------------------------------

struct Record {
  std::span<const std::byte> payload;  ///< borrows the bytes that were given
  size_t bytes = 0;                    ///< of the whole record: the next one begins there
  Footer footer = Footer::kPayloadCrc;
};

/// How many bytes of payload follow the header. \pre header.size() == kRecordHeaderBytes
/// \error kDataLoss  the length's checksum is wrong
Result<uint64_t> DecodeRecordHeader(std::span<const std::byte> header);

/// The record at the beginning of `bytes`. Both kinds of footer are accepted and told apart; a payload whose
/// footer is smdebug's constant has no checksum to be held against.
/// \error kDataLoss  cut short, the length's checksum or the footer is wrong (says which, and what was
/// found).
Result<Record> DecodeRecord(std::span<const std::byte> bytes);

}  // namespace tdbg::tfevents
