// What came from the journal and is not in a segment yet: kept in memory, batch by batch, and given up from
// the front as segments take over.
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

/// One Refresh's worth of the journal, or what many gave, put together. A segment may end in the middle of
/// it, so it is cut at the front by moving offsets: columns that others hold pointers into are never moved.
struct LiveBatch {
  JournalDelta delta;                    ///< tensor ids are the reader's
  size_t first_commit = 0;               ///< commits before this one are in a segment
  mutable ByTensor rows, scalars, raws;  ///< built when first asked for

  /// What the commits given up have made visible: where the lists begin now.
  JournalDelta::CommitEnd front() const {
    return first_commit == 0 ? JournalDelta::CommitEnd{} : delta.commits[first_commit - 1];
  }
  size_t commit_count() const { return delta.commits.size() - first_commit; }
};

class LiveTail {
 public:
  /// Translates ids by `id_map` and drops (as damage) rows of tensors that nobody defined.
  void Append(JournalDelta delta, std::span<const uint32_t> id_map, std::vector<Damage>* damage);
  /// Puts what the last few hundred calls of Append brought into one batch: a step's worth has 60 lists, and
  /// who follows a fast training would hold more for the lists than for what is in them. True if it did: the
  /// batches behind the earlier ones of this kind have other numbers then.
  bool Merge();
  /// Gives up commits up to `sequence`; returns how many.
  size_t TrimTo(uint64_t sequence);

  const std::deque<LiveBatch>& batches() const { return batches_; }
  std::span<const int64_t> ShapeOf(const RawRef& ref) const;
  /// View of the batch's remaining rows.
  static SummaryBatch View(const LiveBatch& batch);

 private:
  std::deque<LiveBatch> batches_;
  size_t merged_ = 0;  // so many of them, from the first, are left as they are
};

}  // namespace tdbg::store
