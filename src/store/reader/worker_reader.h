// One worker's part of a run as one growing table, whatever it is stored in; and the reader of our own
// format.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/columns.h"
#include "format/journal.h"
#include "format/records.h"
#include "format/run_files.h"
#include "store/reader/commits.h"
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
  uint32_t shape_index = 0;  ///< journal: of its batch; segment: the form, with an index
  uint64_t sequence = 0;     ///< journal: the record's, by which the segment that sealed it is found
  uint32_t entry = 0;        ///< segment: which of its raw values
};

/// Raw bytes that stay valid while `owner` lives: a mapping of a segment (zero copy) or a private copy.
struct RawValue {
  std::shared_ptr<const void> owner;
  std::span<const std::byte> bytes;
  DType dtype = DType::kInvalid;
  std::vector<int64_t> shape;
};

/// Bits of SummaryBatch::unknown beyond the columns'.
inline constexpr uint64_t kMeanAbsUnknown = uint64_t{1} << 60;
inline constexpr uint64_t kUnreadable = uint64_t{1} << 61;    ///< damaged: the reader's damage() says how
inline constexpr uint64_t kNoStatistics = uint64_t{1} << 62;  ///< a type that has none (text, complex)
static_assert(format::ColumnBit(format::SummaryColumn::kCount) <= kMeanAbsUnknown);

template <typename T>
using ColumnPointer = const T*;

/// A run of summary rows of one source, as columns (format/columns.h): `batch.mean[i]`. Valid while the
/// reader lives. `at(i)` gathers one row.
struct SummaryBatch : format::SummaryColumns<ColumnPointer> {
  int64_t first_commit = 0;  ///< rows lie in commit order; this batch starts with rows of that commit
  size_t rows = 0;
  std::span<const uint8_t> histograms;  ///< not verified yet: read them through WorkerReader::HistogramOf
  /// Of format::ColumnBit: these columns are damaged, and read as NaN or 0. Rows of such a batch are no
  /// evidence: answer kDataLoss, or leave them out and say so. Known after WorkerReader::Prepare.
  uint64_t damaged = 0;
  /// Of storage that keeps values or single numbers instead of summaries (smdebug's): by row, of
  /// format::ColumnBit: these are not known and read as NaN or 0; kNoStatistics and kUnreadable speak of the
  /// row. Known after WorkerReader::Prepare. Null: everything is known.
  const uint64_t* unknown = nullptr;
  /// By row: the mean absolute value where it is known although l1 or count is not, else NaN. Null: l1 /
  /// count.
  const double* mean_abs = nullptr;

  Summary at(size_t row) const;
};

/// One worker of one attempt, however its part of the run is stored.
///
/// Refresh is the only call that looks at the disk for news; everything else answers from what the last
/// Refresh saw. Never writes. \threadsafety One thread at a time.
class WorkerReader {
 public:
  /// Of a run directory of ours: sealed segments and the live journal behind them. Succeeds for a worker that
  /// has no data yet.
  /// \error kNotFound, kUnimplemented (newer major), kDataLoss (worker.json)
  static Result<std::unique_ptr<WorkerReader>> Open(const std::string& worker_directory);
  virtual ~WorkerReader() = default;

  /// Takes in what was committed since. True if there was anything. Damage is recorded, not returned as an
  /// error: it costs the records it touched, nothing else.
  virtual Result<bool> Refresh() = 0;

  virtual const format::WorkerInfo& info() const = 0;
  /// The lock is held: its process lives. Ended: it said goodbye. Neither: it died.
  virtual bool alive() const = 0;
  virtual bool ended() const = 0;
  virtual std::string end_json() const = 0;
  virtual int64_t last_seen_step() const = 0;  ///< heartbeat; -1: none
  virtual int64_t last_seen_wall_nanos() const = 0;

  /// In order; kCommitOutside ones included.
  virtual CommitList commits() const = 0;
  virtual std::span<const format::TensorDef> tensors() const = 0;  ///< indexed by TensorId
  /// The definition with dtype and shape, where storage tells these only with a value: may read one.
  virtual format::TensorDef Describe(format::TensorId tensor) { return tensors()[tensor]; }
  virtual std::span<const format::ContextRecord> context() const = 0;
  virtual std::span<const std::string> acks() const = 0;
  virtual std::vector<format::Drop> dropped() const = 0;
  virtual std::span<const Damage> damage() const = 0;
  virtual uint64_t bytes_on_disk() const = 0;
  /// Files whose change means news: the doorbell, and the lock, which changes hands when the process dies.
  virtual std::vector<std::string> doorbells() const = 0;
  /// Raised when rows, scalars or raws of commits already seen moved: from the journal to a segment, or into
  /// one batch with their neighbours.
  virtual uint64_t resealed() const = 0;
  /// So many batches of summaries(), from the first, stay what they are.
  virtual size_t final_batches() const { return 0; }
  /// Raised when commits() did not merely grow: a damaged segment took the place of journal records.
  virtual uint64_t rewrites() const = 0;

  /// All summaries, oldest source first. Batches are append-only between Refreshes, but a batch that came
  /// from the journal may be replaced by the segment that sealed it: re-read after a Refresh that returned
  /// true. How many rows there are is known at once; what they say is after Prepare.
  virtual std::span<const SummaryBatch> summaries() const = 0;
  static constexpr uint64_t kAllColumns = ~uint64_t{0};
  /// Prepares `columns` (bits of SummaryBatch::damaged) of rows [begin, end) of a batch of summaries(): what
  /// is stored is verified, with its neighbours; what must be computed from values is computed. The batch's
  /// pointers may change. Costs nothing the second time.
  virtual void Prepare(uint32_t batch, uint32_t begin, uint32_t end, uint64_t columns) const {
    (void)batch, (void)begin, (void)end, (void)columns;
  }
  void Prepare(uint32_t batch, uint32_t begin, uint32_t end) const {
    Prepare(batch, begin, end, kAllColumns);
  }
  /// Where a row is, and whose step it tells of.
  struct RowRef {
    uint32_t batch = 0;
    uint32_t row = 0;
    int64_t global_step = 0;  ///< the last it tells of
    format::SubKey sub;
  };
  /// Rows of one tensor, in step order, without a look at other tensors' or at their numbers. A list kept up
  /// to date from call to call.
  virtual std::span<const RowRef> RowsOf(format::TensorId tensor) const = 0;
  /// Those of one step. Valid until the next call.
  virtual std::span<const RowRef> RowsAt(format::TensorId tensor, int64_t global_step) const;
  struct PreparedRows {
    std::span<const SummaryBatch> batches;  ///< that RowRef::batch counts
    std::span<const RowRef> rows;
  };
  /// Rows of one tensor at global steps [begin, end), in step order, with `columns` prepared, for those who
  /// want nothing but them: where numbers are computed from values, a batch here need not hold the other
  /// tensors' rows. Valid until the next Refresh.
  virtual PreparedRows Series(format::TensorId tensor, int64_t begin, int64_t end, uint64_t columns) const;
  virtual Result<Histogram> HistogramOf(RowRef row) const = 0;

  /// Scalars of one tensor (kind scalar), in step order.
  struct ScalarPoint {
    int64_t global_step = 0;
    format::SubKey sub;
    double value = 0;
  };
  virtual std::span<const ScalarPoint> ScalarsOf(format::TensorId tensor) const = 0;
  struct TensorScalar {
    format::TensorId tensor = 0;
    format::SubKey sub;
    double value = 0;
  };
  /// Scalars of one step, by tensor, without making a list of other steps. Valid until the next call.
  virtual std::span<const TensorScalar> ScalarsAt(int64_t global_step) const = 0;

  virtual std::span<const RawRef> RawsOf(format::TensorId tensor) const = 0;  ///< in step order
  /// At least those raw values at whose steps the tensor has no row. There are hardly ever any, and then no
  /// list of all raw values is made.
  virtual std::span<const RawRef> LoneRawsOf(format::TensorId tensor) const { return RawsOf(tensor); }
  /// Those of one step. Valid until the next call.
  virtual std::span<const RawRef> RawsAt(format::TensorId tensor, int64_t global_step) const;
  /// Reads and verifies. \error kDataLoss  the checksum does not match (the damage is recorded).
  virtual Result<RawValue> ReadRaw(const RawRef& ref) = 0;
  /// The same without reading or verifying bytes that lie in a mapped file, so that a part of a large value
  /// costs only the pages that the caller touches.
  virtual Result<RawValue> MapRaw(const RawRef& ref) { return ReadRaw(ref); }
  virtual std::span<const int64_t> ShapeOf(const RawRef& ref) const = 0;

  /// A number that was asked for by name and stored as it is (smdebug's reductions), for ReadRaw.
  struct SavedReduction {
    std::string_view name;  ///< "mean", "l2", ... smdebug's
    bool absolute = false;  ///< of the absolute values
    RawRef ref;
  };
  virtual std::vector<SavedReduction> ReductionsOf(format::TensorId tensor, int64_t global_step) const {
    (void)tensor, (void)global_step;
    return {};
  }
  /// The shape that was saved beside or instead of the value (smdebug's save_shape).
  virtual std::optional<std::vector<int64_t>> SavedShapeOf(format::TensorId tensor,
                                                           int64_t global_step) const {
    (void)tensor, (void)global_step;
    return std::nullopt;
  }
  /// Global steps at which there is one, ascending. The span lives until the reader's next call.
  virtual std::span<const int64_t> SavedShapeSteps(format::TensorId tensor) const {
    (void)tensor;
    return {};
  }
};

}  // namespace tdbg::store
