// The journal's bytes: a header page and a ring of framed records.
//
//   0            4096                                             4096 + ring_bytes
//   | header     | rec | rec | pad |  ... ring, positions modulo ring_bytes ...    |
//
// Positions are logical: they only grow; a record at position p starts at file offset 4096 + p % ring_bytes.
// Records start on multiples of 64 and never wrap: a kPad record fills the end of the ring.
//
//   sealed_pos          committed_pos        (writer's private head)
//       |  in the ring only   |  uncommitted step    |   free until sealed_pos + ring_bytes
//
// Writer: appends, then publishes committed_pos and committed_seq with a release store at each commit.
// Drain: publishes sealed_pos with a release store after the segment that holds those records was renamed.
// Reader: loads committed_pos (acquire), copies records out, then loads sealed_pos (acquire): a record at
// p < sealed_pos may have been overwritten while it was copied and must be taken from a segment instead.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "format/records.h"
#include "format/version.h"
#include "tdbg/status.h"

namespace tdbg::format {

inline constexpr char kJournalMagic[8] = {'T', 'D', 'B', 'G', 'J', 'R', 'N', 'L'};
inline constexpr uint64_t kJournalHeaderBytes = 4096;
inline constexpr uint64_t kRecordAlignment = 64;

/// Mapped; every field is written by one side only. Atomics are plain little-endian u64 on disk.
struct JournalHeader {
  // Written once, before the lock is published.
  char magic[8];
  uint16_t major, minor;
  uint32_t header_bytes;
  uint64_t ring_bytes;
  uint64_t writer_id;  ///< random; the same in worker.json, so that a reader knows it has the right journal
  uint32_t pid;
  uint32_t reserved32;
  uint64_t reserved0[3];
  // Training thread, from offset 64.
  std::atomic<uint64_t> committed_pos;
  std::atomic<uint64_t> committed_seq;  ///< sequence of the last commit record; 0: none yet
  std::atomic<int64_t> last_seen_step;  ///< heartbeat; -1: none yet. Advances even when nothing is due
  std::atomic<int64_t> last_seen_wall_nanos;
  std::atomic<uint64_t> ended;  ///< 0 open, 1 ended cleanly (an kEnd record is committed)
  uint64_t reserved1[3];
  // Drain thread, from offset 128.
  std::atomic<uint64_t> sealed_pos;
  std::atomic<uint64_t> sealed_seq;  ///< last sequence that is in a renamed segment
  uint64_t reserved2[6];
  // What was dropped, from offset 192: written by whoever counts them, before they are sealed.
  // [cause][kind-1]
  std::atomic<uint64_t> drop_count[kDropCauses][4];
  std::atomic<uint64_t> drop_bytes[kDropCauses][4];
  std::atomic<int64_t> drop_first_step[kDropCauses][4];
  std::atomic<int64_t> drop_last_step[kDropCauses][4];
};
static_assert(sizeof(std::atomic<uint64_t>) == 8 && std::atomic<uint64_t>::is_always_lock_free);
static_assert(offsetof(JournalHeader, committed_pos) == 64);
static_assert(offsetof(JournalHeader, sealed_pos) == 128);
static_assert(offsetof(JournalHeader, drop_count) == 192);
static_assert(sizeof(JournalHeader) <= kJournalHeaderBytes);

/// Stored; never renumber. A reader skips types it does not know.
enum class RecordType : uint16_t {
  kPad = 1,        ///< fills the ring's end; no payload is looked at
  kTensorDef = 2,  ///< JSON of TensorDef
  kSummaries = 3,  ///< SummariesHeader, SummaryRow[], histogram bytes
  kScalars = 4,    ///< ScalarRow[]
  kRaw = 5,        ///< RawHeader (120 bytes), 8 bytes of zero, data
  kContext = 6,    ///< JSON of ContextRecord
  kCommit = 7,     ///< Commit
  kAck = 8,        ///< JSON: acknowledgement of a control request
  kEnd = 9,        ///< JSON: {"reason": ..., "message": ...}; followed by a commit
};

/// 64 bytes, then the payload, then zeros up to the next multiple of 64.
struct RecordHeader {
  uint32_t magic;  ///< kRecordMagic
  uint16_t type;   ///< RecordType
  uint16_t flags;
  uint64_t sequence;  ///< from 1, one more for each record (pads too)
  uint64_t position;  ///< its own logical position: a stale record of an earlier lap is recognised
  uint64_t payload_bytes;
  int64_t global_step;    ///< the step it belongs to
  uint64_t payload_hash;  ///< XXH3-64 of the payload (0 for pads); for kRaw of the data after kRawDataOffset
  uint64_t prefix_hash;   ///< kRaw: XXH3-64 of the payload's first kRawDataOffset bytes; 0 for others
  uint64_t header_hash;   ///< XXH3-64 of the 56 bytes before
};
static_assert(sizeof(RecordHeader) == 64);
inline constexpr uint32_t kRecordMagic = 0x43455254;  // "TREC"

struct SummariesHeader {
  uint32_t rows;
  uint32_t reserved;
  uint64_t histogram_bytes;
};
static_assert(sizeof(SummariesHeader) == 16);

/// Bytes a record takes in the ring.
constexpr uint64_t RecordBytes(uint64_t payload_bytes) {
  return sizeof(RecordHeader) + (payload_bytes + kRecordAlignment - 1) / kRecordAlignment * kRecordAlignment;
}

/// Fills magic, type ... and the header's hash. \param payload_hash  what base::Hash64 gives for the payload.
/// kRaw hashes its data apart from its header (`prefix_hash`), so that the hash which CopyAndHash64 gives
/// while copying is the one that the segment stores: nobody hashes a raw tensor twice.
RecordHeader MakeRecordHeader(RecordType type, uint64_t sequence, uint64_t position, uint64_t payload_bytes,
                              int64_t global_step, uint64_t payload_hash, uint64_t prefix_hash = 0);
/// \error kDataLoss  magic, position, hash or length (against `bytes_available_untrusted`) is wrong.
Status CheckRecordHeader(const RecordHeader& header, uint64_t expected_position, uint64_t bytes_available);
/// The next position, at `position` or behind it, where the file may hold something; `end` or more where it
/// does not.
/// \param data_from  an offset in the journal's file -> the first one, there or behind it, that is in no hole
template <typename DataFrom>
uint64_t SkipHoles(uint64_t position, uint64_t end, uint64_t ring_bytes, DataFrom&& data_from) {
  while (position < end) {
    const uint64_t in_ring = position % ring_bytes;
    const uint64_t data = data_from(kJournalHeaderBytes + in_ring) - kJournalHeaderBytes;
    const uint64_t next = std::min(data / kRecordAlignment * kRecordAlignment, ring_bytes);
    if (next <= in_ring) break;
    position += next - in_ring;
    if (next < ring_bytes) break;
  }
  return position;
}
/// Where the next record begins, at `position` or behind it; `end` where none does. For what follows a
/// damaged header: the length it gives is not to be believed, but records begin at multiples of 64 and say
/// where.
/// \param data_from  as for SkipHoles: a ring's length may be forged, and what it takes on a disk is not
/// \param header_at  position -> std::optional<RecordHeader>; nothing ends the search
template <typename DataFrom, typename HeaderAt>
uint64_t FindRecord(uint64_t position, uint64_t end, uint64_t ring_bytes, DataFrom&& data_from,
                    HeaderAt&& header_at) {
  for (;; position += kRecordAlignment) {
    position = SkipHoles(position, end, ring_bytes, data_from);
    if (position >= end) return end;
    const std::optional<RecordHeader> header = header_at(position);
    if (!header) return end;
    const uint64_t available = std::min(end - position, ring_bytes - position % ring_bytes);
    if (header->magic == kRecordMagic && CheckRecordHeader(*header, position, available).ok())
      return position;
  }
}
/// Verifies the payload's hash or, for kRaw, both. \error kDataLoss
Status CheckPayload(const RecordHeader& header, std::span<const std::byte> payload);
/// \error kDataLoss, kUnimplemented (newer major)
Status CheckJournalHeader(std::span<const std::byte> page, uint64_t file_bytes);

/// Whether records may be looked for between these positions of a ring; every walk through one begins with
/// this.
/// \error kDataLoss
Status CheckPositions(uint64_t sealed_pos, uint64_t committed_pos, uint64_t ring_bytes);

/// Journal payloads, decoded with bounds checked. Views borrow the payload.
struct SummariesView {
  std::span<const std::byte> rows;  ///< SummaryRow[], maybe unaligned: use base::Load
  uint32_t row_count = 0;
  std::span<const std::byte> histograms;
};
Result<SummariesView> DecodeSummaries(std::span<const std::byte> payload);
struct RawPayload {
  RawHeader header;
  std::span<const std::byte> data;
};
inline constexpr uint64_t kRawDataOffset = 128;
Result<RawPayload> DecodeRaw(std::span<const std::byte> payload);
Result<RawPayload> DecodeRaw(const RawHeader& header, std::span<const std::byte> data);

}  // namespace tdbg::format
