// A worker's coarse rows: what a compactor made of 16, 256, ... steps each. docs/format.md, "Levels".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "format/level.h"
#include "format/level_header.h"
#include "store/reader/worker_reader.h"
#include "tdbg/status.h"

namespace tdbg::store {

/// The rows of one file, as columns in place. Valid while the LevelFile lives.
struct LevelRows {
  format::GroupColumns<ColumnPointer> groups;
  format::SummaryColumns<ColumnPointer> summaries;
  format::OverColumns<ColumnPointer> over;
  std::array<format::DrawnColumns<ColumnPointer>, format::kDrawnStatistics> drawn;
  size_t group_count = 0, rows = 0;
  std::span<const uint8_t> histograms;

  Summary SummaryAt(size_t row) const;
};

/// One file, mapped. \threadsafety One thread.
class LevelFile {
 public:
  /// Verifies what it says of itself and its groups.
  /// \param headers  what other files of the worker have defined is not read once more
  /// \error kDataLoss; kUnimplemented  a newer major version
  static Result<std::unique_ptr<LevelFile>> Open(const std::string& path, format::LevelHeaders* headers);

  /// Without tensors.
  const format::LevelMeta& meta() const { return meta_; }
  /// Those that have a row, with the ids that the rows have. Two files that state the same share them.
  const std::shared_ptr<const std::vector<format::TensorDef>>& tensors() const { return tensors_; }
  uint64_t file_bytes() const { return mapping_->bytes().size(); }
  size_t group_count() const { return rows_.group_count; }
  format::LevelGroup GroupAt(size_t group) const;
  /// The first row of a group; of group_count(): behind the last one's.
  size_t FirstRow(size_t group) const { return first_rows_[group]; }
  /// All columns but the histograms, verified when they are asked for first.
  /// \error kDataLoss
  Result<const LevelRows*> Rows();
  /// \error kNotFound  none was kept; kDataLoss
  Result<Histogram> HistogramOf(size_t row);

 private:
  struct Entry {
    uint64_t begin = 0, end = 0;  // in the file
    std::string dtype;
    uint64_t hash = 0;
    bool has_hash = false;
  };
  LevelFile() = default;
  template <typename T>
  Status Lay(std::string_view key, const T** column, size_t* rows);
  Status Verify(std::string_view key);

  std::string name_;
  std::shared_ptr<const base::ReadOnlyMapping> mapping_;
  format::LevelMeta meta_;
  std::shared_ptr<const std::vector<format::TensorDef>> tensors_;
  std::map<std::string, Entry, std::less<>> entries_;
  LevelRows rows_;
  std::vector<size_t> first_rows_;
  bool verified_ = false;
  Status verdict_, histograms_verdict_;
  bool histograms_verified_ = false;
};

/// All files of a worker. \threadsafety One thread.
class LevelReader {
 public:
  explicit LevelReader(std::string worker_directory);

  /// Looks for new files and for those that are gone. Pointers handed out before are not valid afterwards.
  /// True if there was anything.
  bool Refresh();

  struct Group {
    int64_t step_first = 0, step_last = 0;
    uint64_t steps = 0;
    LevelFile* file = nullptr;
    uint32_t group = 0;
  };
  /// Of one level, ascending, none in the steps of another.
  std::span<const Group> GroupsOf(uint32_t level) const;
  uint32_t highest_level() const { return static_cast<uint32_t>(levels_.size()); }
  /// The group of a level that tells of this step, or the first behind it; null where there is neither.
  const Group* At(uint32_t level, int64_t global_step) const;
  /// The last step that a level tells of; -1: none.
  int64_t CoveredUntil(uint32_t level) const;

  uint64_t bytes_on_disk() const;
  /// Files that cannot be believed, or in which something was not as it should be. They cost what is only in
  /// them.
  std::span<const Damage> damage() const { return damage_; }
  void Report(const LevelFile& file, const Status& what);
  /// How many definitions of tensors were parsed so far.
  uint64_t definitions_parsed() const { return headers_.parsed(); }

 private:
  std::string directory_;
  format::LevelHeaders headers_;
  std::map<std::string, std::unique_ptr<LevelFile>> files_;  // null: damaged
  std::vector<std::vector<Group>> levels_;                   // [level - 1]
  std::vector<Damage> damage_;
};

}  // namespace tdbg::store
