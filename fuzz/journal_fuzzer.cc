// The journal: a whole ring whose every byte a stranger may have chosen, walked as a reader walks it.
#include <cstdint>
#include <cstdlib>
#include <cstring>
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
