// A worker's commits in order, read in place: commits that a segment holds are not copied into memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/index_iterator.h"
#include "format/columns.h"
#include "format/records.h"

namespace tdbg::store {

/// A segment's step table. Borrows the file's bytes; a null column is unknown and reads as 0.
struct CommitColumns {
  size_t rows = 0;
#define TDBG_COLUMN(name, type, need, field, says) const type* field = nullptr;
  TDBG_STEP_COLUMNS(TDBG_COLUMN)
#undef TDBG_COLUMN

  size_t size() const { return rows; }
  std::span<const int64_t> steps() const { return {global_step, rows}; }
  format::Commit at(size_t i) const {
    format::Commit commit;
#define TDBG_COLUMN(name, type, need, field, says) commit.field = field != nullptr ? field[i] : 0;
    TDBG_STEP_COLUMNS(TDBG_COLUMN)
#undef TDBG_COLUMN
    return commit;
  }
};

/// A view of the commits in segments, followed by those that only the journal has. Cheap to make; valid until
/// the reader's next Refresh. Items are returned by value; walking them in order needs no search.
class CommitList {
 public:
  using iterator = base::IndexIterator<CommitList>;

  CommitList() = default;
  /// \param firsts  the index of each segment's first commit
  CommitList(std::span<const CommitColumns> segments, std::span<const size_t> firsts,
             std::span<const format::Commit> tail)
      : segments_(segments),
        firsts_(firsts),
        tail_(tail),
        sealed_(segments.empty() ? 0 : firsts.back() + segments.back().size()) {}
  explicit CommitList(std::span<const format::Commit> all) : tail_(all) {}

  size_t size() const { return sealed_ + tail_.size(); }
  bool empty() const { return size() == 0; }
  size_t sealed() const { return sealed_; }  ///< how many of them are in segments
  format::Commit operator[](size_t i) const {
    if (i >= sealed_) return tail_[i - sealed_];
    const size_t segment = SegmentOf(i);
    return segments_[segment].at(i - firsts_[segment]);
  }
  format::Commit back() const { return (*this)[size() - 1]; }
  int64_t StepOf(size_t i) const {
    if (i >= sealed_) return tail_[i - sealed_].global_step;
    const size_t segment = SegmentOf(i);
    return segments_[segment].global_step[i - firsts_[segment]];
  }
  /// Which segment holds this one. \pre i < sealed()
  size_t SegmentOf(size_t i) const {
    if (i < firsts_[last_] || i - firsts_[last_] >= segments_[last_].size()) {
      last_ = static_cast<size_t>(std::upper_bound(firsts_.begin(), firsts_.end(), i) - firsts_.begin() - 1);
    }
    return last_;
  }
  /// Index of the first commit whose step is `global_step` or later; size() if there is none.
  size_t LowerBound(int64_t global_step) const {
    size_t begin = 0, end = size();
    while (begin < end) {
      const size_t middle = begin + (end - begin) / 2;
      if (StepOf(middle) < global_step) {
        begin = middle + 1;
      } else {
        end = middle;
      }
    }
    return begin;
  }
  /// Does `predicate` hold for any commit of that step?
  template <typename P>
  bool AnyAt(int64_t global_step, P predicate) const {
    for (size_t i = LowerBound(global_step); i < size() && StepOf(i) == global_step; ++i) {
      if (predicate((*this)[i])) return true;
    }
    return false;
  }
  iterator begin() const { return {this, 0}; }
  iterator end() const { return {this, size()}; }

 private:
  std::span<const CommitColumns> segments_;
  std::span<const size_t> firsts_;
  std::span<const format::Commit> tail_;
  size_t sealed_ = 0;
  mutable size_t last_ = 0;  // the segment that was asked for last
};

}  // namespace tdbg::store
