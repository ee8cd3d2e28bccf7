// Data from the journal that no segment holds yet: kept in memory in batches, and dropped from the front when
// a segment contains it.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "format/records.h"
#include "store/reader/index.h"
#include "store/reader/journal_reader.h"
#include "store/reader/worker_reader.h"

namespace tdbg::store {

/// What one Refresh read from the journal, or what many did, merged. A segment may end in the middle of a
/// batch; its front is then cut off by moving offsets, because callers hold pointers into the columns.
struct LiveBatch {
  JournalDelta delta;                    ///< tensor ids are the reader's
  size_t first_commit = 0;               ///< commits before this one are in a segment
  mutable ByTensor rows, scalars, raws;  ///< built when first asked for

  /// End of the dropped commits' items, which is where the remaining items of each list begin.
  JournalDelta::CommitEnd front() const {
    return first_commit == 0 ? JournalDelta::CommitEnd{} : delta.commits[first_commit - 1];
  }
  size_t commit_count() const { return delta.commits.size() - first_commit; }
};

class LiveTail {
 public:
  /// Translates ids by `id_map` and drops (as damage) rows of tensors that nobody defined.
  void Append(JournalDelta delta, std::span<const uint32_t> id_map, std::vector<Damage>* damage);
  /// Merges the batches of the last few hundred calls of Append into one. Each batch has 60 lists; while
  /// following a fast training, the lists would take more memory than their items. True if it merged any: the
  /// indices of all batches behind those merged earlier have changed then.
  bool Merge();
  /// Gives up commits up to `sequence`; returns how many.
  size_t TrimTo(uint64_t sequence);

  const std::deque<LiveBatch>& batches() const { return batches_; }
  std::span<const int64_t> ShapeOf(const RawRef& ref) const;
  /// View of the batch's remaining rows.
  static SummaryBatch View(const LiveBatch& batch);

 private:
  std::deque<LiveBatch> batches_;
  size_t merged_ = 0;  // the first so many batches were merged before and stay as they are
};

}  // namespace tdbg::store
