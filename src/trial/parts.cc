#include "trial/parts.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

namespace tdbg {
namespace {

uint64_t Elements(const std::vector<int64_t>& shape) {
  uint64_t n = 1;
  for (const int64_t extent : shape) {
    if (__builtin_mul_overflow(n, static_cast<uint64_t>(extent), &n)) return ~uint64_t{0};
  }
  return n;
}

/// Copies a part's rows (runs along the last axis) to their place in the whole.
Status CopyPart(const format::TensorDef& def, const TensorValue& part, std::byte* whole) {
  const size_t rank = def.whole_shape.size(), item = ItemSize(part.dtype);
  for (size_t axis = 0; axis < rank; ++axis) {
    const int64_t begin = def.part_begin[axis], extent = part.shape[axis], all = def.whole_shape[axis];
    if (begin > all || extent > all - begin) {
      return DataLoss("the part of '" + def.name + "' does not lie inside of it along axis " +
                      std::to_string(axis));
    }
  }
  if (part.view.element_count() == 0) return OkStatus();
  std::vector<int64_t> strides(rank, 1), at(rank, 0);
  for (size_t axis = rank; axis-- > 1;) strides[axis - 1] = strides[axis] * def.whole_shape[axis];
  const auto* from = static_cast<const std::byte*>(part.data);
  const size_t run = static_cast<size_t>(part.shape[rank - 1]) * item;
  while (true) {
    int64_t offset = 0;
    for (size_t axis = 0; axis < rank; ++axis) offset += (def.part_begin[axis] + at[axis]) * strides[axis];
    std::memcpy(whole + static_cast<size_t>(offset) * item, from, run);
    from += run;
    size_t axis = rank - 1;  // the last one was copied whole
    while (axis > 0 && ++at[axis - 1] == part.shape[axis - 1]) at[--axis] = 0;
    if (axis == 0) return OkStatus();
  }
}

}  // namespace

bool PartsTaken::Take(const format::TensorDef& def, uint64_t elements) {
  for (const format::TensorDef* other : parts_) {
    if (other->part_begin == def.part_begin || other->whole_shape != def.whole_shape) return false;
  }
  parts_.push_back(&def);
  elements_ += elements;
  return true;
}

bool PartsTaken::whole() const {
  return !parts_.empty() && elements_ == Elements(parts_.front()->whole_shape);
}

void MergedRows::Clear() {
  format::ForEachSummaryColumn([](format::SummaryColumn, auto& column) { column.clear(); }, *this);
  tensor_of.clear();
  sources.clear();
}

void MergedRows::Add(TensorIndex of, const store::SummaryBatch& like, uint32_t like_row,
                     const Summary& summary, bool histograms, uint32_t flags_of_all,
                     std::vector<Source> from) {
  format::ForEachSummaryColumn(
      [like_row](format::SummaryColumn, auto& column, const auto* row) { column.push_back(row[like_row]); },
      *this, like);
  format::ForEachStatistic([](auto& column, auto number) { column.back() = number; }, *this, summary);
  tensor.back() = static_cast<uint32_t>(tensor_of.size());
  tensor_of.push_back(of);
  flags.back() = flags_of_all;
  histogram_offset.back() = 0;
  histogram_bytes.back() = histograms ? 1 : 0;  // there is one: TrialAccess::HistogramOf merges it
  sources.push_back(std::move(from));
}

void MergedRows::PointAtColumns() {
  batch = {};
  batch.rows = tensor.size();
  format::ForEachSummaryColumn(
      [](format::SummaryColumn, auto& pointer, const auto& column) { pointer = column.data(); }, batch,
      *this);
}

Result<TensorValue> Assemble(const std::vector<std::pair<const format::TensorDef*, TensorValue>>& parts) {
  const format::TensorDef& first = *parts.front().first;
  TensorValue whole;
  whole.dtype = parts.front().second.dtype;
  whole.shape = first.whole_shape;
  // No more bytes than the parts, which are in memory already: a hostile shape cannot make us allocate.
  const auto bytes = std::make_shared<std::vector<std::byte>>(Elements(whole.shape) * ItemSize(whole.dtype));
  for (const auto& [def, part] : parts) {
    if (part.dtype != whole.dtype || part.shape != def->shape) {
      return DataLoss("parts of '" + def->name + "' do not have the type and shape that they should");
    }
    TDBG_RETURN_IF_ERROR(CopyPart(*def, part, bytes->data()));
  }
  whole.data = bytes->data();
  whole.owner = bytes;
  whole.view = {whole.data, whole.dtype, whole.shape, {}};
  return whole;
}

}  // namespace tdbg
