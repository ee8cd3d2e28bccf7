// Rows of tensors of which a step keeps the value alone, as where smdebug's hooks save: their statistics are
// made of the values when somebody asks for that step.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "format/columns.h"
#include "store/reader/worker_reader.h"
#include "tdbg/status.h"
#include "tdbg/summary.h"
#include "trial/access.h"
#include "trial/parts.h"

namespace tdbg {

/// One worker's. Keeps the rows of the steps that were asked for last, 64 of them and 65536 rows of 200
/// bytes, at least those of one step: whoever goes from step to step computes each once.
class ComputedRows {
 public:
  /// Of one step, by tensor. Valid until At is called again.
  struct Step : format::SummaryColumns<ColumnItems> {
    int64_t global_step = 0;
    uint32_t batch_index = 0;  ///< for RowRef::batch; no batch of a reader has it
    store::SummaryBatch batch;
    std::vector<uint64_t> unknown;
    std::vector<store::RawRef> raws;  ///< by row: where its value lies
    size_t commits = 0;               ///< the worker's commits of the step that were looked at
    uint64_t rewrites = 0;
  };

  /// \param rows     those of the step that are stored: their tensors get none here
  /// \param batches  of the reader, that `rows` are in
  /// \return null where no tensor has a value alone. Reads each value that has; a look at each tensor's raw
  /// values
  ///         otherwise, and none at a step that keeps no value.
  template <typename Ranges>
  const Step* At(store::WorkerReader& reader, int64_t global_step, const Ranges& rows) {
    if (!KeepsValues(reader, global_step)) return nullptr;
    if (const Step* known = Known(reader, global_step)) return known->batch.rows == 0 ? nullptr : known;
    has_row_.assign(reader.tensors().size(), 0);
    const std::span<const store::SummaryBatch> batches = reader.summaries();
    for (const auto& range : rows) {
      for (uint32_t i = range.begin; i < range.end; ++i) has_row_[batches[range.batch].tensor[i]] = 1;
    }
    const Step& made = Make(reader, global_step);
    return made.batch.rows == 0 ? nullptr : &made;
  }

  static bool IsOf(store::WorkerReader::RowRef row) { return row.batch >= kFirstIndex; }
  /// Counted from the value. \pre IsOf(row), of a step that is still kept
  Result<Histogram> HistogramOf(store::WorkerReader& reader, store::WorkerReader::RowRef row);

 private:
  static constexpr uint32_t kFirstIndex = uint32_t{1} << 31;

  static bool KeepsValues(const store::WorkerReader& reader, int64_t global_step);
  const Step* Known(const store::WorkerReader& reader, int64_t global_step);
  const Step& Make(store::WorkerReader& reader, int64_t global_step);
  void AddRow(store::WorkerReader& reader, const store::RawRef& ref, Step* step);

  std::vector<std::unique_ptr<Step>> steps_;  // as they were asked for
  size_t rows_ = 0;
  uint32_t next_index_ = kFirstIndex;
  std::vector<uint8_t> has_row_;  // by the reader's ids, of the step at hand
  std::unique_ptr<Summarizer> summarizer_;
};

}  // namespace tdbg
