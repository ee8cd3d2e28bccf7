// The columns that a rule reads (Rule::Columns). A row made of saved reductions has some of them only.
#pragma once

#include <cstdint>
#include <string>

#include "format/columns.h"
#include "store/reader/worker_reader.h"

namespace tdbg::columns {

constexpr uint64_t Bit(format::SummaryColumn column) { return format::ColumnBit(column); }

inline constexpr uint64_t kCount = Bit(format::SummaryColumn::k_count);
inline constexpr uint64_t kZeroCount = Bit(format::SummaryColumn::k_zero_count);
inline constexpr uint64_t kMean = Bit(format::SummaryColumn::k_mean);
inline constexpr uint64_t kVariance = Bit(format::SummaryColumn::k_variance);
/// Whether all elements are finite.
inline constexpr uint64_t kFinite = Bit(format::SummaryColumn::k_nan_count) |
                                    Bit(format::SummaryColumn::k_pos_inf_count) |
                                    Bit(format::SummaryColumn::k_neg_inf_count);
/// The mean absolute value; it may be known where neither l1 nor count is.
inline constexpr uint64_t kMeanAbs = store::kMeanAbsUnknown;

/// "zero_count, mean_abs"
std::string Names(uint64_t columns);

inline bool IsKnown(const store::SummaryBatch& batch, uint32_t row, uint64_t columns) {
  return batch.unknown == nullptr || (batch.unknown[row] & columns) == 0;
}

}  // namespace tdbg::columns
