// The index of a segment: what a reader would otherwise have to gather from the JSON header and from columns
// of all tensors. docs/format.md, "The index".
//
//   ... data | zeros | head | raw table: IndexRaw per raw tensor | IndexFooter        (end of the file)
//
// The head is verified as a whole when a segment is opened. Of the raw table, 16 bytes a tensor, a reader
// verifies the blocks of 256 rows that it touches.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "format/records.h"
#include "tdbg/status.h"

namespace tdbg::format {

inline constexpr std::string_view kIndexKey = "index";
inline constexpr char kIndexMagic[8] = {'T', 'D', 'B', 'G', 'I', 'N', 'D', 'X'};
inline constexpr uint64_t kIndexBlockRows = 256;  ///< of the raw table, under one hash

/// The file's last 64 bytes.
struct IndexFooter {
  char magic[8];
  uint16_t major = 0, minor = 0;
  uint32_t footer_bytes = 0;
  uint64_t data_bytes = 0;  ///< of the file's data region, index included: it ends with the file
  uint64_t head_bytes = 0;  ///< a multiple of 8
  uint64_t raws = 0;        ///< rows of the raw table
  uint64_t head_hash = 0;
  uint64_t reserved = 0;
  uint64_t footer_hash = 0;  ///< of the 56 bytes before
};
static_assert(sizeof(IndexFooter) == 64);

/// The head's first 64 bytes: how many of each follow, in this order.
struct IndexHead {
  uint32_t columns = 0, extents = 0, raw_blocks = 0, forms = 0, commits = 0, layouts = 0, layout_rows = 0,
           definitions = 0;
  uint32_t names_bytes = 0, definitions_bytes = 0, meta_bytes = 0;
  uint32_t first_definition = 0;  ///< the definitions here are those of ids from this one on
  uint64_t reserved[2] = {};
};
static_assert(sizeof(IndexHead) == 64);

/// A column of the file.
struct IndexColumn {
  uint64_t begin = 0, bytes = 0;  ///< in the data region
  uint64_t hash = 0;
  uint32_t name_end = 0;  ///< of its key, in the names
  uint16_t dtype = 0;     ///< DType
  uint16_t reserved = 0;
};
static_assert(sizeof(IndexColumn) == 32);

/// What a raw value is like.
struct IndexForm {
  uint16_t dtype = 0;  ///< DType
  uint16_t rank = 0;
  uint32_t first_extent = 0;
};
static_assert(sizeof(IndexForm) == 8);

/// Which layouts a commit's rows and raw values have.
struct IndexCommit {
  uint32_t summaries = 0, scalars = 0, raws = 0;
};
static_assert(sizeof(IndexCommit) == 12);

/// One row of a layout: whose value lies there.
struct IndexRow {
  uint32_t tensor = 0;  ///< the writer's id
  uint16_t sub = 0, point = 0;
  uint32_t form = 0;  ///< of a raw value; else kNoForm

  bool operator==(const IndexRow&) const = default;
};
static_assert(sizeof(IndexRow) == 12);
inline constexpr uint32_t kNoForm = ~uint32_t{0};

/// Where a raw value lies.
struct IndexRaw {
  uint64_t begin = 0;  ///< in the data region; as many bytes as its form says
  uint64_t hash = 0;   ///< of these bytes
};
static_assert(sizeof(IndexRaw) == 16);

/// A decoded index. Borrows the file's bytes.
struct SegmentIndex {
  uint64_t data_offset = 0, data_bytes = 0;  ///< of the data region in the file
  uint32_t first_definition = 0;
  std::span<const IndexColumn> columns;
  std::span<const int64_t> extents;
  std::span<const uint64_t> block_hashes;
  std::span<const IndexForm> forms;
  std::span<const IndexCommit> commits;
  std::span<const uint32_t> layout_ends, definition_ends;
  std::span<const IndexRow> layout_rows;
  std::string_view names, definitions, meta;
  std::span<const IndexRaw> raws;  ///< not verified: see Intact

  std::string_view ColumnName(size_t column) const;
  std::string_view Definition(size_t i) const;
  std::span<const IndexRow> Layout(uint32_t layout) const;
  /// Extents of a form. \error kDataLoss  no such form, a rank beyond kMaxRank, negative extents
  Result<std::span<const int64_t>> ShapeOf(uint32_t form) const;
  /// The block of the raw table that holds `row` matches its hash. Hashes 4 KiB.
  bool Intact(uint64_t row) const;
};

/// Decodes and verifies all but the raw table. Every range lies in the file, every layout that a commit names
/// is there, and commits have as many rows as the columns they lie in. Tensors and forms are not looked up.
/// \param file  the whole file; its beginning is only looked at for the length of the JSON header
/// \error kNotFound  no index at the file's end; kDataLoss; kUnimplemented  a newer major version
Result<SegmentIndex> DecodeSegmentIndex(std::span<const std::byte> file);

/// Gathers an index while a segment is laid out. Equal layouts and forms are kept once: they are the same
/// from step to step as long as a training does not change its habits.
class SegmentIndexWriter {
 public:
  void AddColumn(std::string_view name, DType dtype, uint64_t begin, uint64_t bytes, uint64_t hash);
  uint32_t Form(DType dtype, std::span<const int64_t> shape);
  uint32_t Layout(std::span<const IndexRow> rows);
  void AddCommit(const IndexCommit& commit) { commits_.push_back(commit); }
  void AddRaw(const IndexRaw& raw) { raws_.push_back(raw); }  ///< in the order of the commits' layouts
  void AddDefinition(std::string_view json);
  void SetFirstDefinition(uint32_t id) { first_definition_ = id; }
  void SetMeta(std::string_view json) { meta_ = json; }

  /// \param begin  where the index will begin in the data region, as its last entry
  std::string Encode(uint64_t begin) const;

 private:
  std::vector<IndexColumn> columns_;
  std::vector<int64_t> extents_;
  std::vector<IndexForm> forms_;
  std::vector<IndexCommit> commits_;
  std::vector<uint32_t> layout_ends_, definition_ends_;
  std::vector<IndexRow> layout_rows_;
  std::vector<IndexRaw> raws_;
  std::string names_, definitions_, meta_;
  uint32_t first_definition_ = 0;
  std::unordered_multimap<uint64_t, uint32_t> layouts_by_hash_, forms_by_hash_;
};

}  // namespace tdbg::format
