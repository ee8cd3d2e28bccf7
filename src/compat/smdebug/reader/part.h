// One worker's part of an smdebug run, as a table that grows with its index files: which tensor of which step
// lies where. 24 bytes an entry; no event file is touched.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "compat/smdebug/reader/collections_file.h"
#include "compat/smdebug/reader/index_file.h"
#include "format/records.h"

namespace tdbg::compat::smdebug {

/// What an entry is.
enum class EntryKind : uint16_t {
  kRaw = 0,    ///< a value
  kShape = 1,  ///< no bytes: the shape that was saved in a value's place
  kFirstReduction = 2,
};

/// The reductions smdebug has, in the order of their entry kinds; others are kept by name too (operations()).
struct Operation {
  std::string name;  ///< "mean", "l2"
  bool absolute = false;
};

struct Entry {
  uint32_t tensor = 0;  ///< format::TensorId
  EntryKind kind = EntryKind::kRaw;
  uint16_t reserved = 0;
  uint64_t offset = 0;  ///< in the step's event file; kShape: which of shapes()
  uint64_t bytes = 0;   ///< of the whole record
};
static_assert(sizeof(Entry) == 24);

/// One index file: a step of this worker.
struct StepFile {
  int64_t step = 0;
  uint32_t event_file = 0;  ///< 0: named by step and worker, as smdebug does; else event_files()[n - 1]
  uint32_t first_entry = 0, entry_count = 0;
};

class Part {
 public:
  Part(std::string name_in_files, std::string name, int64_t rank);

  /// Takes in one index file. Steps may come in any order; one that is there already is replaced.
  void Add(int64_t step, int64_t wall_nanos, const IndexFile& file, const Collections& collections);
  bool Has(int64_t step) const { return Find(step).has_value(); }
  /// The step's place in commits().
  std::optional<size_t> Find(int64_t step) const;

  const std::string& name() const { return name_; }
  /// \pre no step was added yet
  void Rename(std::string name_in_files, std::string name) {
    name_in_files_ = std::move(name_in_files);
    name_ = std::move(name);
  }
  int64_t rank() const { return rank_; }
  std::span<const format::Commit> commits() const { return commits_; }
  std::span<const format::TensorDef> tensors() const { return tensors_; }
  /// The index file behind commits()[i].
  const StepFile& file_of(size_t commit) const { return files_[commit_files_[commit]]; }
  std::span<const Entry> entries_of(const StepFile& file) const {
    return std::span(entries_).subspan(file.first_entry, file.entry_count);
  }
  const Entry& entry(uint32_t index) const { return entries_[index]; }
  uint32_t index_of(const Entry& entry) const { return static_cast<uint32_t>(&entry - entries_.data()); }
  const std::vector<int64_t>& shape(uint64_t index) const { return shapes_[index]; }
  const Operation& operation(EntryKind kind) const {
    return operations_[static_cast<size_t>(kind) - static_cast<size_t>(EntryKind::kFirstReduction)];
  }
  /// Relative to the run's directory.
  std::string EventFileOf(const StepFile& file) const;
  /// The name under which a record of this kind lies in the event file.
  bool IsNameOf(std::string_view name, const Entry& entry) const;
  uint64_t event_bytes() const { return event_bytes_; }
  /// Raised when a step came that is not the last.
  uint64_t reordered() const { return reordered_; }
  int64_t last_wall_nanos() const { return last_wall_nanos_; }

 private:
  struct Named {
    uint32_t tensor = 0;
    EntryKind kind = EntryKind::kRaw;
  };
  struct TextHash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  using NameTable = std::unordered_map<std::string, Named, TextHash, std::equal_to<>>;

  const NameTable::value_type& Intern(std::string_view name, const Collections& collections);
  uint32_t TensorOf(std::string_view name, const Collections& collections);
  EntryKind KindOf(std::string_view operation, bool absolute);
  uint32_t ShapeOf(std::span<const int64_t> extents);

  std::string name_in_files_, name_;
  int64_t rank_;
  std::vector<format::TensorDef> tensors_;
  NameTable names_;
  // Names come in the same order in every file: the last file's saves looking them up.
  std::vector<const NameTable::value_type*> expected_;
  std::vector<StepFile> files_;
  std::vector<Entry> entries_;
  std::vector<format::Commit> commits_;
  std::vector<uint32_t> commit_files_;
  std::vector<std::string> event_files_;
  std::vector<Operation> operations_;
  std::vector<std::vector<int64_t>> shapes_;
  std::map<std::vector<int64_t>, uint32_t> shape_indices_;
  uint64_t event_bytes_ = 0, reordered_ = 0;
  int64_t last_wall_nanos_ = 0;
};

}  // namespace tdbg::compat::smdebug
