// The columns of a segment, each said once. The writer lays them by this list, readers find them by it, `tdbg
// dump` names fields by it, Python is told of it, and a test holds the tables of docs/format.md against it.
// README.md beside this file says how one is added.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "format/records.h"
#include "tdbg/tensor.h"

// Of each: its name (the key is "<prefix>/<name>"), its type, whether a segment may lack it (ColumnNeed); in
// step/ the field of Commit, in summary/ how rows merge (ColumnMerge); last, what it says.
// clang-format off

/// One row a commit, in order.
#define TDBG_STEP_COLUMNS(X)                                                                           \
  X(global,          int64_t,  kKey,      global_step,     "the global step")                          \
  X(mode_step,       int64_t,  kKey,      mode_step,       "the step by its mode's own count")         \
  X(wall_nanos,      int64_t,  kRequired, wall_nanos,      "when it was committed, by the wall clock") \
  X(monotonic_nanos, int64_t,  kRequired, monotonic_nanos, "the same by a clock that is never set")    \
  X(mode,            uint16_t, kKey,      mode,            "1 TRAIN, 2 EVAL, 3 PREDICT, 4 GLOBAL")     \
  X(flags,           uint32_t, kKey,      flags,           "the commit's")                             \
  X(shed,            uint32_t, kRequired, shed,            "what was dropped of it")                       \
  X(summary_rows,    uint32_t, kOptional, summary_rows,    "its rows of `summary/`")                   \
  X(scalar_rows,     uint32_t, kOptional, scalar_rows,     "its rows of `scalar/`")                    \
  X(raw_tensors,     uint32_t, kOptional, raw_tensors,     "its raw tensors")

/// One row a summary; the first step/summary_rows are the first commit's, and so on. FIELD is a field of
/// SummaryRow, STEP the step of the record that had the row, STATISTIC a field of SummaryRow and of Summary.
#define TDBG_SUMMARY_LIST(FIELD, STEP, STATISTIC)                                                            \
  FIELD(tensor,              uint32_t, kKey,      kEqual,     "id of its definition")                        \
  STEP(step_first,           int64_t,  kKey,      kLeast,     "the first global step that it tells of")      \
  STEP(step_last,            int64_t,  kKey,      kGreatest,  "the last global step that it tells of")       \
  FIELD(level,               uint32_t, kKey,      kEqual,     "0: one step")                                 \
  FIELD(sub,                 uint16_t, kKey,      kEqual,     "0: the step's own; n + 1: micro-step n")      \
  FIELD(point,               uint16_t, kKey,      kEqual,     "0: none; see **sub** and **point**")          \
  FIELD(flags,               uint32_t, kRequired, kBits,      "as in a summary row of the journal")          \
  STATISTIC(count,           uint64_t, kRequired, kSum,       "elements")                                    \
  STATISTIC(nan_count,       uint64_t, kRequired, kSum,       "elements that are NaN")                       \
  STATISTIC(pos_inf_count,   uint64_t, kRequired, kSum,       "elements that are +infinity")                 \
  STATISTIC(neg_inf_count,   uint64_t, kRequired, kSum,       "elements that are -infinity")                 \
  STATISTIC(zero_count,      uint64_t, kRequired, kSum,       "elements that are +0 or -0")                  \
  STATISTIC(min,             double,   kRequired, kLeast,     "least element")                               \
  STATISTIC(max,             double,   kRequired, kGreatest,  "greatest element")                            \
  STATISTIC(mean,            double,   kRequired, kMoment,    "mean")                                        \
  STATISTIC(variance,        double,   kRequired, kMoment,    "second central moment, divides by n")         \
  STATISTIC(m3,              double,   kRequired, kMoment,    "third central moment, divides by n")          \
  STATISTIC(m4,              double,   kRequired, kMoment,    "fourth central moment, divides by n")         \
  STATISTIC(l1,              double,   kRequired, kSum,       "sum of magnitudes")                           \
  STATISTIC(l2,              double,   kRequired, kNorm,      "root of the sum of squares")                  \
  STATISTIC(abs_min,         double,   kRequired, kLeast,     "least magnitude")                             \
  STATISTIC(abs_max,         double,   kRequired, kGreatest,  "greatest magnitude")                          \
  FIELD(histogram_offset,    uint64_t, kRequired, kHistogram, "its histogram's place in `summary/histogram`") \
  FIELD(histogram_bytes,     uint32_t, kRequired, kHistogram, "its histogram's length; 0: none was kept")

/// One row a scalar, by commits likewise.
#define TDBG_SCALAR_LIST(FIELD, STEP)                                          \
  FIELD(tensor, uint32_t, kKey,      "id of its definition")                   \
  STEP(step,    int64_t,  kKey,      "the global step")                        \
  FIELD(sub,    uint16_t, kKey,      "0: the step's own; n + 1: micro-step n") \
  FIELD(point,  uint16_t, kKey,      "0: none; see **sub** and **point**")     \
  FIELD(value,  double,   kRequired, "the number")
// clang-format on

#define TDBG_NO_COLUMN(...)
#define TDBG_SUMMARY_COLUMNS(X) TDBG_SUMMARY_LIST(X, X, X)
#define TDBG_STATISTICS(X) TDBG_SUMMARY_LIST(TDBG_NO_COLUMN, TDBG_NO_COLUMN, X)

namespace tdbg::format {

/// What a segment without the column is worth.
enum class ColumnNeed : uint8_t {
  kKey,       ///< it says whose row it is: without it no row of the prefix can be told from its neighbour
  kRequired,  ///< it is damage, and costs this column alone
  kOptional,  ///< it is whole: nothing is found by this column, or earlier minors did not have it
};

/// What becomes of the values when rows become one: shards of one tensor, or the steps of a higher level.
enum class ColumnMerge : uint8_t {
  kEqual,  ///< rows become one only where they agree in it
  kLeast,
  kGreatest,
  kSum,
  kBits,       ///< those of any
  kMoment,     ///< by the pairwise formulas of Chan and Pebay, see tdbg::Merge
  kNorm,       ///< root of the sum of the squares
  kHistogram,  ///< counts by bucket
};

enum class SummaryColumn : int {
#define TDBG_COLUMN(name, ...) k_##name,
  TDBG_SUMMARY_COLUMNS(TDBG_COLUMN)
#undef TDBG_COLUMN
      kCount,
};

enum class ScalarColumn : int {
#define TDBG_COLUMN(name, ...) k_##name,
  TDBG_SCALAR_LIST(TDBG_COLUMN, TDBG_COLUMN)
#undef TDBG_COLUMN
};

/// Sets of columns of summary/ are masks.
constexpr uint64_t ColumnBit(SummaryColumn column) { return uint64_t{1} << static_cast<int>(column); }

template <typename T>
constexpr DType DTypeOf() {
  if constexpr (std::is_same_v<T, uint16_t>) return DType::kUInt16;
  if constexpr (std::is_same_v<T, uint32_t>) return DType::kUInt32;
  if constexpr (std::is_same_v<T, uint64_t>) return DType::kUInt64;
  if constexpr (std::is_same_v<T, int64_t>) return DType::kInt64;
  if constexpr (std::is_same_v<T, double>) return DType::kFloat64;
}

/// One column, and the field of the journal's row (SummaryRow, ScalarRow, Commit) that it is made of.
struct Column {
  std::string_view key;   ///< "summary/mean"
  std::string_view name;  ///< "mean"
  DType dtype = DType::kInvalid;
  ColumnNeed need = ColumnNeed::kRequired;
  std::string_view says;   ///< half a sentence, for people
  std::string_view field;  ///< empty: the step of the row's record
  uint16_t field_offset = 0;
  DType field_dtype = DType::kInvalid;  ///< as the column's, but for histogram_offset: of its record there
  ColumnMerge merge = ColumnMerge::kEqual;  ///< of summary/
  bool is_statistic = false;                ///< a field of tdbg::Summary
};

#define TDBG_FIELD(Row, field) #field, offsetof(Row, field), DTypeOf<decltype(Row::field)>()
#define TDBG_NO_FIELD "", 0, DType::kInvalid

inline constexpr auto kStepColumns = std::to_array<Column>({
#define TDBG_COLUMN(name, type, need, field, says) \
  {"step/" #name, #name, DTypeOf<type>(), ColumnNeed::need, says, TDBG_FIELD(Commit, field)},
    TDBG_STEP_COLUMNS(TDBG_COLUMN)
#undef TDBG_COLUMN
});

inline constexpr auto kSummaryColumns = std::to_array<Column>({
#define TDBG_COLUMN(name, type, need, merge, says, is_statistic, ...)                     \
  {"summary/" #name,   #name,       DTypeOf<type>(), ColumnNeed::need, says, __VA_ARGS__, \
   ColumnMerge::merge, is_statistic},
#define TDBG_OF_ROW(name, type, need, merge, says) \
  TDBG_COLUMN(name, type, need, merge, says, false, TDBG_FIELD(SummaryRow, name))
#define TDBG_OF_RECORD(name, type, need, merge, says) \
  TDBG_COLUMN(name, type, need, merge, says, false, TDBG_NO_FIELD)
#define TDBG_STATISTIC(name, type, need, merge, says) \
  TDBG_COLUMN(name, type, need, merge, says, true, TDBG_FIELD(SummaryRow, name))
    TDBG_SUMMARY_LIST(TDBG_OF_ROW, TDBG_OF_RECORD, TDBG_STATISTIC)
#undef TDBG_STATISTIC
#undef TDBG_OF_RECORD
#undef TDBG_OF_ROW
#undef TDBG_COLUMN
});
/// All histograms' bytes, one behind the other: as long as they are, whatever the rows.
inline constexpr std::string_view kHistogramsKey = "summary/histogram";

inline constexpr auto kScalarColumns = std::to_array<Column>({
#define TDBG_OF_ROW(name, type, need, says) \
  {"scalar/" #name, #name, DTypeOf<type>(), ColumnNeed::need, says, TDBG_FIELD(ScalarRow, name)},
#define TDBG_OF_RECORD(name, type, need, says) \
  {"scalar/" #name, #name, DTypeOf<type>(), ColumnNeed::need, says, TDBG_NO_FIELD},
    TDBG_SCALAR_LIST(TDBG_OF_ROW, TDBG_OF_RECORD)
#undef TDBG_OF_RECORD
#undef TDBG_OF_ROW
});
#undef TDBG_NO_FIELD
#undef TDBG_FIELD

constexpr const Column& ColumnOf(SummaryColumn column) {
  return kSummaryColumns[static_cast<size_t>(column)];
}
constexpr const Column& ColumnOf(ScalarColumn column) { return kScalarColumns[static_cast<size_t>(column)]; }

namespace columns_internal {
template <typename Is>
constexpr uint64_t MaskOf(Is is) {
  uint64_t mask = 0;
  for (size_t i = 0; i < kSummaryColumns.size(); ++i)
    mask |= is(kSummaryColumns[i]) ? ColumnBit(static_cast<SummaryColumn>(i)) : 0;
  return mask;
}
}  // namespace columns_internal

/// Damage to one of them costs all rows of a segment.
inline constexpr uint64_t kKeyColumns =
    columns_internal::MaskOf([](const Column& column) { return column.need == ColumnNeed::kKey; });
/// The numbers of a row, without what only says whose row it is.
inline constexpr uint64_t kStatisticColumns =
    columns_internal::MaskOf([](const Column& column) { return column.is_statistic; });

/// One thing for each column of summary/, by its name: a pointer to its items, or a vector of them.
template <template <typename> typename Of>
struct SummaryColumns {
#define TDBG_COLUMN(name, type, ...) Of<type> name{};
  TDBG_SUMMARY_COLUMNS(TDBG_COLUMN)
#undef TDBG_COLUMN
};

/// Calls f(SummaryColumn, rows.<name>...) for each column of summary/, in the list's order.
template <typename F, typename... Rows>
constexpr void ForEachSummaryColumn(F&& f, Rows&&... rows) {
#define TDBG_COLUMN(name, ...) f(SummaryColumn::k_##name, rows.name...);
  TDBG_SUMMARY_COLUMNS(TDBG_COLUMN)
#undef TDBG_COLUMN
}

/// Calls f(of.<name>...) for each statistic: of a tdbg::Summary, a SummaryRow, SummaryColumns.
template <typename F, typename... Of>
constexpr void ForEachStatistic(F&& f, Of&&... of) {
#define TDBG_COLUMN(name, ...) f(of.name...);
  TDBG_STATISTICS(TDBG_COLUMN)
#undef TDBG_COLUMN
}

}  // namespace tdbg::format
