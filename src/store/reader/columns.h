// The columns of a summary batch, named as in a segment ("summary/<name>").
#pragma once

#include <cstdint>

/// X(name, element type), in the order of their bits in SummaryBatch::damaged.
// clang-format off
#define TDBG_SUMMARY_COLUMNS(X) \
  X(tensor, uint32_t)           \
  X(step_first, int64_t)        \
  X(step_last, int64_t)         \
  X(level, uint32_t)            \
  X(sub, uint16_t)              \
  X(point, uint16_t)            \
  X(flags, uint32_t)            \
  X(count, uint64_t)            \
  X(nan_count, uint64_t)        \
  X(pos_inf_count, uint64_t)    \
  X(neg_inf_count, uint64_t)    \
  X(zero_count, uint64_t)       \
  X(min, double)                \
  X(max, double)                \
  X(mean, double)               \
  X(variance, double)           \
  X(m3, double)                 \
  X(m4, double)                 \
  X(l1, double)                 \
  X(l2, double)                 \
  X(abs_min, double)            \
  X(abs_max, double)            \
  X(histogram_offset, uint64_t) \
  X(histogram_bytes, uint32_t)
// clang-format on

namespace tdbg::store {

enum class SummaryColumn : int {
#define TDBG_COLUMN(name, type) k_##name,
  TDBG_SUMMARY_COLUMNS(TDBG_COLUMN)
#undef TDBG_COLUMN
      kCount,
};

constexpr uint64_t ColumnBit(SummaryColumn column) { return uint64_t{1} << static_cast<int>(column); }

/// Without these a row cannot be told from its neighbour: damage to one costs the segment's summaries.
inline constexpr uint64_t kKeyColumns =
    ColumnBit(SummaryColumn::k_tensor) | ColumnBit(SummaryColumn::k_step_first) |
    ColumnBit(SummaryColumn::k_step_last) | ColumnBit(SummaryColumn::k_level) |
    ColumnBit(SummaryColumn::k_sub) | ColumnBit(SummaryColumn::k_point);

/// Bits of SummaryBatch::unknown beyond the columns'.
inline constexpr uint64_t kMeanAbsUnknown = uint64_t{1} << 60;
inline constexpr uint64_t kUnreadable = uint64_t{1} << 61;    ///< damaged: the reader's damage() says how
inline constexpr uint64_t kNoStatistics = uint64_t{1} << 62;  ///< a type that has none (text, complex)
static_assert(static_cast<int>(SummaryColumn::kCount) < 60);

const char* ColumnName(SummaryColumn column);

}  // namespace tdbg::store
