// Reads a journal that may still be written to: by pread, trusting only bytes that match their hash.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "format/columns.h"
#include "format/journal.h"
#include "format/records.h"
#include "store/reader/worker_reader.h"
#include "tdbg/status.h"

namespace tdbg::store {

/// The header's fields, read at one moment.
struct JournalSnapshot {
  uint64_t committed_pos = 0, committed_seq = 0, sealed_pos = 0, sealed_seq = 0;
  int64_t last_seen_step = -1, last_seen_wall_nanos = 0;
  bool ended = false;
  /// The header's positions are impossible; those here were reconstructed from the records.
  bool from_records = false;
};

/// Committed records of a stretch of the journal, in order. Tensor ids are the writer's.
struct JournalDelta {
  template <typename T>
  using Column = std::vector<T>;
  struct Columns : format::SummaryColumns<Column> {
    std::vector<uint8_t> histograms;
  };
  /// One commit and, as ends into the lists below, what it made visible.
  struct CommitEnd {
    uint64_t sequence = 0;
    format::Commit commit;
    uint64_t rows = 0, scalars = 0, raws = 0, context = 0, acks = 0;
  };
  struct Scalar {
    uint32_t tensor = 0;
    WorkerReader::ScalarPoint point;
  };
  std::vector<CommitEnd> commits;
  Columns columns;
  std::vector<Scalar> scalars;
  std::vector<RawRef> raws;  ///< shape_index: into `shapes`
  std::vector<std::vector<int64_t>> shapes;
  std::vector<format::TensorDef> tensors;
  std::vector<format::ContextRecord> context;
  std::vector<std::string> acks;
  std::string end_json;
  uint64_t first_sequence = 0;  ///< of the first record that was there, wanted or not; 0: none
  std::vector<Damage> damage;
};

/// \threadsafety One thread.
class JournalReader {
 public:
  /// \error kNotFound; kDataLoss  not a journal, or not the one of `writer_id`; kUnimplemented  newer major.
  static Result<std::unique_ptr<JournalReader>> Open(const std::string& path, uint64_t writer_id);

  /// One pread of the header page. \error kDataLoss  no longer this writer's journal, or nonsense.
  Result<JournalSnapshot> ReadSnapshot();
  /// Whether the header's positions are trusted. True at first; a dead writer's records may contradict
  /// them.
  void TrustPositions(bool trust) { distrusted_ = !trust; }
  /// As of the last ReadSnapshot.
  std::vector<format::Drop> dropped() const;

  /// Records of [from, to) whose sequence is greater than `after_sequence`. Raw bytes are not read, only
  /// their headers. The caller takes another snapshot afterwards: what lies before its sealed_pos may have
  /// been overwritten while it was read, and then the whole delta is to be thrown away.
  Status Read(uint64_t from, uint64_t to, uint64_t after_sequence, JournalDelta* delta);
  /// Reads the raw tensor at `position` and verifies it, without looking at sealed_pos.
  Result<RawValue> ReadRaw(uint64_t position, uint64_t sequence) const;

  uint64_t file_bytes() const { return file_bytes_; }
  uint64_t ring_bytes() const { return ring_bytes_; }
  bool SameFileAs(const std::string& path) const;

 private:
  class Window;
  class Parser;
  JournalReader() = default;
  Status ReadExactly(uint64_t position, std::span<std::byte> out) const;
  JournalSnapshot PageSnapshot() const;
  Status PositionsFromRecords(JournalSnapshot* snapshot);

  std::string path_;
  std::unique_ptr<base::ReadableFile> file_;
  uint64_t file_bytes_ = 0, ring_bytes_ = 0, writer_id_ = 0, inode_ = 0, device_ = 0;
  std::vector<std::byte> window_;  // what Read reads through
  bool distrusted_ = false;
  struct Positions {
    uint64_t sealed = 0, committed = 0, sequence = 0;
    JournalSnapshot said;  // by the header, when these were looked for
  };
  std::optional<Positions> found_;
  alignas(8) std::byte page_[format::kJournalHeaderBytes] = {};
};

}  // namespace tdbg::store
