#include "store/reader/live_tail.h"

#include <algorithm>
#include <functional>
#include <string>

#include "base/text.h"
#include "store/reader/segment_reader.h"

namespace tdbg::store {

using format::SummaryColumn;

namespace {

constexpr size_t kMergedAt = 256;

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
          format::ForEachSummaryColumn([=](SummaryColumn, auto& column) { column[to] = column[from]; }, c);
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

bool LiveTail::Merge() {
  if (batches_.size() - merged_ < kMergedAt) return false;
  LiveBatch all;
  JournalDelta& to = all.delta;
  const auto first = batches_.begin() + static_cast<ptrdiff_t>(merged_);
  size_t commits = 0, rows = 0, scalars = 0, raws = 0, shapes = 0, histograms = 0;
  for (auto it = first; it != batches_.end(); ++it) {
    commits += it->commit_count();
    rows += it->delta.columns.tensor.size();
    scalars += it->delta.scalars.size();
    raws += it->delta.raws.size();
    shapes += it->delta.shapes.size();
    histograms += it->delta.columns.histograms.size();
  }
  to.commits.reserve(commits);
  format::ForEachSummaryColumn([rows](SummaryColumn, auto& column) { column.reserve(rows); }, to.columns);
  to.columns.histograms.reserve(histograms);
  to.scalars.reserve(scalars);
  to.raws.reserve(raws);
  to.shapes.reserve(shapes);
  for (auto it = first; it != batches_.end(); ++it) {
    const JournalDelta& from = it->delta;
    const JournalDelta::CommitEnd front = it->front(), end = from.commits.back();
    // What the batch keeps of a list, and what is added to its commits' ends.
    const auto take = [](auto* list, const auto& of, uint64_t begin, uint64_t until) {
      const uint64_t added = list->size() - begin;
      list->insert(list->end(), of.begin() + static_cast<ptrdiff_t>(begin),
                   of.begin() + static_cast<ptrdiff_t>(until));
      return added;
    };
    const uint64_t histogram_base = to.columns.histograms.size(), shape_base = to.shapes.size();
    const size_t row_base = to.columns.tensor.size(), raw_base = to.raws.size();
    uint64_t add_rows = 0;
    format::ForEachSummaryColumn(
        [&](SummaryColumn, auto& list, const auto& of) { add_rows = take(&list, of, front.rows, end.rows); },
        to.columns, from.columns);
    for (size_t i = row_base; i < to.columns.tensor.size(); ++i)
      to.columns.histogram_offset[i] += histogram_base;
    take(&to.columns.histograms, from.columns.histograms, 0, from.columns.histograms.size());
    const uint64_t add_scalars = take(&to.scalars, from.scalars, front.scalars, end.scalars);
    const uint64_t add_raws = take(&to.raws, from.raws, front.raws, end.raws);
    for (size_t i = raw_base; i < to.raws.size(); ++i)
      to.raws[i].shape_index += static_cast<uint32_t>(shape_base);
    take(&to.shapes, from.shapes, 0, from.shapes.size());
    const uint64_t add_context = take(&to.context, from.context, front.context, end.context);
    const uint64_t add_acks = take(&to.acks, from.acks, front.acks, end.acks);
    for (size_t i = it->first_commit; i < from.commits.size(); ++i) {
      JournalDelta::CommitEnd commit = from.commits[i];
      commit.rows += add_rows;
      commit.scalars += add_scalars;
      commit.raws += add_raws;
      commit.context += add_context;
      commit.acks += add_acks;
      to.commits.push_back(std::move(commit));
    }
  }
  batches_.erase(first, batches_.end());
  batches_.push_back(std::move(all));
  merged_ = batches_.size();
  return true;
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
    merged_ -= merged_ > 0 ? 1 : 0;
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
  format::ForEachSummaryColumn(
      [front](SummaryColumn, auto& pointer, const auto& column) { pointer = column.data() + front; }, view,
      c);
  view.histograms = c.histograms;
  return view;
}

}  // namespace tdbg::store
