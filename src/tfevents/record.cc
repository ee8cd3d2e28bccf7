#include "tfevents/record.h"

#include <fmt/format.h>

#include <cstring>

#include "base/bytes.h"
#include "tfevents/crc32c.h"

namespace tdbg::tfevents {

std::array<std::byte, kRecordHeaderBytes> EncodeRecordHeader(uint64_t payload_bytes) {
  std::array<std::byte, kRecordHeaderBytes> out;
  base::Store(out.data(), payload_bytes);
  base::Store(out.data() + 8, MaskedCrc32c(std::span(out).first(8)));
  return out;
}

std::array<std::byte, kRecordFooterBytes> EncodeRecordFooter(std::span<const std::byte> payload,
                                                             Footer footer) {
  std::array<std::byte, kRecordFooterBytes> out;
  base::Store(out.data(), footer == Footer::kSmdebug ? kSmdebugFooter : MaskedCrc32c(payload));
  return out;
}

Result<uint64_t> DecodeRecordHeader(std::span<const std::byte> header) {
  const auto stored = base::Load<uint32_t>(header.data() + 8);
  const uint32_t computed = MaskedCrc32c(header.first(8));
  if (stored != computed) {
    return DataLoss(
        fmt::format("the checksum of the record's length does not match ({:#010x}, {:#010x} is stored)",
                    computed, stored));
  }
  return base::Load<uint64_t>(header.data());
}

Result<Record> DecodeRecord(std::span<const std::byte> bytes) {
  if (bytes.size() < kRecordOverheadBytes) {
    return DataLoss(
        fmt::format("a record of {} bytes: at least {} are needed", bytes.size(), kRecordOverheadBytes));
  }
  TDBG_ASSIGN_OR_RETURN(const uint64_t length, DecodeRecordHeader(bytes.first(kRecordHeaderBytes)));
  // Compared before anything is added: the length is a stranger's.
  if (length > bytes.size() - kRecordOverheadBytes) {
    return DataLoss(
        fmt::format("the record says {} bytes, {} are there", length, bytes.size() - kRecordOverheadBytes));
  }
  Record record;
  record.payload = bytes.subspan(kRecordHeaderBytes, static_cast<size_t>(length));
  record.bytes = static_cast<size_t>(length) + kRecordOverheadBytes;
  const auto footer = base::Load<uint32_t>(record.payload.data() + record.payload.size());
  if (footer == kSmdebugFooter) {
    record.footer = Footer::kSmdebug;
    return record;
  }
  const uint32_t crc = MaskedCrc32c(record.payload);
  if (footer != crc) {
    return DataLoss(
        fmt::format("the record's footer is {:#010x}: neither its checksum {:#010x} nor smdebug's constant",
                    footer, crc));
  }
  return record;
}

}  // namespace tdbg::tfevents
