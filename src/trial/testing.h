// For tests: rows in memory.
#pragma once

#include <cstdint>
#include <vector>

#include "format/columns.h"
#include "tdbg/summary.h"
#include "trial/access.h"
#include "trial/parts.h"

namespace tdbg {

/// Rows of one worker at one step, as a reader has them.
class MemoryBatch {
 public:
  void Add(uint32_t tensor, const Summary& summary) {
    format::ForEachSummaryColumn([](format::SummaryColumn, auto& column) { column.emplace_back(); },
                                 columns_);
    format::ForEachStatistic([](auto& column, auto number) { column.back() = number; }, columns_, summary);
    columns_.tensor.back() = tensor;
  }
  /// Valid until the next Add.
  TrialAccess::RowSpan Span(const std::vector<TensorIndex>& tensor_of) {
    batch_.rows = columns_.tensor.size();
    format::ForEachSummaryColumn(
        [](format::SummaryColumn, auto& pointer, const auto& column) { pointer = column.data(); }, batch_,
        columns_);
    TrialAccess::RowSpan span;
    span.batch = &batch_;
    span.end = static_cast<uint32_t>(batch_.rows);
    span.tensor_of = tensor_of;
    return span;
  }

 private:
  format::SummaryColumns<ColumnItems> columns_;
  store::SummaryBatch batch_;
};

}  // namespace tdbg
