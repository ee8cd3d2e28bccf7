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
void WorkerReader::Impl::BringUpToDate(IndexProgress* progress, Index* index, FromSegment from_segment,
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

void WorkerReader::Impl::EnsureBatches() {
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

void WorkerReader::Impl::EnsureRows() {
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

void WorkerReader::Impl::EnsureScalars() {
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

void WorkerReader::Impl::EnsureRaws() {
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

Result<RawValue> WorkerReader::Impl::ReadSealedRaw(const RawRef& ref) {
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

WorkerReader::WorkerReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
WorkerReader::~WorkerReader() = default;

Result<std::unique_ptr<WorkerReader>> WorkerReader::Open(const std::string& worker_directory) {
  auto impl = std::make_unique<Impl>();
  impl->directory = worker_directory;
  TDBG_RETURN_IF_ERROR(impl->ReadWorkerJson());
  TDBG_RETURN_IF_ERROR(impl->Refresh().status());
  return std::unique_ptr<WorkerReader>(new WorkerReader(std::move(impl)));
}

Result<bool> WorkerReader::Refresh() { return impl_->Refresh(); }
const format::WorkerInfo& WorkerReader::info() const { return impl_->info; }
bool WorkerReader::alive() const { return impl_->alive; }
bool WorkerReader::ended() const { return impl_->ended; }
std::string WorkerReader::end_json() const { return impl_->end_json; }
int64_t WorkerReader::last_seen_step() const {
  const auto& commits = impl_->commits.items;
  return std::max(impl_->last_seen_step, commits.empty() ? -1 : commits.back().global_step);
}
int64_t WorkerReader::last_seen_wall_nanos() const {
  const auto& commits = impl_->commits.items;
  return std::max(impl_->last_seen_wall_nanos, commits.empty() ? 0 : commits.back().wall_nanos);
}
std::span<const format::Commit> WorkerReader::commits() const { return impl_->commits.items; }
std::span<const format::TensorDef> WorkerReader::tensors() const { return impl_->tensors; }
std::span<const format::ContextRecord> WorkerReader::context() const { return impl_->context.items; }
std::span<const std::string> WorkerReader::acks() const { return impl_->acks.items; }

std::vector<format::Loss> WorkerReader::losses() const {
  if (impl_->journal && impl_->has_snapshot) return impl_->journal->losses();
  if (!impl_->segments.empty()) return impl_->segments.back()->meta().losses;
  return {};
}

std::span<const Damage> WorkerReader::damage() const { return impl_->damage; }

uint64_t WorkerReader::bytes_on_disk() const {
  // The journal is pre-allocated: what counts is what waits in it, not the room it keeps.
  const uint64_t waiting =
      impl_->has_snapshot ? impl_->snapshot.committed_pos - impl_->snapshot.sealed_pos : 0;
  return impl_->segment_bytes + waiting;
}

std::vector<std::string> WorkerReader::doorbells() const {
  return {base::JoinPath(impl_->directory, format::kDoorbellFile),
          base::JoinPath(impl_->directory, format::kLockFile)};
}

uint64_t WorkerReader::resealed() const { return impl_->resealed; }
uint64_t WorkerReader::rewrites() const { return impl_->rewrites; }

std::span<const SummaryBatch> WorkerReader::summaries() const {
  impl_->EnsureBatches();
  return impl_->batches;
}

std::span<const WorkerReader::RowRef> WorkerReader::RowsOf(format::TensorId tensor) const {
  impl_->EnsureRows();
  return impl_->rows.Of(tensor);
}

Result<Histogram> WorkerReader::HistogramOf(RowRef row) const {
  impl_->EnsureBatches();
  if (row.batch >= impl_->batches.size() || row.row >= impl_->batches[row.batch].rows) {
    return Internal("histogram of a row that does not exist");
  }
  if (row.batch < impl_->segments.size()) {
    std::vector<Damage> found;
    auto histogram = impl_->segments[row.batch]->HistogramOf(row.row, &found);
    impl_->ReportAll(std::move(found));
    return histogram;
  }
  const SummaryBatch& batch = impl_->batches[row.batch];
  const uint64_t offset = batch.histogram_offset[row.row], bytes = batch.histogram_bytes[row.row];
  if (bytes == 0) return NotFound("no histogram was kept");
  if (offset > batch.histograms.size() || bytes > batch.histograms.size() - offset) {
    return DataLoss("a histogram lies outside its record");
  }
  return DecodeHistogram(batch.histograms.subspan(offset, bytes));
}

std::span<const WorkerReader::ScalarPoint> WorkerReader::ScalarsOf(format::TensorId tensor) const {
  impl_->EnsureScalars();
  return impl_->scalars.Of(tensor);
}

std::span<const RawRef> WorkerReader::RawsOf(format::TensorId tensor) const {
  impl_->EnsureRaws();
  return impl_->raws.Of(tensor);
}

std::span<const int64_t> WorkerReader::ShapeOf(const RawRef& ref) const {
  if (ref.source < impl_->segments.size()) return impl_->segments[ref.source]->shape_of(ref.entry);
  return impl_->live.ShapeOf(ref);
}

Result<RawValue> WorkerReader::ReadRaw(const RawRef& ref) {
  if (ref.source < impl_->segments.size()) {
    std::vector<Damage> found;
    auto value = impl_->segments[ref.source]->ReadRaw(ref.entry, &found);
    impl_->ReportAll(std::move(found));
    return value;
  }
  Status failed = DataLoss("the journal is gone");
  if (impl_->journal) {
    // No look at sealed_pos: position, sequence and both hashes together cannot belong to anything else.
    auto value = impl_->journal->ReadRaw(ref.offset, ref.sequence);
    if (value.ok()) return value;
    failed = value.status();
  }
  auto sealed = impl_->ReadSealedRaw(ref);
  if (sealed.ok() || sealed.status().code() == Code::kNotFound) return sealed;
  impl_->Report({std::string(format::kJournalFile), failed.message(), ref.bytes});
  return failed;
}

}  // namespace tdbg::store
