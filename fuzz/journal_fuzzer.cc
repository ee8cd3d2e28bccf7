// The journal: a whole ring whose every byte a stranger may have chosen, walked as a reader walks it.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "format/journal.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tdbg;
  const auto bytes = std::as_bytes(std::span(data, size));
  (void)format::CheckJournalHeader(bytes, size).ok();

  // Hashes would stop nearly every input at the first byte: payloads are decoded without asking them.
  (void)format::DecodeSummaries(bytes).ok();
  if (const auto raw = format::DecodeRaw(bytes);
      raw.ok() && raw->data.size() + format::kRawDataOffset != size) {
    std::abort();
  }
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto def = format::TensorDef::FromJson(text); def.ok()) {
    const auto again = format::TensorDef::FromJson(def->ToJson());
    if (!again.ok() || again->ToJson() != def->ToJson()) std::abort();
  }
  if (const auto context = format::ContextFromJson(text); context.ok()) {
    if (!format::ContextFromJson(format::ContextToJson(*context)).ok()) std::abort();
  }

  // Whoever skips what a file system calls holes finds the record that a search through everything finds.
  if (const uint64_t ring = size / format::kRecordAlignment * format::kRecordAlignment; ring > 0) {
    const auto header_at = [&](uint64_t at) {
      return std::optional(base::Load<format::RecordHeader>(bytes.data() + at % ring));
    };
    const auto all = [](uint64_t offset) { return offset; };
    const auto data_from = [&](uint64_t offset) {
      uint64_t at = offset - format::kJournalHeaderBytes;
      while (at < ring && bytes[at] == std::byte{0}) ++at;
      return format::kJournalHeaderBytes + at;
    };
    const uint64_t begin = ring / 2 / format::kRecordAlignment * format::kRecordAlignment;
    if (format::FindRecord(begin, begin + ring, ring, all, header_at) !=
        format::FindRecord(begin, begin + ring, ring, data_from, header_at))
      std::abort();
  }

  for (uint64_t position = 0; position + sizeof(format::RecordHeader) <= size;) {
    const auto header = base::Load<format::RecordHeader>(data + position);
    // As if the header's hash were right, which a writer with a bug could make it.
    auto forged = format::MakeRecordHeader(static_cast<format::RecordType>(header.type), header.sequence,
                                           position, header.payload_bytes, header.global_step,
                                           header.payload_hash, header.prefix_hash);
    if (!format::CheckRecordHeader(forged, position, size - position).ok()) break;
    const auto payload = bytes.subspan(position + sizeof(forged), forged.payload_bytes);
    (void)format::CheckPayload(forged, payload).ok();
    (void)format::DecodeSummaries(payload).ok();
    (void)format::DecodeRaw(payload).ok();
    position += format::RecordBytes(forged.payload_bytes);
  }
  return 0;
}
