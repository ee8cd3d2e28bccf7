#include "store/reader/worker_reader.h"

#include <algorithm>

#include "base/file.h"
#include "format/segment.h"
#include "format/version.h"
#include "store/reader/worker_reader_impl.h"

namespace tdbg::store {

Summary SummaryBatch::at(size_t row) const {
  Summary s;
  s.count = count[row];
  s.nan_count = nan_count[row];
  s.pos_inf_count = pos_inf_count[row];
  s.neg_inf_count = neg_inf_count[row];
  s.zero_count = zero_count[row];
  s.min = min[row];
  s.max = max[row];
  s.mean = mean[row];
  s.variance = variance[row];
  s.m3 = m3[row];
  s.m4 = m4[row];
  s.l1 = l1[row];
  s.l2 = l2[row];
  s.abs_min = abs_min[row];
  s.abs_max = abs_max[row];
  return s;
}

template <typename Index, typename FromSegment, typename FromLive>
void WorkerState::BringUpToDate(IndexProgress* progress, Index* index, FromSegment from_segment,
                                FromLive from_live) {
  if (progress->resealed != resealed) {
    index->CutTail();
    for (; progress->segments < segments.size(); ++progress->segments) from_segment(progress->segments);
    index->Seal();
    progress->live = 0;
    progress->resealed = resealed;
  }
  size_t commit = segment_commits.empty() ? 0 : segment_commits.back() + segments.back()->commits().size();
  const auto& live_batches = live.batches();
  for (size_t i = 0; i < live_batches.size(); ++i) {
    if (i >= progress->live) from_live(i, live_batches[i], commit);
    commit += live_batches[i].commit_count();
  }
  progress->live = live_batches.size();
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

void WorkerState::EnsureRows() {
  EnsureBatches();
  std::vector<uint32_t> counts;
  const auto add = [&](size_t b) {
    const SummaryBatch& batch = batches[b];
    counts.assign(tensors.size(), 0);
    for (size_t i = 0; i < batch.rows; ++i) ++counts[batch.tensor[i]];
    for (size_t t = 0; t < counts.size(); ++t) {
      if (counts[t] != 0) rows.Reserve(t, counts[t]);
    }
    for (size_t i = 0; i < batch.rows; ++i) {
      rows.Append(batch.tensor[i], {static_cast<uint32_t>(b), static_cast<uint32_t>(i)});
    }
  };
  BringUpToDate(&rows_progress, &rows, add,
                [&](size_t i, const LiveBatch&, size_t) { add(segments.size() + i); });
}

void WorkerState::EnsureScalars() {
  std::vector<Damage> found;
  BringUpToDate(
      &scalars_progress, &scalars,
      [&](size_t i) {
        for (const SegmentReader::ScalarRow& row : segments[i]->Scalars(&found))
          scalars.Append(row.tensor, row.point);
      },
      [&](size_t, const LiveBatch& batch, size_t) {
        const size_t end = batch.delta.commits.back().scalars;
        for (size_t i = batch.front().scalars; i < end; ++i) {
          scalars.Append(batch.delta.scalars[i].tensor, batch.delta.scalars[i].point);
        }
      });
  ReportAll(std::move(found));
}

void WorkerState::EnsureRaws() {
  std::vector<Damage> found;
  BringUpToDate(
      &raws_progress, &raws,
      [&](size_t i) {
        for (RawRef ref : segments[i]->Raws(tensors, &found)) {
          ref.source = static_cast<uint32_t>(i);
          ref.commit += static_cast<int64_t>(segment_commits[i]);
          raws.Append(ref.tensor, ref);
        }
      },
      [&](size_t, const LiveBatch& batch, size_t commit) {
        size_t at = batch.front().raws;
        for (size_t c = batch.first_commit; c < batch.delta.commits.size(); ++c) {
          for (; at < batch.delta.commits[c].raws; ++at) {
            RawRef ref = batch.delta.raws[at];
            ref.source = kJournalSource;
            ref.commit = static_cast<int64_t>(commit + c - batch.first_commit);
            raws.Append(ref.tensor, ref);
          }
        }
      });
  ReportAll(std::move(found));
}

Result<RawValue> WorkerState::ReadSealedRaw(const RawRef& ref) {
  if (ref.tensor >= tensors.size()) return Internal("a raw value of no tensor");
  const std::string key = format::RawKey(tensors[ref.tensor].name, ref.global_step, ref.sub);
  SegmentReader* segment = nullptr;
  for (const auto& s : segments) {
    if (s->meta().first_sequence <= ref.sequence && ref.sequence <= s->meta().last_sequence)
      segment = s.get();
  }
  if (!segment) {
    const std::string path = base::JoinPath(directory, format::kSegmentsDir);
    const auto entries = base::LocalFileSystem().List(path);
    for (const base::DirEntry& entry : entries.ok() ? *entries : std::vector<base::DirEntry>()) {
      const auto range = format::ParseSegmentFileName(entry.name);
      if (!range || ref.sequence < range->first || ref.sequence > range->second) continue;
      auto& slot = side_segments[range->first];
      if (!slot) {
        TDBG_ASSIGN_OR_RETURN(slot, SegmentReader::Open(base::JoinPath(path, entry.name), 0, 0, nullptr));
      }
      segment = slot.get();
      break;
    }
  }
  if (!segment) return DataLoss(key + ": neither in the journal nor in a segment");
  const auto entry = segment->FindEntry(key);
  if (!entry) return NotFound(key + ": was not kept when its segment was sealed");
  std::vector<Damage> found;
  auto value = segment->ReadRaw(*entry, &found);
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
  if (ref.source < segments.size()) return segments[ref.source]->MapRaw(ref.entry);
  return ReadRaw(ref);
}

Result<RawValue> WorkerState::ReadRaw(const RawRef& ref) {
  if (ref.source < segments.size()) {
    std::vector<Damage> found;
    auto value = segments[ref.source]->ReadRaw(ref.entry, &found);
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
    const auto& commits = state_->commits.items;
    return std::max(state_->last_seen_step, commits.empty() ? -1 : commits.back().global_step);
  }
  int64_t last_seen_wall_nanos() const override {
    const auto& commits = state_->commits.items;
    return std::max(state_->last_seen_wall_nanos, commits.empty() ? 0 : commits.back().wall_nanos);
  }
  std::span<const format::Commit> commits() const override { return state_->commits.items; }
  std::span<const format::TensorDef> tensors() const override { return state_->tensors; }
  std::span<const format::ContextRecord> context() const override { return state_->context.items; }
  std::span<const std::string> acks() const override { return state_->acks.items; }
  std::vector<format::Loss> losses() const override {
    if (state_->journal && state_->has_snapshot) return state_->journal->losses();
    if (!state_->segments.empty()) return state_->segments.back()->meta().losses;
    return {};
  }
  std::span<const Damage> damage() const override { return state_->damage; }
  uint64_t bytes_on_disk() const override {
    // The journal is pre-allocated: what counts is what waits in it, not the room it keeps.
    const uint64_t waiting =
        state_->has_snapshot ? state_->snapshot.committed_pos - state_->snapshot.sealed_pos : 0;
    return state_->segment_bytes + waiting;
  }
  std::vector<std::string> doorbells() const override {
    return {base::JoinPath(state_->directory, format::kDoorbellFile),
            base::JoinPath(state_->directory, format::kLockFile)};
  }
  uint64_t resealed() const override { return state_->resealed; }
  uint64_t rewrites() const override { return state_->rewrites; }
  std::span<const SummaryBatch> summaries() const override {
    state_->EnsureBatches();
    return state_->batches;
  }
  std::span<const RowRef> RowsOf(format::TensorId tensor) const override {
    state_->EnsureRows();
    return state_->rows.Of(tensor);
  }
  Result<Histogram> HistogramOf(RowRef row) const override { return state_->HistogramOf(row); }
  std::span<const ScalarPoint> ScalarsOf(format::TensorId tensor) const override {
    state_->EnsureScalars();
    return state_->scalars.Of(tensor);
  }
  std::span<const RawRef> RawsOf(format::TensorId tensor) const override {
    state_->EnsureRaws();
    return state_->raws.Of(tensor);
  }
  Result<RawValue> ReadRaw(const RawRef& ref) override { return state_->ReadRaw(ref); }
  Result<RawValue> MapRaw(const RawRef& ref) override { return state_->MapRaw(ref); }
  std::span<const int64_t> ShapeOf(const RawRef& ref) const override {
    if (ref.source < state_->segments.size()) return state_->segments[ref.source]->shape_of(ref.entry);
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
