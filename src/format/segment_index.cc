#include "format/segment_index.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/bytes.h"
#include "base/hash.h"
#include "format/version.h"

namespace tdbg::format {
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kDataAlignment = 64;
constexpr uint64_t kHashedFooterBytes = sizeof(IndexFooter) - sizeof(uint64_t);

uint64_t BlocksOf(uint64_t raws) { return (raws + kIndexBlockRows - 1) / kIndexBlockRows; }

/// Cuts the head into its parts.
class Cutter {
 public:
  explicit Cutter(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename T>
  std::span<const T> Take(uint32_t count) {
    static_assert(alignof(T) <= 8);
    const uint64_t bytes = uint64_t{count} * sizeof(T);
    if (bytes > bytes_.size()) {
      short_ = true;
      return {};
    }
    const std::span<const T> part(reinterpret_cast<const T*>(bytes_.data()), count);
    bytes_ = bytes_.subspan(bytes);
    return part;
  }
  std::string_view TakeText(uint32_t bytes) {
    const auto part = Take<char>(bytes);
    return {part.data(), part.size()};
  }
  bool is_short() const { return short_; }

 private:
  std::span<const std::byte> bytes_;
  bool short_ = false;
};

bool Ascends(std::span<const uint32_t> ends, uint64_t total) {
  return std::is_sorted(ends.begin(), ends.end()) && (ends.empty() ? 0 : ends.back()) == total;
}

/// Rows of a column by its name; 0 where there is none.
uint64_t RowsOf(const SegmentIndex& index, std::string_view name) {
  for (size_t i = 0; i < index.columns.size(); ++i) {
    if (index.ColumnName(i) != name) continue;
    const size_t item = ItemSize(static_cast<DType>(index.columns[i].dtype));
    return item == 0 ? 0 : index.columns[i].bytes / item;
  }
  return 0;
}

Status CheckParts(const SegmentIndex& index) {
  uint32_t name = 0;
  for (const IndexColumn& column : index.columns) {
    if (column.bytes > index.data_bytes || column.begin > index.data_bytes - column.bytes) {
      return DataLoss("index: a column lies outside the data");
    }
    if (column.name_end < name || column.name_end > index.names.size()) return DataLoss("index: names");
    name = column.name_end;
  }
  if (!Ascends(index.layout_ends, index.layout_rows.size())) return DataLoss("index: layouts");
  if (!Ascends(index.definition_ends, index.definitions.size())) return DataLoss("index: definitions");
  if (index.commits.size() != RowsOf(index, "step/global")) return DataLoss("index: steps");
  // Small layouts can stand for any number of rows: what they add up to must be there.
  const uint64_t summary_rows = RowsOf(index, "summary/tensor"), scalar_rows = RowsOf(index, "scalar/tensor");
  if (std::max({summary_rows, scalar_rows, uint64_t{index.raws.size()}}) >
      std::numeric_limits<uint32_t>::max()) {
    return DataLoss("index: more rows than can be numbered");
  }
  uint64_t summaries = 0, scalars = 0, raws = 0;
  for (const IndexCommit& commit : index.commits) {
    const size_t layouts = index.layout_ends.size();
    if (commit.summaries >= layouts || commit.scalars >= layouts || commit.raws >= layouts) {
      return DataLoss("index: a commit of a layout that is not there");
    }
    summaries += index.Layout(commit.summaries).size();
    scalars += index.Layout(commit.scalars).size();
    raws += index.Layout(commit.raws).size();
    if (summaries > summary_rows || scalars > scalar_rows || raws > index.raws.size()) break;
  }
  if (summaries != summary_rows || scalars != scalar_rows || raws != index.raws.size()) {
    return DataLoss("index: the commits' rows are not those of the columns");
  }
  return OkStatus();
}

template <typename T>
void AppendAll(std::span<const T> items, std::string* out) {
  out->append(reinterpret_cast<const char*>(items.data()), items.size_bytes());
}

}  // namespace

std::string_view SegmentIndex::ColumnName(size_t column) const {
  const uint32_t begin = column == 0 ? 0 : columns[column - 1].name_end;
  return names.substr(begin, columns[column].name_end - begin);
}

std::string_view SegmentIndex::Definition(size_t i) const {
  const uint32_t begin = i == 0 ? 0 : definition_ends[i - 1];
  return definitions.substr(begin, definition_ends[i] - begin);
}

std::span<const IndexRow> SegmentIndex::Layout(uint32_t layout) const {
  const uint32_t begin = layout == 0 ? 0 : layout_ends[layout - 1];
  return layout_rows.subspan(begin, layout_ends[layout] - begin);
}

Result<std::span<const int64_t>> SegmentIndex::ShapeOf(uint32_t form) const {
  if (form >= forms.size()) return DataLoss("index: a raw value of no form");
  const IndexForm& f = forms[form];
  if (f.rank > kMaxRank || f.first_extent > extents.size() || f.rank > extents.size() - f.first_extent) {
    return DataLoss("index: a form's rank");
  }
  const std::span<const int64_t> shape = extents.subspan(f.first_extent, f.rank);
  if (std::any_of(shape.begin(), shape.end(), [](int64_t extent) { return extent < 0; })) {
    return DataLoss("index: a form's shape");
  }
  return shape;
}

bool SegmentIndex::Intact(uint64_t row) const {
  const uint64_t block = row / kIndexBlockRows, first = block * kIndexBlockRows;
  if (row >= raws.size() || block >= block_hashes.size()) return false;
  const auto rows = raws.subspan(first, std::min<uint64_t>(kIndexBlockRows, raws.size() - first));
  return base::Hash64(std::as_bytes(rows)) == block_hashes[block];
}

Result<SegmentIndex> DecodeSegmentIndex(std::span<const std::byte> file) {
  if (file.size() < kLengthBytes + sizeof(IndexFooter)) return NotFound("index: none");
  const std::byte* const end = file.data() + file.size();
  const auto footer = base::Load<IndexFooter>(end - sizeof(IndexFooter));
  if (std::memcmp(footer.magic, kIndexMagic, sizeof(kIndexMagic)) != 0) return NotFound("index: none");
  if (base::Hash64({end - sizeof(IndexFooter), kHashedFooterBytes}) != footer.footer_hash) {
    return DataLoss("index: footer");
  }
  if (footer.major > kMajor) return Unimplemented("index: of a newer major version");
  const uint64_t room = file.size() - kLengthBytes - sizeof(IndexFooter);
  if (footer.raws > room / sizeof(IndexRaw) || footer.head_bytes > room - footer.raws * sizeof(IndexRaw) ||
      footer.head_bytes < sizeof(IndexHead) || footer.footer_bytes != sizeof(IndexFooter)) {
    return DataLoss("index: longer than the file");
  }
  SegmentIndex index;
  index.data_bytes = footer.data_bytes;
  const auto header_bytes = base::Load<uint64_t>(file.data());
  if (footer.data_bytes > file.size() || file.size() - footer.data_bytes < kLengthBytes ||
      file.size() - footer.data_bytes - kLengthBytes != header_bytes) {
    return DataLoss("index: the file has another length than it says");
  }
  index.data_offset = kLengthBytes + header_bytes;

  const std::byte* const raws = end - sizeof(IndexFooter) - footer.raws * sizeof(IndexRaw);
  const std::byte* const head_begin = raws - footer.head_bytes;
  if (reinterpret_cast<uintptr_t>(head_begin) % 8 != 0 || footer.head_bytes % 8 != 0) {
    return DataLoss("index: not aligned");
  }
  if (base::Hash64({head_begin, footer.head_bytes}) != footer.head_hash) return DataLoss("index: head");
  const auto counts = base::Load<IndexHead>(head_begin);
  Cutter head({head_begin + sizeof(IndexHead), footer.head_bytes - sizeof(IndexHead)});
  index.columns = head.Take<IndexColumn>(counts.columns);
  index.extents = head.Take<int64_t>(counts.extents);
  index.block_hashes = head.Take<uint64_t>(counts.raw_blocks);
  index.forms = head.Take<IndexForm>(counts.forms);
  index.commits = head.Take<IndexCommit>(counts.commits);
  index.layout_ends = head.Take<uint32_t>(counts.layouts);
  index.layout_rows = head.Take<IndexRow>(counts.layout_rows);
  index.definition_ends = head.Take<uint32_t>(counts.definitions);
  index.names = head.TakeText(counts.names_bytes);
  index.definitions = head.TakeText(counts.definitions_bytes);
  index.meta = head.TakeText(counts.meta_bytes);
  index.first_definition = counts.first_definition;
  if (head.is_short() || counts.raw_blocks != BlocksOf(footer.raws)) {
    return DataLoss("index: its head is too short");
  }
  index.raws = {reinterpret_cast<const IndexRaw*>(raws), footer.raws};
  TDBG_RETURN_IF_ERROR(CheckParts(index));
  return index;
}

void SegmentIndexWriter::AddColumn(std::string_view name, DType dtype, uint64_t begin, uint64_t bytes,
                                   uint64_t hash) {
  names_.append(name);
  columns_.push_back(
      {begin, bytes, hash, static_cast<uint32_t>(names_.size()), static_cast<uint16_t>(dtype), 0});
}

uint32_t SegmentIndexWriter::Form(DType dtype, std::span<const int64_t> shape) {
  const uint64_t hash = base::Hash64(std::as_bytes(shape)) ^ static_cast<uint64_t>(dtype);
  const auto [first, last] = forms_by_hash_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    const IndexForm& form = forms_[it->second];
    if (form.dtype == static_cast<uint16_t>(dtype) && form.rank == shape.size() &&
        std::equal(shape.begin(), shape.end(), extents_.begin() + form.first_extent)) {
      return it->second;
    }
  }
  const auto form = static_cast<uint32_t>(forms_.size());
  forms_.push_back({static_cast<uint16_t>(dtype), static_cast<uint16_t>(shape.size()),
                    static_cast<uint32_t>(extents_.size())});
  extents_.insert(extents_.end(), shape.begin(), shape.end());
  forms_by_hash_.emplace(hash, form);
  return form;
}

uint32_t SegmentIndexWriter::Layout(std::span<const IndexRow> rows) {
  const uint64_t hash = base::Hash64(std::as_bytes(rows));
  const auto [first, last] = layouts_by_hash_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    const uint32_t begin = it->second == 0 ? 0 : layout_ends_[it->second - 1];
    if (layout_ends_[it->second] - begin == rows.size() &&
        std::equal(rows.begin(), rows.end(), layout_rows_.begin() + begin)) {
      return it->second;
    }
  }
  const auto layout = static_cast<uint32_t>(layout_ends_.size());
  layout_rows_.insert(layout_rows_.end(), rows.begin(), rows.end());
  layout_ends_.push_back(static_cast<uint32_t>(layout_rows_.size()));
  layouts_by_hash_.emplace(hash, layout);
  return layout;
}

void SegmentIndexWriter::AddDefinition(std::string_view json) {
  definitions_.append(json);
  definition_ends_.push_back(static_cast<uint32_t>(definitions_.size()));
}

std::string SegmentIndexWriter::Encode(uint64_t begin) const {
  IndexHead counts;
  counts.columns = static_cast<uint32_t>(columns_.size());
  counts.extents = static_cast<uint32_t>(extents_.size());
  counts.raw_blocks = static_cast<uint32_t>(BlocksOf(raws_.size()));
  counts.forms = static_cast<uint32_t>(forms_.size());
  counts.commits = static_cast<uint32_t>(commits_.size());
  counts.layouts = static_cast<uint32_t>(layout_ends_.size());
  counts.layout_rows = static_cast<uint32_t>(layout_rows_.size());
  counts.definitions = static_cast<uint32_t>(definition_ends_.size());
  counts.names_bytes = static_cast<uint32_t>(names_.size());
  counts.definitions_bytes = static_cast<uint32_t>(definitions_.size());
  counts.meta_bytes = static_cast<uint32_t>(meta_.size());
  counts.first_definition = first_definition_;
  std::vector<uint64_t> block_hashes;
  const std::span<const IndexRaw> raws(raws_);
  for (size_t at = 0; at < raws.size(); at += kIndexBlockRows) {
    block_hashes.push_back(
        base::Hash64(std::as_bytes(raws.subspan(at, std::min<size_t>(kIndexBlockRows, raws.size() - at)))));
  }

  // The data region begins at a multiple of 64, so the zeros make the head do so too.
  const uint64_t head_at = base::AlignUp(begin, kDataAlignment) - begin;
  std::string out(head_at, '\0');
  out.append(reinterpret_cast<const char*>(&counts), sizeof(counts));
  AppendAll(std::span<const IndexColumn>(columns_), &out);
  AppendAll(std::span<const int64_t>(extents_), &out);
  AppendAll(std::span<const uint64_t>(block_hashes), &out);
  AppendAll(std::span<const IndexForm>(forms_), &out);
  AppendAll(std::span<const IndexCommit>(commits_), &out);
  AppendAll(std::span<const uint32_t>(layout_ends_), &out);
  AppendAll(std::span<const IndexRow>(layout_rows_), &out);
  AppendAll(std::span<const uint32_t>(definition_ends_), &out);
  out.append(names_).append(definitions_).append(meta_);
  out.append(base::AlignUp(out.size() - head_at, 8) - (out.size() - head_at), '\0');

  IndexFooter footer;
  std::memcpy(footer.magic, kIndexMagic, sizeof(kIndexMagic));
  footer.major = kMajor;
  footer.minor = kMinor;
  footer.footer_bytes = sizeof(IndexFooter);
  footer.head_bytes = out.size() - head_at;
  footer.raws = raws_.size();
  footer.head_hash = base::Hash64(std::as_bytes(std::span(out)).subspan(head_at));
  AppendAll(raws, &out);
  footer.data_bytes = begin + out.size() + sizeof(IndexFooter);
  std::byte bytes[sizeof(IndexFooter)];
  std::memcpy(bytes, &footer, sizeof(footer));
  footer.footer_hash = base::Hash64({bytes, kHashedFooterBytes});
  out.append(reinterpret_cast<const char*>(&footer), sizeof(footer));
  return out;
}

}  // namespace tdbg::format
