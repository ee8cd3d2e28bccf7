#include "store/reader/worker_reader.h"

#include <algorithm>

#include "base/file.h"
#include "base/stable_sort.h"
#include "format/segment.h"
#include "format/version.h"
#include "store/reader/worker_reader_impl.h"

namespace tdbg::store {

Summary SummaryBatch::at(size_t row) const {
  Summary s;
  format::ForEachStatistic([row](auto& number, const auto* column) { number = column[row]; }, s, *this);
  return s;
}

namespace {

/// Items of one step in a list in step order.
template <typename T, typename StepOf>
std::span<const T> AtStep(std::span<const T> list, int64_t global_step, StepOf step_of) {
  const auto first = std::partition_point(list.begin(), list.end(),
                                          [&](const T& item) { return step_of(item) < global_step; });
  auto last = first;
  while (last != list.end() && step_of(*last) == global_step) ++last;
  return {first, last};
}

}  // namespace

std::span<const WorkerReader::RowRef> WorkerReader::RowsAt(format::TensorId tensor,
                                                           int64_t global_step) const {
  return AtStep(RowsOf(tensor), global_step, [](const RowRef& row) { return row.global_step; });
}

WorkerReader::PreparedRows WorkerReader::Series(format::TensorId tensor, int64_t begin, int64_t end,
                                                uint64_t columns) const {
  const auto before = [](const RowRef& row, int64_t step) { return row.global_step < step; };
  std::span<const RowRef> rows = RowsOf(tensor);
  const auto first = std::lower_bound(rows.begin(), rows.end(), begin, before);
  rows = {first, std::lower_bound(first, rows.end(), std::max(begin, end), before)};
  for (size_t i = 0, last = 0; i < rows.size(); i = last) {
    while (last < rows.size() && rows[last].batch == rows[i].batch) ++last;
    // Rows of one batch ascend.
    Prepare(rows[i].batch, rows[i].row, rows[last - 1].row + 1, columns);
  }
  return {summaries(), rows};
}

std::span<const RawRef> WorkerReader::RawsAt(format::TensorId tensor, int64_t global_step) const {
  return AtStep(RawsOf(tensor), global_step, [](const RawRef& ref) { return ref.global_step; });
}

template <typename Index, typename FromSegment, typename FromLive>
void WorkerState::BringUpToDate(IndexProgress* progress, Index* index, FromSegment from_segment,
                                FromLive from_live) {
  if (progress->resealed != resealed) {
    index->CutTail();
    for (; progress->segments < segments.size(); ++progress->segments) from_segment(progress->segments);
    index->Seal();
    progress->live = progress->live_commits = 0;
    progress->resealed = resealed;
  }
  const auto& live_batches = live.batches();
  const size_t sealed = commits().sealed();
  for (; progress->live < live_batches.size(); ++progress->live) {
    const LiveBatch& batch = live_batches[progress->live];
    from_live(progress->live, batch, sealed + progress->live_commits);
    progress->live_commits += batch.commit_count();
  }
}

void WorkerState::EnsureBatches() {
  struct Batches {
    std::vector<SummaryBatch>* list;
    size_t segments;
    void CutTail() { list->resize(std::min(list->size(), segments)); }
    void Seal() {}
  } index{&batches, batches_progress.segments};
  std::vector<Damage> found;
  BringUpToDate(
      &batches_progress, &index,
      [&](size_t i) {
        batches.push_back(segments[i]->Summaries(&found));
        batches.back().first_commit = static_cast<int64_t>(segment_commits[i]);
      },
      [&](size_t, const LiveBatch& batch, size_t commit) {
        batches.push_back(LiveTail::View(batch));
        batches.back().first_commit = static_cast<int64_t>(commit);
      });
  ReportAll(std::move(found));
}

void WorkerState::Prepare(uint32_t batch, uint64_t columns) {
  EnsureBatches();
  if (batch >= segments.size()) return;  // what came from the journal was verified when it was read
  std::vector<Damage> found;
  if (!segments[batch]->Verify(columns, &found)) return;
  const int64_t first_commit = batches[batch].first_commit;
  batches[batch] = segments[batch]->Summaries(&found);
  batches[batch].first_commit = first_commit;
  ReportAll(std::move(found));
}

void WorkerState::AppendLiveRows(size_t i, const LiveBatch& batch, uint32_t tensor,
                                 std::optional<int64_t> global_step, std::vector<RowRef>* out) const {
  const JournalDelta::Columns& c = batch.delta.columns;
  batch.rows.Build(c.tensor.size(), [&](uint32_t row) { return c.tensor[row]; });
  const uint64_t front = batch.front().rows, end = batch.delta.commits.back().rows;
  std::span<const uint32_t> chosen = batch.rows.Of(tensor);
  if (global_step) chosen = AtStep(chosen, *global_step, [&](uint32_t row) { return c.step_last[row]; });
  for (const uint32_t row : chosen) {
    if (row < front || row >= end) continue;
    out->push_back({static_cast<uint32_t>(segments.size() + i),
                    static_cast<uint32_t>(row - front),
                    c.step_last[row],
                    {c.sub[row], static_cast<format::Point>(c.point[row])}});
  }
}

void WorkerState::AppendLiveRaws(const LiveBatch& batch, size_t commit, uint32_t tensor,
                                 std::optional<int64_t> global_step, std::vector<RawRef>* out) const {
  const std::vector<RawRef>& all = batch.delta.raws;
  batch.raws.Build(all.size(), [&](uint32_t i) { return all[i].tensor; });
  const auto& commits_here = batch.delta.commits;
  std::span<const uint32_t> chosen = batch.raws.Of(tensor);
  if (global_step) chosen = AtStep(chosen, *global_step, [&](uint32_t i) { return all[i].global_step; });
  for (const uint32_t i : chosen) {
    const auto of = std::partition_point(commits_here.begin(), commits_here.end(),
                                         [&](const JournalDelta::CommitEnd& c) { return c.raws <= i; });
    const auto at = static_cast<size_t>(of - commits_here.begin());
    if (i < batch.front().raws || at >= commits_here.size()) continue;
    RawRef ref = all[i];
    ref.source = kJournalSource;
    ref.commit = static_cast<int64_t>(commit + at - batch.first_commit);
    out->push_back(ref);
  }
}

std::span<const WorkerReader::RowRef> WorkerState::RowsOf(uint32_t tensor) {
  TensorLists<RowRef>::List& list = rows.Of(tensor);
  std::vector<Damage> found;
  // Of a list that is made at once its memory is had at once: growing, it would be written twice, and pages
  // that nobody has touched yet cost more than what is written to them.
  if (list.items.empty() && list.progress.resealed != resealed) {
    size_t count = 0;
    for (const auto& segment : segments) count += segment->CountRows(tensor, &found);
    list.items.reserve(count);
  }
  BringUpToDate(
      &list.progress, &list,
      [&](size_t i) { segments[i]->AppendRows(tensor, {}, static_cast<uint32_t>(i), &list.items, &found); },
      [&](size_t i, const LiveBatch& batch, size_t) { AppendLiveRows(i, batch, tensor, {}, &list.items); });
  ReportAll(std::move(found));
  return list.items;
}

std::span<const WorkerReader::ScalarPoint> WorkerState::ScalarsOf(uint32_t tensor) {
  TensorLists<ScalarPoint>::List& list = scalars.Of(tensor);
  std::vector<Damage> found;
  BringUpToDate(
      &list.progress, &list, [&](size_t i) { segments[i]->AppendScalars(tensor, &list.items, &found); },
      [&](size_t, const LiveBatch& batch, size_t) {
        const std::vector<JournalDelta::Scalar>& all = batch.delta.scalars;
        batch.scalars.Build(all.size(), [&](uint32_t i) { return all[i].tensor; });
        const uint64_t front = batch.front().scalars, end = batch.delta.commits.back().scalars;
        for (const uint32_t i : batch.scalars.Of(tensor)) {
          if (i >= front && i < end) list.items.push_back(all[i].point);
        }
      });
  ReportAll(std::move(found));
  return list.items;
}

void WorkerState::AppendRawsOf(size_t segment, uint32_t tensor, std::optional<int64_t> global_step,
                               std::vector<RawRef>* out, std::vector<Damage>* found) {
  const size_t before = out->size();
  segments[segment]->AppendRaws(tensor, global_step, tensors, out, found);
  SayWhere(segment, before, out);
}

void WorkerState::SayWhere(size_t segment, size_t from, std::vector<RawRef>* refs) const {
  for (size_t i = from; i < refs->size(); ++i) {
    (*refs)[i].source = static_cast<uint32_t>(segment);
    (*refs)[i].commit += static_cast<int64_t>(segment_commits[segment]);
  }
}

std::span<const RawRef> WorkerState::RawsOf(uint32_t tensor) {
  return BringRawsUpToDate(&raws, tensor,
                           [&](size_t i, std::vector<RawRef>* out, std::vector<Damage>* found) {
                             AppendRawsOf(i, tensor, {}, out, found);
                           });
}

std::span<const RawRef> WorkerState::LoneRawsOf(uint32_t tensor) {
  return BringRawsUpToDate(&lone_raws, tensor,
                           [&](size_t i, std::vector<RawRef>* out, std::vector<Damage>* found) {
                             const size_t before = out->size();
                             segments[i]->AppendLoneRaws(tensor, tensors, out, found);
                             SayWhere(i, before, out);
                           });
}

template <typename FromSegment>
std::span<const RawRef> WorkerState::BringRawsUpToDate(TensorLists<RawRef>* lists, uint32_t tensor,
                                                       FromSegment from_segment) {
  TensorLists<RawRef>::List& list = lists->Of(tensor);
  std::vector<Damage> found;
  BringUpToDate(
      &list.progress, &list, [&](size_t i) { from_segment(i, &list.items, &found); },
      [&](size_t, const LiveBatch& batch, size_t commit) {
        AppendLiveRaws(batch, commit, tensor, {}, &list.items);
      });
  ReportAll(std::move(found));
  return list.items;
}

/// Calls from_segment(segment) for each segment that has the step, then from_live(i, batch, first commit) for
/// each batch that may have it.
template <typename FromSegment, typename FromLive>
void WorkerState::EachSourceOf(int64_t global_step, FromSegment from_segment, FromLive from_live) const {
  const CommitList all = commits();
  size_t last = segments.size();
  size_t at = all.LowerBound(global_step);
  for (; at < all.sealed() && all.StepOf(at) == global_step; ++at) {
    const size_t segment = all.SegmentOf(at);
    if (segment != last) from_segment(segment);
    last = segment;
  }
  if (at < all.sealed() || at == all.size() || all.StepOf(at) != global_step) return;
  // By binary search: while a run is followed there are hundreds of batches, and none is in a cache.
  const auto& live_batches = live.batches();
  const auto first = std::partition_point(live_batches.begin(), live_batches.end(), [&](const auto& batch) {
    return batch.delta.commits.back().commit.global_step < global_step;
  });
  for (auto batch = first; batch != live_batches.end(); ++batch) {
    const auto here = std::span(batch->delta.commits).subspan(batch->first_commit);
    if (here.front().commit.global_step > global_step) return;
    const auto found = std::partition_point(
        here.begin(), here.end(), [&](const auto& end) { return end.commit.global_step < global_step; });
    if (batch == first) at -= static_cast<size_t>(found - here.begin());
    from_live(static_cast<size_t>(batch - live_batches.begin()), *batch, at);
    at += batch->commit_count();
  }
}

std::span<const WorkerReader::RowRef> WorkerState::RowsAt(uint32_t tensor, int64_t global_step) {
  rows_found.clear();
  std::vector<Damage> found;
  EachSourceOf(
      global_step,
      [&](size_t segment) {
        segments[segment]->AppendRows(tensor, global_step, static_cast<uint32_t>(segment), &rows_found,
                                      &found);
      },
      [&](size_t i, const LiveBatch& batch, size_t) {
        AppendLiveRows(i, batch, tensor, global_step, &rows_found);
      });
  ReportAll(std::move(found));
  return rows_found;
}

std::span<const RawRef> WorkerState::RawsAt(uint32_t tensor, int64_t global_step) {
  raws_found.clear();
  std::vector<Damage> found;
  EachSourceOf(
      global_step, [&](size_t segment) { AppendRawsOf(segment, tensor, global_step, &raws_found, &found); },
      [&](size_t, const LiveBatch& batch, size_t commit) {
        AppendLiveRaws(batch, commit, tensor, global_step, &raws_found);
      });
  ReportAll(std::move(found));
  return raws_found;
}

std::span<const WorkerReader::TensorScalar> WorkerState::ScalarsAt(int64_t global_step) {
  scalars_found.clear();
  std::vector<Damage> found;
  EachSourceOf(
      global_step,
      [&](size_t segment) { segments[segment]->AppendScalarsAt(global_step, &scalars_found, &found); },
      [&](size_t, const LiveBatch& batch, size_t) {
        const uint64_t front = batch.front().scalars, end = batch.delta.commits.back().scalars;
        const auto here =
            std::span<const JournalDelta::Scalar>(batch.delta.scalars).subspan(front, end - front);
        for (const JournalDelta::Scalar& scalar :
             AtStep(here, global_step, [](const auto& s) { return s.point.global_step; })) {
          scalars_found.push_back({scalar.tensor, scalar.point.sub, scalar.point.value});
        }
      });
  ReportAll(std::move(found));
  const auto before = [](const auto& a, const auto& b) { return a.tensor < b.tensor; };
  if (!std::is_sorted(scalars_found.begin(), scalars_found.end(), before))
    base::StableSort(&scalars_found, before);
  return scalars_found;
}

Result<RawValue> WorkerState::ReadSealedRaw(const RawRef& ref) {
  if (ref.tensor >= tensors.size()) return Internal("a raw value of no tensor");
  const format::TensorDef& def = tensors[ref.tensor];
  const std::string key = format::RawKey(def.name, ref.global_step, ref.sub);
  SegmentReader* segment = nullptr;
  for (const auto& s : segments) {
    if (s->meta().first_sequence <= ref.sequence && ref.sequence <= s->meta().last_sequence)
      segment = s.get();
  }
  std::vector<Damage> found;
  if (!segment) {
    const std::string path = base::JoinPath(directory, format::kSegmentsDir);
    const auto entries = base::LocalFileSystem().List(path);
    for (const base::DirEntry& entry : entries.ok() ? *entries : std::vector<base::DirEntry>()) {
      const auto range = format::ParseSegmentFileName(entry.name);
      if (!range || ref.sequence < range->first || ref.sequence > range->second) continue;
      auto& slot = side_segments[range->first];
      if (!slot) {
        // It was in the journal of the writer whose ids are known.
        TDBG_ASSIGN_OR_RETURN(slot, SegmentReader::Open(base::JoinPath(path, entry.name),
                                                        {id_map_writer, id_map.size()}, nullptr));
        slot->SetTensors(id_map, &layouts, &spots);
      }
      segment = slot.get();
      break;
    }
  }
  if (!segment) return DataLoss(key + ": neither in the journal nor in a segment");
  std::vector<RawRef> there;
  segment->AppendRaws(ref.tensor, ref.global_step, tensors, &there, &found);
  const auto same =
      std::find_if(there.begin(), there.end(), [&](const RawRef& other) { return other.sub == ref.sub; });
  Result<RawValue> value = NotFound(key + ": was not kept when its segment was sealed");
  if (same != there.end()) value = segment->ReadRaw(*same, def, &found);
  ReportAll(std::move(found));
  return value;
}

Result<Histogram> WorkerState::HistogramOf(WorkerReader::RowRef row) {
  EnsureBatches();
  if (row.batch >= batches.size() || row.row >= batches[row.batch].rows) {
    return Internal("histogram of a row that does not exist");
  }
  if (row.batch < segments.size()) {
    std::vector<Damage> found;
    auto histogram = segments[row.batch]->HistogramOf(row.row, &found);
    ReportAll(std::move(found));
    return histogram;
  }
  const SummaryBatch& batch = batches[row.batch];
  const uint64_t offset = batch.histogram_offset[row.row], bytes = batch.histogram_bytes[row.row];
  if (bytes == 0) return NotFound("no histogram was kept");
  if (offset > batch.histograms.size() || bytes > batch.histograms.size() - offset) {
    return DataLoss("a histogram lies outside its record");
  }
  return DecodeHistogram(batch.histograms.subspan(offset, bytes));
}

Result<RawValue> WorkerState::MapRaw(const RawRef& ref) {
  if (ref.source >= segments.size()) return ReadRaw(ref);
  std::vector<Damage> found;
  auto value = segments[ref.source]->MapRaw(ref, tensors[ref.tensor], &found);
  ReportAll(std::move(found));
  return value;
}

Result<RawValue> WorkerState::ReadRaw(const RawRef& ref) {
  if (ref.source < segments.size()) {
    std::vector<Damage> found;
    auto value = segments[ref.source]->ReadRaw(ref, tensors[ref.tensor], &found);
    ReportAll(std::move(found));
    return value;
  }
  Status failed = DataLoss("the journal is gone");
  if (journal) {
    // No look at sealed_pos: position, sequence and both hashes together cannot belong to anything else.
    auto value = journal->ReadRaw(ref.offset, ref.sequence);
    if (value.ok()) return value;
    failed = value.status();
  }
  auto sealed = ReadSealedRaw(ref);
  if (sealed.ok() || sealed.status().code() == Code::kNotFound) return sealed;
  Report({std::string(format::kJournalFile), failed.message(), ref.bytes});
  return failed;
}

namespace {

class RunWorkerReader final : public WorkerReader {
 public:
  explicit RunWorkerReader(std::unique_ptr<WorkerState> state) : state_(std::move(state)) {}

  Result<bool> Refresh() override { return state_->Refresh(); }
  const format::WorkerInfo& info() const override { return state_->info; }
  bool alive() const override { return state_->alive; }
  bool ended() const override { return state_->ended; }
  std::string end_json() const override { return state_->end_json; }
  int64_t last_seen_step() const override {
    const CommitList commits = state_->commits();
    return std::max(state_->last_seen_step, commits.empty() ? -1 : commits.back().global_step);
  }
  int64_t last_seen_wall_nanos() const override {
    const CommitList commits = state_->commits();
    return std::max(state_->last_seen_wall_nanos, commits.empty() ? 0 : commits.back().wall_nanos);
  }
  CommitList commits() const override { return state_->commits(); }
  std::span<const format::TensorDef> tensors() const override { return state_->tensors; }
  std::span<const format::ContextRecord> context() const override { return state_->context.items; }
  std::span<const std::string> acks() const override { return state_->acks.items; }
  std::vector<format::Drop> dropped() const override {
    if (state_->journal && state_->has_snapshot) return state_->journal->dropped();
    if (!state_->segments.empty()) return state_->segments.back()->meta().dropped;
    return {};
  }
  std::span<const Damage> damage() const override { return state_->damage; }
  uint64_t bytes_on_disk() const override {
    // The journal is pre-allocated: its size says nothing, only the bytes that wait in it count.
    const uint64_t waiting =
        state_->has_snapshot ? state_->snapshot.committed_pos - state_->snapshot.sealed_pos : 0;
    return state_->segment_bytes + waiting;
  }
  std::vector<std::string> doorbells() const override {
    return {base::JoinPath(state_->directory, format::kDoorbellFile),
            base::JoinPath(state_->directory, format::kLockFile)};
  }
  uint64_t resealed() const override { return state_->resealed; }
  size_t final_batches() const override { return state_->segments.size(); }
  uint64_t rewrites() const override { return state_->rewrites; }
  std::span<const SummaryBatch> summaries() const override {
    state_->EnsureBatches();
    return state_->batches;
  }
  void Prepare(uint32_t batch, uint32_t, uint32_t, uint64_t columns) const override {
    state_->Prepare(batch, columns);
  }
  std::span<const RowRef> RowsOf(format::TensorId tensor) const override {
    return tensor < state_->tensors.size() ? state_->RowsOf(tensor) : std::span<const RowRef>();
  }
  std::span<const RowRef> RowsAt(format::TensorId tensor, int64_t global_step) const override {
    if (tensor >= state_->tensors.size()) return {};
    return state_->RowsAt(tensor, global_step);
  }
  Result<Histogram> HistogramOf(RowRef row) const override { return state_->HistogramOf(row); }
  std::span<const ScalarPoint> ScalarsOf(format::TensorId tensor) const override {
    return tensor < state_->tensors.size() ? state_->ScalarsOf(tensor) : std::span<const ScalarPoint>();
  }
  std::span<const TensorScalar> ScalarsAt(int64_t global_step) const override {
    return state_->ScalarsAt(global_step);
  }
  std::span<const RawRef> RawsOf(format::TensorId tensor) const override {
    return tensor < state_->tensors.size() ? state_->RawsOf(tensor) : std::span<const RawRef>();
  }
  std::span<const RawRef> LoneRawsOf(format::TensorId tensor) const override {
    return tensor < state_->tensors.size() ? state_->LoneRawsOf(tensor) : std::span<const RawRef>();
  }
  std::span<const RawRef> RawsAt(format::TensorId tensor, int64_t global_step) const override {
    if (tensor >= state_->tensors.size()) return {};
    return state_->RawsAt(tensor, global_step);
  }
  Result<RawValue> ReadRaw(const RawRef& ref) override { return state_->ReadRaw(ref); }
  Result<RawValue> MapRaw(const RawRef& ref) override { return state_->MapRaw(ref); }
  std::span<const int64_t> ShapeOf(const RawRef& ref) const override {
    if (ref.source < state_->segments.size()) return state_->segments[ref.source]->ShapeOf(ref);
    return state_->live.ShapeOf(ref);
  }

 private:
  std::unique_ptr<WorkerState> state_;
};

}  // namespace

Result<std::unique_ptr<WorkerReader>> WorkerReader::Open(const std::string& worker_directory) {
  auto state = std::make_unique<WorkerState>();
  state->directory = worker_directory;
  TDBG_RETURN_IF_ERROR(state->ReadWorkerJson());
  TDBG_RETURN_IF_ERROR(state->Refresh().status());
  return std::unique_ptr<WorkerReader>(std::make_unique<RunWorkerReader>(std::move(state)));
}

}  // namespace tdbg::store
