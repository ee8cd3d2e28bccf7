// Reads one worker's part of a run: sealed segments, and the live journal behind them, as one growing table.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/journal.h"
#include "format/records.h"
#include "format/run_files.h"
#include "tdbg/status.h"
#include "tdbg/summary.h"

namespace tdbg::store {

/// Something on disk that could not be believed: which file, which key or sequence, what it cost.
struct Damage {
  std::string file;  ///< relative to the worker directory
  std::string what;  ///< "summary/mean: checksum", "record 1204: header", ...
  uint64_t bytes = 0;
};

/// Where a raw value lies. Opaque to callers.
struct RawRef {
  format::TensorId tensor = 0;
  format::SubKey sub;
  int64_t global_step = 0;
  int64_t commit = 0;   ///< index into commits()
  uint32_t source = 0;  ///< segment or journal batch
  uint64_t offset = 0;  ///< in that source
  uint64_t bytes = 0;
  DType dtype = DType::kInvalid;
  uint32_t shape_index = 0;
  uint64_t sequence = 0;  ///< journal: the record's, by which the segment that sealed it is found
  uint32_t entry = 0;     ///< segment: which of its entries
};

/// Raw bytes that stay valid while `owner` lives: a mapping of a segment (zero copy) or a private copy.
struct RawValue {
  std::shared_ptr<const void> owner;
  std::span<const std::byte> bytes;
  DType dtype = DType::kInvalid;
  std::vector<int64_t> shape;
};

/// A run of summary rows of one source, as columns. Valid while the reader lives. `at(i)` gathers one row.
struct SummaryBatch {
  int64_t first_commit = 0;  ///< rows lie in commit order; this batch starts with rows of that commit
  size_t rows = 0;
  const uint32_t* tensor = nullptr;
  const int64_t* step_first = nullptr;
  const int64_t* step_last = nullptr;
  const uint32_t* level = nullptr;
  const uint16_t* sub = nullptr;
  const uint16_t* point = nullptr;
  const uint32_t* flags = nullptr;
  const uint64_t *count = nullptr, *nan_count = nullptr, *pos_inf_count = nullptr, *neg_inf_count = nullptr,
                 *zero_count = nullptr;
  const double *min = nullptr, *max = nullptr, *mean = nullptr, *variance = nullptr, *m3 = nullptr,
               *m4 = nullptr, *l1 = nullptr, *l2 = nullptr, *abs_min = nullptr, *abs_max = nullptr;
  const uint64_t* histogram_offset = nullptr;
  const uint32_t* histogram_bytes = nullptr;
  std::span<const uint8_t> histograms;  ///< not verified yet: read them through WorkerReader::HistogramOf
  /// Bit n: column n (store/reader/columns.h) is damaged; it then reads as NaN or 0. Rows of such a batch are
  /// no evidence: answer kDataLoss, or leave them out and say so.
  uint64_t damaged = 0;

  Summary at(size_t row) const;
};

/// One worker of one attempt.
///
/// Refresh is the only call that looks at the disk for news; everything else answers from what the last
/// Refresh saw. Never writes. \threadsafety One thread at a time.
class WorkerReader {
 public:
  /// Succeeds for a worker that has no data yet. \error kNotFound, kUnimplemented (newer major), kDataLoss
  /// (worker.json)
  static Result<std::unique_ptr<WorkerReader>> Open(const std::string& worker_directory);
  ~WorkerReader();

  /// Takes in what was committed since. True if there was anything. Damage is recorded, not returned as an
  /// error: it costs the records it touched, nothing else.
  Result<bool> Refresh();

  const format::WorkerInfo& info() const;
  /// The lock is held: its process lives. Ended: it said goodbye. Neither: it died.
  bool alive() const;
  bool ended() const;
  std::string end_json() const;
  int64_t last_seen_step() const;  ///< heartbeat; -1: none
  int64_t last_seen_wall_nanos() const;

  /// In order; kCommitOutside ones included.
  std::span<const format::Commit> commits() const;
  std::span<const format::TensorDef> tensors() const;  ///< indexed by TensorId
  std::span<const format::ContextRecord> context() const;
  std::span<const std::string> acks() const;
  std::vector<format::Loss> losses() const;
  std::span<const Damage> damage() const;
  uint64_t bytes_on_disk() const;
  /// Files whose change means news: the doorbell, and the lock, which changes hands when the process dies.
  std::vector<std::string> doorbells() const;
  /// Raised when rows, scalars or raws of commits already seen moved from the journal to a segment.
  uint64_t resealed() const;
  /// Raised when commits() did not merely grow: a damaged segment took the place of journal records.
  uint64_t rewrites() const;

  /// All summaries, oldest source first. Batches are append-only between Refreshes, but a batch that came
  /// from the journal may be replaced by the segment that sealed it: re-read after a Refresh that returned
  /// true.
  std::span<const SummaryBatch> summaries() const;
  /// Rows of one tensor, as (batch, row) pairs in step order. An index kept up to date by Refresh.
  struct RowRef {
    uint32_t batch = 0;
    uint32_t row = 0;
  };
  std::span<const RowRef> RowsOf(format::TensorId tensor) const;
  Result<Histogram> HistogramOf(RowRef row) const;

  /// Scalars of one tensor (kind scalar), in step order.
  struct ScalarPoint {
    int64_t global_step = 0;
    format::SubKey sub;
    double value = 0;
  };
  std::span<const ScalarPoint> ScalarsOf(format::TensorId tensor) const;

  std::span<const RawRef> RawsOf(format::TensorId tensor) const;  ///< in step order
  /// Reads and verifies. \error kDataLoss  the checksum does not match (the damage is recorded).
  Result<RawValue> ReadRaw(const RawRef& ref);
  std::span<const int64_t> ShapeOf(const RawRef& ref) const;

 private:
  struct Impl;
  explicit WorkerReader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tdbg::store
