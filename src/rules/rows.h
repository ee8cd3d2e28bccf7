// Statistics of one step for rules: read by index, whatever the storage is.
#pragma once

#include <cstdint>

#include "tdbg/summary.h"
#include "trial/access.h"
#include "trial/columns.h"

namespace tdbg::rules {

/// One row: the statistics of one tensor by one worker. Valid as long as the StepContext that showed it.
class Row {
 public:
  Row(const TrialAccess::Row& row, WorkerIndex shown)
      : tensor(row.tensor), worker(shown), sub(row.sub), row_(row) {}

  TensorIndex tensor;
  WorkerIndex worker;  ///< the same one in every attempt: see StepContext
  SubKey sub;

  Summary summary() const { return row_.summary(); }
#define TDBG_COLUMN(name, type, ...) \
  type name() const { return row_.batch->name[row_.ref.row]; }
  TDBG_STATISTICS(TDBG_COLUMN)
#undef TDBG_COLUMN
  uint64_t nonfinite_count() const { return row_.nonfinite_count(); }
  bool has_histogram() const { return row_.has_histogram(); }
  bool histogram_shed() const { return row_.histogram_shed(); }
  bool Knows(uint64_t columns) const { return columns::IsKnown(*row_.batch, row_.ref.row, columns); }

  const TrialAccess::Row& in_trial() const { return row_; }

 private:
  TrialAccess::Row row_;
};

/// Rows [begin(), end()) of one worker, read column by column: for rules that look at a million rows. Pass it
/// by value: a copy costs no more than a pointer, and loops over it are faster. Valid as long as the
/// StepContext that it came from.
class Rows {
 public:
  explicit Rows(const TrialAccess::RowSpan& span) : Rows(span, span.worker) {}
  Rows(const TrialAccess::RowSpan& span, WorkerIndex shown) : span_(span), worker_(shown) {}

  WorkerIndex worker() const { return worker_; }
  uint32_t begin() const { return span_.begin; }
  uint32_t end() const { return span_.end; }

  TensorIndex tensor(uint32_t row) const { return span_.tensor_of[span_.batch->tensor[row]]; }
  uint16_t sub(uint32_t row) const { return span_.batch->sub[row]; }
  Point point(uint32_t row) const { return static_cast<Point>(span_.batch->point[row]); }
  /// One accessor per statistic: count(row), mean(row), ... An unknown value reads as NaN or 0. Values of
  /// columns that the rule's Columns() lists are always known: rows that lack one are not shown to the rule.
#define TDBG_COLUMN(name, type, ...) \
  type name(uint32_t row) const { return span_.batch->name[row]; }
  TDBG_STATISTICS(TDBG_COLUMN)
#undef TDBG_COLUMN
  bool is_finite(uint32_t row) const {
    return (nan_count(row) | pos_inf_count(row) | neg_inf_count(row)) == 0;
  }
  /// Whether the tensor is known to have no elements.
  bool is_empty(uint32_t row) const {
    return count(row) == 0 && columns::IsKnown(*span_.batch, row, columns::kCount);
  }
  /// Mean of |x| over all elements. \pre is_finite(row)
  double mean_abs(uint32_t row) const {
    return span_.batch->mean_abs != nullptr ? span_.batch->mean_abs[row]
                                            : l1(row) / static_cast<double>(count(row));
  }
  Summary summary(uint32_t row) const { return span_.batch->at(row); }

  Row at(uint32_t row) const { return Row(span_.row(row), worker_); }

 private:
  TrialAccess::RowSpan span_;
  WorkerIndex worker_;
};

}  // namespace tdbg::rules
