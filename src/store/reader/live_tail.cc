#include "store/reader/live_tail.h"

#include <algorithm>
#include <functional>
#include <string>

#include "base/text.h"
#include "store/reader/segment_reader.h"

namespace tdbg::store {
namespace {

uint32_t Mapped(std::span<const uint32_t> map, uint32_t id) {
  return id < map.size() ? map[id] : SegmentReader::kUnknownTensor;
}

// Keeps the items for which keep(i) holds and moves the commits' ends with them.
template <typename Keep>
void Compact(JournalDelta* delta, uint64_t JournalDelta::CommitEnd::* end, uint64_t size, Keep keep,
             const std::function<void(uint64_t, uint64_t)>& move_item) {
  uint64_t kept = 0, at = 0;
  for (JournalDelta::CommitEnd& commit : delta->commits) {
    for (; at < std::min(commit.*end, size); ++at) {
      if (!keep(at)) continue;
      if (kept != at) move_item(at, kept);
      ++kept;
    }
    commit.*end = kept;
  }
}

}  // namespace

void LiveTail::Append(JournalDelta delta, std::span<const uint32_t> id_map, std::vector<Damage>* damage) {
  size_t unknown = 0;
  for (uint32_t& id : delta.columns.tensor) {
    id = Mapped(id_map, id);
    unknown += id == SegmentReader::kUnknownTensor;
  }
  for (JournalDelta::Scalar& scalar : delta.scalars) {
    scalar.tensor = Mapped(id_map, scalar.tensor);
    unknown += scalar.tensor == SegmentReader::kUnknownTensor;
  }
  for (RawRef& raw : delta.raws) {
    raw.tensor = Mapped(id_map, raw.tensor);
    unknown += raw.tensor == SegmentReader::kUnknownTensor;
  }
  if (unknown != 0) {
    damage->push_back({std::string(format::kJournalFile),
                       base::Counted(unknown, "value") + " of tensors whose definition is lost", 0});
    JournalDelta::Columns& c = delta.columns;
    using End = JournalDelta::CommitEnd;
    Compact(
        &delta, &End::rows, c.tensor.size(),
        [&](uint64_t i) { return c.tensor[i] != SegmentReader::kUnknownTensor; },
        [&](uint64_t from, uint64_t to) {
#define TDBG_COLUMN(name, type) c.name[to] = c.name[from];
          TDBG_SUMMARY_COLUMNS(TDBG_COLUMN)
#undef TDBG_COLUMN
        });
    Compact(
        &delta, &End::scalars, delta.scalars.size(),
        [&](uint64_t i) { return delta.scalars[i].tensor != SegmentReader::kUnknownTensor; },
        [&](uint64_t from, uint64_t to) { delta.scalars[to] = delta.scalars[from]; });
    Compact(
        &delta, &End::raws, delta.raws.size(),
        [&](uint64_t i) { return delta.raws[i].tensor != SegmentReader::kUnknownTensor; },
        [&](uint64_t from, uint64_t to) { delta.raws[to] = delta.raws[from]; });
  }
  batches_.emplace_back().delta = std::move(delta);
}

size_t LiveTail::TrimTo(uint64_t sequence) {
  size_t trimmed = 0;
  while (!batches_.empty()) {
    LiveBatch& batch = batches_.front();
    while (batch.first_commit < batch.delta.commits.size() &&
           batch.delta.commits[batch.first_commit].sequence <= sequence) {
      ++batch.first_commit;
      ++trimmed;
    }
    if (batch.commit_count() != 0) break;
    batches_.pop_front();
  }
  return trimmed;
}

std::span<const int64_t> LiveTail::ShapeOf(const RawRef& ref) const {
  for (const LiveBatch& batch : batches_) {
    if (batch.delta.commits.empty() || batch.delta.commits.back().sequence < ref.sequence) continue;
    if (ref.shape_index < batch.delta.shapes.size()) return batch.delta.shapes[ref.shape_index];
    break;
  }
  return {};
}

SummaryBatch LiveTail::View(const LiveBatch& batch) {
  SummaryBatch view;
  const JournalDelta::Columns& c = batch.delta.columns;
  const uint64_t front = batch.front().rows;
  const uint64_t end = batch.delta.commits.empty() ? 0 : batch.delta.commits.back().rows;
  view.rows = end - front;
#define TDBG_COLUMN(name, type) view.name = c.name.data() + front;
  TDBG_SUMMARY_COLUMNS(TDBG_COLUMN)
#undef TDBG_COLUMN
  view.histograms = c.histograms;
  return view;
}

}  // namespace tdbg::store
