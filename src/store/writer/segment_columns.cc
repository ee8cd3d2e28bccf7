// The columns of a segment, laid by the list of format/columns.h.
#include <span>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/hash.h"
#include "format/columns.h"
#include "store/writer/column_writer.h"
#include "store/writer/segment_builder_impl.h"

namespace tdbg::store {
namespace {

using format::Column;

// In the journal offsets count from the record's histograms, here from the segment's.
template <typename Records>
void LayHistogramOffsets(const Records& summaries, ColumnWriter* to) {
  uint64_t begin = 0;
  for (const auto& record : summaries) {
    to->Fill<uint64_t>(record.view.row_count, [&](uint64_t i) {
      const std::byte* row = record.view.rows.data() + i * sizeof(format::SummaryRow);
      const auto offset = base::Load<uint32_t>(row + offsetof(format::SummaryRow, histogram_offset));
      const auto length = base::Load<uint32_t>(row + offsetof(format::SummaryRow, histogram_bytes));
      return length == 0 ? 0 : begin + offset;
    });
    begin += record.view.histograms.size();
  }
}

// A field of each of a record's rows. Of a known size, a copy is one move.
template <size_t kItemBytes, typename Records, typename RowsOf>
void LayField(const Column& column, size_t row_bytes, const Records& records, RowsOf rows_of,
              ColumnWriter* to) {
  for (const auto& record : records) {
    const auto [first, count] = rows_of(record);
    to->Copy<kItemBytes>(first + column.field_offset, row_bytes, count);
  }
}

/// \param rows_of  record -> its first row, and how many there are
template <typename Records, typename RowsOf>
void LayField(const Column& column, size_t row_bytes, const Records& records, RowsOf rows_of,
              ColumnWriter* to) {
  switch (ItemSize(column.dtype)) {  // DTypeOf gives no other
    case 2:
      return LayField<2>(column, row_bytes, records, rows_of, to);
    case 4:
      return LayField<4>(column, row_bytes, records, rows_of, to);
    default:
      return LayField<8>(column, row_bytes, records, rows_of, to);
  }
}

/// The step of each row's record.
template <typename Records, typename RowsOf>
void LaySteps(const Records& records, RowsOf rows_of, ColumnWriter* to) {
  for (const auto& record : records)
    to->Fill<int64_t>(rows_of(record).second, [&](uint64_t) { return record.step; });
}

/// Calls f(key, dtype, rows, lay) for each column in the order in which they are laid; lay(ColumnWriter*)
/// puts its items.
template <typename Content, typename F>
void ForEachColumn(const Content& c, F&& f) {
  const auto commits_of = [](const std::vector<format::Commit>& all) {
    return std::pair(reinterpret_cast<const std::byte*>(all.data()), uint64_t{all.size()});
  };
  for (const Column& column : format::kStepColumns) {
    f(column.key, column.dtype, c.commits.size(), [&](ColumnWriter* to) {
      LayField(column, sizeof(format::Commit), std::span(&c.commits, 1), commits_of, to);
    });
  }
  const auto summaries_of = [](const auto& record) {
    return std::pair(record.view.rows.data(), uint64_t{record.view.row_count});
  };
  for (const Column& column : format::kSummaryColumns) {
    f(column.key, column.dtype, c.summary_rows, [&](ColumnWriter* to) {
      if (column.field.empty()) return LaySteps(c.summaries, summaries_of, to);
      if (&column == &ColumnOf(format::SummaryColumn::k_histogram_offset))
        return LayHistogramOffsets(c.summaries, to);
      LayField(column, sizeof(format::SummaryRow), c.summaries, summaries_of, to);
    });
  }
  f(format::kHistogramsKey, DType::kUInt8, c.histogram_bytes, [&](ColumnWriter* to) {
    for (const auto& record : c.summaries) to->Append(record.view.histograms);
  });
  const auto scalars_of = [](const auto& record) {
    return std::pair(record.rows.data(), uint64_t{record.count()});
  };
  for (const Column& column : format::kScalarColumns) {
    f(column.key, column.dtype, c.scalar_rows, [&](ColumnWriter* to) {
      if (column.field.empty()) return LaySteps(c.scalars, scalars_of, to);
      LayField(column, sizeof(format::ScalarRow), c.scalars, scalars_of, to);
    });
  }
}

}  // namespace

Status SegmentBuilder::LayColumns() {
  Content& c = *content_;
  // The size is computed by the same walk that lays the columns: none can be laid that was not counted.
  uint64_t bytes = 0;
  ForEachColumn(c, [&](std::string_view, DType dtype, uint64_t rows, const auto&) {
    bytes = base::AlignUp(bytes, 8) + rows * ItemSize(dtype);
  });
  c.columns.resize(bytes);
  uint64_t at = 0;
  Status status;
  ForEachColumn(c, [&](std::string_view key, DType dtype, uint64_t rows, const auto& lay) {
    at = base::AlignUp(at, 8);
    const std::span<std::byte> room = std::span(c.columns).subspan(at, rows * ItemSize(dtype));
    at += room.size();
    ColumnWriter writer(room);
    lay(&writer);
    if (!writer.exact()) status = Internal(std::string(key) + ": not as many rows as were counted");
    Piece& p = c.pieces.emplace_back();
    p.entry.key = key;
    p.entry.dtype = format::SegmentDType(dtype);
    p.entry.shape = {static_cast<int64_t>(rows)};
    p.dtype = dtype;
    p.item_bytes = ItemSize(dtype);
    p.bytes = room;
    p.hash = base::Hash64(room);
  });
  return status;
}

}  // namespace tdbg::store
