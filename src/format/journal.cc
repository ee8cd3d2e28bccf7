#include "format/journal.h"

#include <cstring>

#include "base/bytes.h"
#include "base/hash.h"

namespace tdbg::format {
namespace {

uint64_t HeaderHash(const RecordHeader& header) {
  return base::Hash64({reinterpret_cast<const std::byte*>(&header), offsetof(RecordHeader, header_hash)});
}

}  // namespace

RecordHeader MakeRecordHeader(RecordType type, uint64_t sequence, uint64_t position, uint64_t payload_bytes,
                              int64_t global_step, uint64_t payload_hash, uint64_t prefix_hash) {
  RecordHeader header{};
  header.magic = kRecordMagic;
  header.type = static_cast<uint16_t>(type);
  header.sequence = sequence;
  header.position = position;
  header.payload_bytes = payload_bytes;
  header.global_step = global_step;
  header.payload_hash = payload_hash;
  header.prefix_hash = prefix_hash;
  header.header_hash = HeaderHash(header);
  return header;
}

Status CheckRecordHeader(const RecordHeader& header, uint64_t expected_position, uint64_t bytes_available) {
  const std::string where = "record at " + std::to_string(expected_position);
  if (header.magic != kRecordMagic) return DataLoss(where + ": no record here");
  if (header.header_hash != HeaderHash(header)) return DataLoss(where + ": header hash");
  if (header.position != expected_position) return DataLoss(where + ": left over from an earlier lap");
  // In this order nothing overflows: payload_bytes is compared before it is rounded up.
  if (bytes_available < sizeof(RecordHeader) ||
      header.payload_bytes > bytes_available - sizeof(RecordHeader) ||
      RecordBytes(header.payload_bytes) > bytes_available) {
    return DataLoss(where + ": longer than what is left");
  }
  return OkStatus();
}

Status CheckPayload(const RecordHeader& header, std::span<const std::byte> payload) {
  const std::string where = "record " + std::to_string(header.sequence);
  if (payload.size() != header.payload_bytes) return DataLoss(where + ": payload is short");
  if (header.type == static_cast<uint16_t>(RecordType::kPad)) return OkStatus();
  if (header.type == static_cast<uint16_t>(RecordType::kRaw)) {
    if (payload.size() < kRawDataOffset) return DataLoss(where + ": raw header is short");
    if (base::Hash64(payload.first(kRawDataOffset)) != header.prefix_hash)
      return DataLoss(where + ": raw header hash");
    payload = payload.subspan(kRawDataOffset);
  }
  if (base::Hash64(payload) != header.payload_hash) return DataLoss(where + ": payload hash");
  return OkStatus();
}

Status CheckJournalHeader(std::span<const std::byte> page, uint64_t file_bytes) {
  if (page.size() < 64) return DataLoss("journal: shorter than its header");
  const std::byte* p = page.data();
  if (std::memcmp(p, kJournalMagic, sizeof(kJournalMagic)) != 0) return DataLoss("journal: no magic");
  const auto major = base::Load<uint16_t>(p + offsetof(JournalHeader, major));
  if (major > kMajor) {
    return Unimplemented("journal: written in format " + std::to_string(major) +
                         ".x, and this tdbg reads up to " + std::to_string(kMajor) + ".x: use a newer tdbg");
  }
  if (base::Load<uint32_t>(p + offsetof(JournalHeader, header_bytes)) != kJournalHeaderBytes) {
    return DataLoss("journal: header size");
  }
  const auto ring = base::Load<uint64_t>(p + offsetof(JournalHeader, ring_bytes));
  if (ring < kRecordAlignment || ring % kRecordAlignment != 0) return DataLoss("journal: ring size");
  if (file_bytes < kJournalHeaderBytes || ring > file_bytes - kJournalHeaderBytes) {
    return DataLoss("journal: truncated");
  }
  return OkStatus();
}

Status CheckPositions(uint64_t sealed_pos, uint64_t committed_pos, uint64_t ring_bytes) {
  if (sealed_pos % kRecordAlignment != 0 || committed_pos % kRecordAlignment != 0 ||
      sealed_pos > committed_pos || committed_pos - sealed_pos > ring_bytes) {
    return DataLoss("journal: positions make no sense");
  }
  return OkStatus();
}

Result<SummariesView> DecodeSummaries(std::span<const std::byte> payload) {
  if (payload.size() < sizeof(SummariesHeader)) return DataLoss("summaries: shorter than their header");
  const auto header = base::Load<SummariesHeader>(payload.data());
  const uint64_t row_bytes = static_cast<uint64_t>(header.rows) * sizeof(SummaryRow);
  const uint64_t rest = payload.size() - sizeof(SummariesHeader);
  if (row_bytes > rest || header.histogram_bytes != rest - row_bytes) {
    return DataLoss("summaries: lengths do not add up");
  }
  SummariesView view;
  view.rows = payload.subspan(sizeof(SummariesHeader), row_bytes);
  view.row_count = header.rows;
  view.histograms = payload.subspan(sizeof(SummariesHeader) + row_bytes);
  for (uint32_t i = 0; i < header.rows; ++i) {
    const std::byte* row = view.rows.data() + i * sizeof(SummaryRow);
    const uint64_t offset = base::Load<uint32_t>(row + offsetof(SummaryRow, histogram_offset));
    const uint64_t bytes = base::Load<uint32_t>(row + offsetof(SummaryRow, histogram_bytes));
    if (bytes != 0 && offset + bytes > header.histogram_bytes)
      return DataLoss("summaries: histogram out of bounds");
  }
  return view;
}

Result<RawPayload> DecodeRaw(std::span<const std::byte> payload) {
  if (payload.size() < kRawDataOffset) return DataLoss("raw tensor: shorter than its header");
  return DecodeRaw(base::Load<RawHeader>(payload.data()), payload.subspan(kRawDataOffset));
}

Result<RawPayload> DecodeRaw(const RawHeader& header, std::span<const std::byte> data) {
  const RawPayload raw{header, data};
  if (raw.header.rank > kMaxRank) return DataLoss("raw tensor: rank");
  const uint64_t item = raw.header.dtype <= 0xff ? ItemSize(static_cast<DType>(raw.header.dtype)) : 0;
  if (item == 0) return Unimplemented("raw tensor: a dtype of a newer tdbg");
  uint64_t bytes = item;
  bool empty = false;
  for (int i = 0; i < raw.header.rank; ++i) {
    const int64_t extent = raw.header.shape[i];
    if (extent < 0) return DataLoss("raw tensor: negative extent");
    if (extent == 0) empty = true;
    if (extent > 0 && !empty && __builtin_mul_overflow(bytes, static_cast<uint64_t>(extent), &bytes)) {
      return DataLoss("raw tensor: shape");
    }
  }
  if (empty) bytes = 0;
  if (bytes != raw.data.size()) return DataLoss("raw tensor: shape and bytes do not agree");
  return raw;
}

}  // namespace tdbg::format
