#include "store/reader/journal_reader.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <new>
#include <optional>

#include "base/bytes.h"
#include "base/data_extents.h"
#include "base/hash.h"

namespace tdbg::store {
namespace {

using format::JournalHeader;
using format::RecordHeader;
using format::RecordType;
using format::SummaryColumn;

constexpr uint64_t kWindowBytes = 1u << 20;
constexpr uint64_t kHeaderBytes = sizeof(RecordHeader);

std::string Where(uint64_t position) { return "record at " + std::to_string(position); }

// 64-aligned: raw tensors are handed to NumPy as they are.
struct AlignedBytes {
  explicit AlignedBytes(size_t bytes)
      : data(static_cast<std::byte*>(::operator new(std::max<size_t>(bytes, 1), std::align_val_t{64}))) {}
  ~AlignedBytes() { ::operator delete(data, std::align_val_t{64}); }
  AlignedBytes(const AlignedBytes&) = delete;
  AlignedBytes& operator=(const AlignedBytes&) = delete;
  std::byte* data;
};

}  // namespace

Result<std::unique_ptr<JournalReader>> JournalReader::Open(const std::string& path, uint64_t writer_id) {
  std::unique_ptr<JournalReader> reader(new JournalReader());
  reader->path_ = path;
  TDBG_ASSIGN_OR_RETURN(reader->file_, base::LocalFileSystem().OpenReadable(path));
  TDBG_ASSIGN_OR_RETURN(reader->file_bytes_, reader->file_->Size());
  struct stat info;
  if (::stat(path.c_str(), &info) == 0) {
    reader->inode_ = info.st_ino;
    reader->device_ = info.st_dev;
  }
  TDBG_ASSIGN_OR_RETURN(const size_t got, reader->file_->ReadAt(0, reader->page_));
  if (got < sizeof(reader->page_)) return DataLoss("journal: shorter than its header");
  TDBG_RETURN_IF_ERROR(format::CheckJournalHeader(reader->page_, reader->file_bytes_));
  reader->ring_bytes_ = base::Load<uint64_t>(reader->page_ + offsetof(JournalHeader, ring_bytes));
  reader->writer_id_ = writer_id;
  TDBG_RETURN_IF_ERROR(reader->ReadSnapshot().status());
  return reader;
}

bool JournalReader::SameFileAs(const std::string& path) const {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 && info.st_ino == inode_ && info.st_dev == device_;
}

Result<JournalSnapshot> JournalReader::ReadSnapshot() {
  TDBG_ASSIGN_OR_RETURN(const size_t got, file_->ReadAt(0, page_));
  if (got < sizeof(page_)) return DataLoss("journal: truncated");
  if (base::Load<uint64_t>(page_ + offsetof(JournalHeader, writer_id)) != writer_id_) {
    return DataLoss("journal: belongs to another writer than worker.json");
  }
  const auto possible = [this](const JournalSnapshot& s) {
    return s.sealed_seq <= s.committed_seq &&
           format::CheckPositions(s.sealed_pos, s.committed_pos, ring_bytes_).ok();
  };
  JournalSnapshot s = PageSnapshot();
  // The page is read while others write it: committed_pos was read before sealed_pos, which may have
  // overtaken it. Not twice: between two looks lies a segment.
  for (int again = 0; again < 3 && !possible(s) && !distrusted_; ++again) {
    TDBG_ASSIGN_OR_RETURN(const size_t more, file_->ReadAt(0, page_));
    if (more < sizeof(page_)) return DataLoss("journal: truncated");
    s = PageSnapshot();
  }
  if (!distrusted_ && possible(s)) return s;
  TDBG_RETURN_IF_ERROR(PositionsFromRecords(&s));
  return s;
}

JournalSnapshot JournalReader::PageSnapshot() const {
  const auto load = [this](size_t offset) { return base::Load<uint64_t>(page_ + offset); };
  JournalSnapshot s;
  s.committed_pos = load(offsetof(JournalHeader, committed_pos));
  s.committed_seq = load(offsetof(JournalHeader, committed_seq));
  s.last_seen_step = static_cast<int64_t>(load(offsetof(JournalHeader, last_seen_step)));
  s.last_seen_wall_nanos = static_cast<int64_t>(load(offsetof(JournalHeader, last_seen_wall_nanos)));
  s.ended = load(offsetof(JournalHeader, ended)) != 0;
  s.sealed_pos = load(offsetof(JournalHeader, sealed_pos));
  s.sealed_seq = load(offsetof(JournalHeader, sealed_seq));
  return s;
}

std::vector<format::Drop> JournalReader::dropped() const {
  std::vector<format::Drop> out;
  for (int cause = 0; cause < format::kDropCauses; ++cause) {
    for (int kind = 1; kind <= 4; ++kind) {
      const size_t at = static_cast<size_t>(cause * 4 + kind - 1) * 8;
      format::Drop drop;
      drop.cause = static_cast<uint8_t>(cause);
      drop.kind = static_cast<uint8_t>(kind);
      drop.count = base::Load<uint64_t>(page_ + offsetof(JournalHeader, drop_count) + at);
      drop.bytes = base::Load<uint64_t>(page_ + offsetof(JournalHeader, drop_bytes) + at);
      drop.first_step = base::Load<int64_t>(page_ + offsetof(JournalHeader, drop_first_step) + at);
      drop.last_step = base::Load<int64_t>(page_ + offsetof(JournalHeader, drop_last_step) + at);
      if (drop.count != 0) out.push_back(drop);
    }
  }
  return out;
}

Status JournalReader::ReadExactly(uint64_t position, std::span<std::byte> out) const {
  TDBG_ASSIGN_OR_RETURN(const size_t got,
                        file_->ReadAt(format::kJournalHeaderBytes + position % ring_bytes_, out));
  if (got < out.size()) return DataLoss("journal: truncated");
  return OkStatus();
}

/// A megabyte of the ring at a time: one system call for thousands of small records.
class JournalReader::Window {
 public:
  Window(JournalReader* journal, uint64_t end) : journal_(*journal), buffer_(journal->window_), end_(end) {}
  /// A follower reads a few KiB a hundred times a second: that much is not given back each time.
  ~Window() {
    if (buffer_.size() > kKeptBytes) std::vector<std::byte>().swap(buffer_);
  }

  /// Bytes [position, position + bytes), which must not cross the ring's end. Valid until the next call.
  Result<std::span<const std::byte>> At(uint64_t position, uint64_t bytes) {
    if (position < begin_ || position + bytes > begin_ + filled_) {
      const uint64_t to_ring_end = journal_.ring_bytes_ - position % journal_.ring_bytes_;
      const uint64_t want = std::min({std::max(bytes, kWindowBytes), to_ring_end, end_ - position});
      if (bytes > want) return DataLoss(Where(position) + ": crosses the ring's end");
      if (buffer_.size() < want) buffer_.resize(want);
      filled_ = 0;
      TDBG_RETURN_IF_ERROR(journal_.ReadExactly(position, std::span(buffer_).first(want)));
      begin_ = position;
      filled_ = want;
    }
    return std::span<const std::byte>(buffer_).subspan(position - begin_, bytes);
  }

 private:
  static constexpr size_t kKeptBytes = 64 << 10;
  const JournalReader& journal_;
  std::vector<std::byte>& buffer_;
  const uint64_t end_;
  uint64_t begin_ = 0, filled_ = 0;
};

// One flipped bit of a position would hide every step that is in the journal alone. The records know their
// places themselves: of all that are whole, the last commit is the end, and what a lap before it began with
// is the beginning.
Status JournalReader::PositionsFromRecords(JournalSnapshot* s) {
  const bool same = found_ && found_->said.committed_pos == s->committed_pos &&
                    found_->said.sealed_pos == s->sealed_pos &&
                    found_->said.committed_seq == s->committed_seq;
  if (!same) {
    Positions found{.said = *s};
    std::vector<std::pair<uint64_t, uint64_t>> records;  // position, sequence
    Window window(this, ring_bytes_);
    base::DataExtents extents(path_);
    const auto data_from = [&](uint64_t offset) { return extents.From(offset); };
    for (uint64_t at = 0;; at += format::kRecordAlignment) {
      at = format::SkipHoles(at, ring_bytes_, ring_bytes_, data_from);
      if (at >= ring_bytes_) break;
      TDBG_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, window.At(at, kHeaderBytes));
      const auto header = base::Load<RecordHeader>(bytes.data());
      if (header.magic != format::kRecordMagic || header.position % ring_bytes_ != at) continue;
      if (!format::CheckRecordHeader(header, header.position, ring_bytes_ - at).ok()) continue;
      records.emplace_back(header.position, header.sequence);
      // Behind the last commit there may be a step that was never finished.
      const uint64_t end = header.position + format::RecordBytes(header.payload_bytes);
      if (header.type == static_cast<uint16_t>(RecordType::kCommit) && end > found.committed) {
        found.committed = end;
        found.sequence = header.sequence;
      }
    }
    if (found.committed == 0)
      return DataLoss("journal: positions make no sense, and no record says where they are");
    found.sealed = found.committed;
    for (const auto& [position, sequence] : records) {
      const bool in_last_lap = position + ring_bytes_ >= found.committed;
      if (in_last_lap && sequence <= found.sequence) found.sealed = std::min(found.sealed, position);
    }
    found_ = found;
  }
  s->sealed_pos = found_->sealed;
  s->committed_pos = found_->committed;
  s->committed_seq = found_->sequence;
  s->sealed_seq = 0;  // the segments say it
  s->from_records = true;
  return OkStatus();
}

class JournalReader::Parser {
 public:
  Parser(JournalReader* journal, uint64_t to, uint64_t after_sequence, JournalDelta* delta)
      : window_(journal, to),
        path_(journal->path_),
        ring_bytes_(journal->ring_bytes_),
        to_(to),
        after_(after_sequence),
        delta_(delta) {}

  Status Run(uint64_t from) {
    uint64_t position = from;
    while (position < to_) {
      const uint64_t to_ring_end = ring_bytes_ - position % ring_bytes_;
      const uint64_t available = std::min(to_ - position, to_ring_end);
      TDBG_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, window_.At(position, kHeaderBytes));
      const auto header = base::Load<RecordHeader>(bytes.data());
      const Status valid = format::CheckRecordHeader(header, position, available);
      if (!valid.ok()) {
        // Without its header a record's length is unknown: look for the next place that is one.
        if (!extents_) extents_.emplace(path_);
        const auto data_from = [this](uint64_t offset) { return extents_->From(offset); };
        const uint64_t next =
            format::FindRecord(position + format::kRecordAlignment, to_, ring_bytes_, data_from,
                               [this](uint64_t at) -> std::optional<RecordHeader> {
                                 const auto found = window_.At(at, kHeaderBytes);
                                 if (!found.ok()) return std::nullopt;
                                 return base::Load<RecordHeader>((*found).data());
                               });
        Lost(valid.message(), next - position);
        position = next;
        continue;
      }
      if (delta_->first_sequence == 0) delta_->first_sequence = header.sequence;
      if (header.sequence > after_) {
        const Status taken = Take(header, position);
        if (!taken.ok()) Lost(taken.message(), header.payload_bytes);
      }
      position += format::RecordBytes(header.payload_bytes);
    }
    DropUncommitted();
    return OkStatus();
  }

 private:
  void Lost(std::string what, uint64_t bytes) {
    damaged_since_commit_ = true;
    delta_->damage.push_back({std::string(format::kJournalFile), std::move(what), bytes});
  }

  Status Take(const RecordHeader& header, uint64_t position) {
    const auto type = static_cast<RecordType>(header.type);
    if (type == RecordType::kPad) return OkStatus();
    if (type == RecordType::kRaw) return TakeRaw(header, position);
    // Types of later versions may be large, and are nobody's business here.
    if (header.type > static_cast<uint16_t>(RecordType::kEnd)) return OkStatus();
    TDBG_ASSIGN_OR_RETURN(const std::span<const std::byte> payload,
                          window_.At(position + kHeaderBytes, header.payload_bytes));
    TDBG_RETURN_IF_ERROR(format::CheckPayload(header, payload));
    const std::string_view text(reinterpret_cast<const char*>(payload.data()), payload.size());
    switch (type) {
      case RecordType::kTensorDef: {
        TDBG_ASSIGN_OR_RETURN(format::TensorDef def, format::TensorDef::FromJson(text));
        delta_->tensors.push_back(std::move(def));
        return OkStatus();
      }
      case RecordType::kSummaries:
        return TakeSummaries(header, payload);
      case RecordType::kScalars:
        return TakeScalars(header, payload);
      case RecordType::kContext: {
        TDBG_ASSIGN_OR_RETURN(format::ContextRecord record, format::ContextFromJson(text));
        delta_->context.push_back(std::move(record));
        return OkStatus();
      }
      case RecordType::kCommit:
        return TakeCommit(header, payload);
      case RecordType::kAck:
        delta_->acks.emplace_back(text);
        return OkStatus();
      case RecordType::kEnd:
        delta_->end_json = text;
        return OkStatus();
      default:
        return OkStatus();
    }
  }

  Status TakeSummaries(const RecordHeader& header, std::span<const std::byte> payload) {
    TDBG_ASSIGN_OR_RETURN(const format::SummariesView view, format::DecodeSummaries(payload));
    JournalDelta::Columns& c = delta_->columns;
    const uint64_t histogram_base = c.histograms.size();
    // Column by column they would grow five times each for the usual batch, which is one record.
    if (const size_t rows = c.tensor.size() + view.row_count; rows > c.tensor.capacity()) {
      const size_t room = std::max(rows, 2 * c.tensor.capacity());
      format::ForEachSummaryColumn([room](SummaryColumn, auto& column) { column.reserve(room); }, c);
    }
    for (uint32_t i = 0; i < view.row_count; ++i) {
      const auto row = base::Load<format::SummaryRow>(view.rows.data() + i * sizeof(format::SummaryRow));
#define TDBG_OF_ROW(name, ...) c.name.push_back(row.name);
#define TDBG_OF_RECORD(name, ...) c.name.push_back(header.global_step);
      TDBG_SUMMARY_LIST(TDBG_OF_ROW, TDBG_OF_RECORD, TDBG_OF_ROW)
#undef TDBG_OF_RECORD
#undef TDBG_OF_ROW
      c.histogram_offset.back() += histogram_base;
    }
    const auto* const first = reinterpret_cast<const uint8_t*>(view.histograms.data());
    c.histograms.insert(c.histograms.end(), first, first + view.histograms.size());
    return OkStatus();
  }

  Status TakeScalars(const RecordHeader& header, std::span<const std::byte> payload) {
    if (payload.size() % sizeof(format::ScalarRow) != 0) return DataLoss("scalars: length");
    for (size_t at = 0; at < payload.size(); at += sizeof(format::ScalarRow)) {
      const auto row = base::Load<format::ScalarRow>(payload.data() + at);
      delta_->scalars.push_back(
          {row.tensor, {header.global_step, {row.sub, static_cast<format::Point>(row.point)}, row.value}});
    }
    return OkStatus();
  }

  Status TakeRaw(const RecordHeader& header, uint64_t position) {
    if (header.payload_bytes < format::kRawDataOffset)
      return DataLoss(Where(position) + ": raw header is short");
    TDBG_ASSIGN_OR_RETURN(const std::span<const std::byte> prefix,
                          window_.At(position + kHeaderBytes, format::kRawDataOffset));
    if (base::Hash64(prefix) != header.prefix_hash) return DataLoss(Where(position) + ": raw header hash");
    const auto raw = base::Load<format::RawHeader>(prefix.data());
    if (raw.rank > format::kMaxRank) return DataLoss(Where(position) + ": rank");
    RawRef ref;
    ref.tensor = raw.tensor;
    ref.sub = {raw.sub, static_cast<format::Point>(raw.point)};
    ref.global_step = header.global_step;
    ref.offset = position;
    ref.bytes = header.payload_bytes - format::kRawDataOffset;
    ref.dtype = static_cast<DType>(raw.dtype);
    ref.sequence = header.sequence;
    std::vector<int64_t> shape(raw.shape, raw.shape + raw.rank);
    if (delta_->shapes.empty() || delta_->shapes.back() != shape) delta_->shapes.push_back(std::move(shape));
    ref.shape_index = static_cast<uint32_t>(delta_->shapes.size() - 1);
    delta_->raws.push_back(ref);
    return OkStatus();
  }

  Status TakeCommit(const RecordHeader& header, std::span<const std::byte> payload) {
    if (payload.size() < sizeof(format::Commit))
      return DataLoss(Where(header.position) + ": commit is short");
    JournalDelta::CommitEnd end;
    end.sequence = header.sequence;
    end.commit = base::Load<format::Commit>(payload.data());
    // A commit record that was lost leaves its step's records to the next one, where they do not belong.
    if (damaged_since_commit_) DropForeign(end.commit.global_step);
    damaged_since_commit_ = false;
    end.rows = delta_->columns.tensor.size();
    end.scalars = delta_->scalars.size();
    end.raws = delta_->raws.size();
    end.context = delta_->context.size();
    end.acks = delta_->acks.size();
    delta_->commits.push_back(end);
    return OkStatus();
  }

  void DropForeign(int64_t step) {
    const JournalDelta::CommitEnd begin =
        delta_->commits.empty() ? JournalDelta::CommitEnd{} : delta_->commits.back();
    uint64_t foreign_rows = begin.rows;
    const auto& steps = delta_->columns.step_first;
    while (foreign_rows < steps.size() && steps[foreign_rows] != step) ++foreign_rows;
    if (foreign_rows != begin.rows) {
      const auto erase = [&](SummaryColumn, auto& column) {
        column.erase(column.begin() + static_cast<ptrdiff_t>(begin.rows),
                     column.begin() + static_cast<ptrdiff_t>(foreign_rows));
      };
      format::ForEachSummaryColumn(erase, delta_->columns);
    }
    const auto foreign_scalar = [step](const JournalDelta::Scalar& s) { return s.point.global_step != step; };
    auto& scalars = delta_->scalars;
    scalars.erase(std::remove_if(scalars.begin() + static_cast<ptrdiff_t>(begin.scalars), scalars.end(),
                                 foreign_scalar),
                  scalars.end());
    auto& raws = delta_->raws;
    raws.erase(std::remove_if(raws.begin() + static_cast<ptrdiff_t>(begin.raws), raws.end(),
                              [step](const RawRef& r) { return r.global_step != step; }),
               raws.end());
  }

  // committed_pos lies behind a commit, so this is only ever what a damaged last commit left.
  void DropUncommitted() {
    const JournalDelta::CommitEnd end =
        delta_->commits.empty() ? JournalDelta::CommitEnd{} : delta_->commits.back();
    const auto cut = [&](SummaryColumn, auto& column) { column.resize(end.rows); };
    format::ForEachSummaryColumn(cut, delta_->columns);
    delta_->scalars.resize(end.scalars);
    delta_->raws.resize(end.raws);
  }

  Window window_;
  const std::string& path_;
  std::optional<base::DataExtents> extents_;  ///< once there is damage
  const uint64_t ring_bytes_, to_, after_;
  JournalDelta* const delta_;
  bool damaged_since_commit_ = false;
};

Status JournalReader::Read(uint64_t from, uint64_t to, uint64_t after_sequence, JournalDelta* delta) {
  return Parser(this, to, after_sequence, delta).Run(from);
}

Result<RawValue> JournalReader::ReadRaw(uint64_t position, uint64_t sequence) const {
  RecordHeader header;
  TDBG_RETURN_IF_ERROR(ReadExactly(position, {reinterpret_cast<std::byte*>(&header), sizeof(header)}));
  const uint64_t to_ring_end = ring_bytes_ - position % ring_bytes_;
  TDBG_RETURN_IF_ERROR(format::CheckRecordHeader(header, position, to_ring_end));
  if (header.sequence != sequence || header.type != static_cast<uint16_t>(RecordType::kRaw)) {
    return DataLoss(Where(position) + ": another record than before");
  }
  auto buffer = std::make_shared<AlignedBytes>(header.payload_bytes);
  const std::span<std::byte> payload(buffer->data, header.payload_bytes);
  TDBG_RETURN_IF_ERROR(ReadExactly(position + kHeaderBytes, payload));
  TDBG_RETURN_IF_ERROR(format::CheckPayload(header, payload));
  TDBG_ASSIGN_OR_RETURN(const format::RawPayload raw, format::DecodeRaw(payload));
  RawValue value;
  value.bytes = raw.data;
  value.owner = std::move(buffer);
  value.dtype = static_cast<DType>(raw.header.dtype);
  value.shape.assign(raw.header.shape, raw.header.shape + raw.header.rank);
  return value;
}

}  // namespace tdbg::store
