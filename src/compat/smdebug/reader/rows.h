// Summaries of values and of saved reductions, made when somebody asks for their step: smdebug keeps none.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "compat/smdebug/reader/part.h"
#include "store/reader/worker_reader.h"
#include "tdbg/summary.h"

namespace tdbg::compat::smdebug {

/// 20 bytes a row (a tensor at a step, with a value or at least one reduction) until it is prepared, 150
/// then.
class Rows {
 public:
  /// Reads an entry of the step file. Whoever provides it reports damage.
  using Read = std::function<Result<store::RawValue>(const StepFile&, const Entry&)>;

  Rows(const Part& part, Read read);
  ~Rows();

  std::span<const store::SummaryBatch> batches();
  std::span<const store::WorkerReader::RowRef> Of(format::TensorId tensor);
  void Prepare(uint32_t batch, uint32_t begin, uint32_t end);
  /// The rows of one tensor at steps [begin, end), prepared, in batches of their own: 170 bytes for each of
  /// its rows, where Prepare needs as much for every other tensor's of those steps.
  store::WorkerReader::PreparedRows Series(format::TensorId tensor, int64_t begin, int64_t end);
  /// Counted from the saved value. \error kNotFound  only reductions were saved
  Result<Histogram> HistogramOf(store::WorkerReader::RowRef row);

 private:
  struct Batch;
  struct SeriesOfTensor {
    size_t commits_done = 0;
    std::vector<std::unique_ptr<Batch>> storage;  // all but the last have kMaxRows rows
    std::vector<store::SummaryBatch> batches;
    std::vector<store::WorkerReader::RowRef> rows;
  };

  void BringUpToDate();
  void ForgetIfReordered();
  void PrepareRow(Batch& batch, uint32_t row);

  const Part& part_;
  Read read_;
  uint64_t reordered_ = 0;
  size_t commits_done_ = 0;
  std::vector<std::unique_ptr<Batch>> storage_;
  std::vector<store::SummaryBatch> batches_;
  std::vector<std::vector<store::WorkerReader::RowRef>> rows_of_;  // by tensor
  std::map<format::TensorId, SeriesOfTensor> series_;
  std::unique_ptr<Summarizer> summarizer_;
};

}  // namespace tdbg::compat::smdebug
