// What a compiler can hold against the list of columns: nothing that a training process hands over lacks one.
#include "format/columns.h"

#include <span>
#include <type_traits>

#include "tdbg/summary.h"

namespace tdbg::format {
namespace {

constexpr size_t FieldBytes(std::span<const Column> columns) {
  size_t bytes = 0;
  for (const Column& column : columns) {
    const DType dtype = column.field_dtype;
    const size_t item = dtype == DType::kUInt16 ? 2 : dtype == DType::kUInt32 ? 4 : 8;
    bytes += column.field.empty() ? 0 : item;
  }
  return bytes;
}

// The rows have no other field than those of the columns and their reserves.
static_assert(FieldBytes(kSummaryColumns) + sizeof(SummaryRow::reserved) == sizeof(SummaryRow));
static_assert(FieldBytes(kScalarColumns) + sizeof(ScalarRow::reserved) == sizeof(ScalarRow));
static_assert(FieldBytes(kStepColumns) + sizeof(Commit::reserved16) + sizeof(Commit::reserved) ==
              sizeof(Commit));

#define TDBG_COLUMN(name, type, ...)                             \
  static_assert(std::is_same_v<decltype(Summary::name), type> && \
                std::is_same_v<decltype(SummaryRow::name), type>);
TDBG_STATISTICS(TDBG_COLUMN)
#undef TDBG_COLUMN
#define TDBG_COLUMN(name, ...) +sizeof(Summary::name)
static_assert(sizeof(Summary) == TDBG_STATISTICS(TDBG_COLUMN));
#undef TDBG_COLUMN

// What is laid is copied from the field as it is.
constexpr bool AreOfTheirFields(std::span<const Column> columns) {
  for (const Column& column : columns) {
    const bool is_copied =
        !column.field.empty() && column.key != ColumnOf(SummaryColumn::k_histogram_offset).key;
    if (is_copied && column.dtype != column.field_dtype) return false;
  }
  return true;
}
static_assert(AreOfTheirFields(kStepColumns) && AreOfTheirFields(kSummaryColumns) &&
              AreOfTheirFields(kScalarColumns));

}  // namespace
}  // namespace tdbg::format
