#include "store/reader/worker_reader.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <unordered_set>

#include "base/file.h"
#include "base/hash.h"
#include "format/segment.h"
#include "format/version.h"
#include "store/reader/index.h"
#include "store/reader/journal_reader.h"
#include "store/reader/live_tail.h"
#include "store/reader/segment_reader.h"

namespace tdbg::store {
namespace {

constexpr uint32_t kJournalSource = ~uint32_t{0};
// A reader that a busy drain laps this often in one Refresh takes what it has and leaves the rest to the next.
constexpr int kMaxLaps = 64;

/// A list that grows from two sides of the same story: what segments say, then what the journal says.
template <typename T>
struct SealedTailList {
  std::vector<T> items;
  size_t sealed = 0;
  void CutTail() { items.resize(sealed); }
  void Seal() { sealed = items.size(); }
};

/// How far an index has taken in what there is.
struct IndexProgress {
  size_t segments = 0, live = 0;
  uint64_t resealed = 0;
};

bool SameTensor(const format::TensorDef& a, const format::TensorDef& b) {
  return a.name == b.name && a.dtype == b.dtype && a.shape == b.shape;
}

}  // namespace

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

struct WorkerReader::Impl {
  std::string directory;
  std::string worker_json;
  format::WorkerInfo info;
  bool opened = false;

  std::unique_ptr<JournalReader> journal;
  JournalSnapshot snapshot;
  bool has_snapshot = false;
  uint64_t listed_pos = ~uint64_t{0}, listed_seq = ~uint64_t{0};  // sealed_* at the last listing
  bool alive = false;
  bool ended = false;
  std::string end_json;
  int64_t last_seen_step = -1, last_seen_wall_nanos = 0;

  std::vector<std::unique_ptr<SegmentReader>> segments;
  std::vector<size_t> segment_commits;                 // index of each segment's first commit
  std::set<std::string> seen_files;
  uint64_t segment_bytes = 0;
  uint64_t covered_seq = 0;                            // segments tell everything up to here
  uint64_t tail_pos = 0, tail_seq = 0;                 // the journal has been read up to here
  uint64_t resealed = 0, rewrites = 0;
  LiveTail live;
  std::map<uint64_t, std::unique_ptr<SegmentReader>> side_segments;  // opened for a raw value before their turn

  SealedTailList<format::Commit> commits;
  SealedTailList<format::ContextRecord> context;
  SealedTailList<std::string> acks;
  std::unordered_set<uint64_t> seen_context;           // of the sealed prefix: segments may repeat themselves
  std::vector<format::TensorDef> tensors;
  std::multimap<std::string, uint32_t> tensors_by_name;
  std::vector<uint32_t> id_map;                        // the current writer's ids
  uint64_t id_map_writer = 0;

  std::vector<Damage> damage;
  std::unordered_set<std::string> damage_seen;

  std::vector<SummaryBatch> batches;
  IndexProgress batches_progress, rows_progress, scalars_progress, raws_progress;
  SealedTailIndex<RowRef> rows;
  SealedTailIndex<ScalarPoint> scalars;
  SealedTailIndex<RawRef> raws;

  void Report(Damage d) {
    // The same bytes are looked at again by every Refresh: say it once.
    if (damage_seen.insert(d.file + '\0' + d.what).second) damage.push_back(std::move(d));
  }
  void ReportAll(std::vector<Damage> list) {
    for (Damage& d : list) Report(std::move(d));
  }

  Status ReadWorkerJson();
  std::string JournalPath() const;
  void OpenJournal();
  bool TakeSnapshot();
  Status AdoptSegments(bool* news);
  Status AdoptSegment(const std::string& name, uint64_t last, bool* news);
  uint32_t Intern(format::TensorDef def);
  void LearnTensors(uint64_t writer, std::vector<format::TensorDef> defs);
  void RebuildTail();
  Status TakeIn(bool* news);
  Result<bool> Refresh();

  template <typename Index, typename FromSegment, typename FromLive>
  void BringUpToDate(IndexProgress* progress, Index* index, FromSegment from_segment, FromLive from_live);
  void EnsureBatches();
  void EnsureRows();
  void EnsureScalars();
  void EnsureRaws();
  Result<RawValue> ReadSealedRaw(const RawRef& ref);
};

Status WorkerReader::Impl::ReadWorkerJson() {
  const std::string path = base::JoinPath(directory, format::kWorkerFile);
  TDBG_ASSIGN_OR_RETURN(std::string text, base::LocalFileSystem().ReadFile(path));
  if (text == worker_json) return OkStatus();
  auto parsed = format::WorkerInfo::FromJson(text);
  if (!parsed.ok()) return parsed.status().Annotate(path);
  info = std::move(*parsed);
  worker_json = std::move(text);
  return OkStatus();
}

std::string WorkerReader::Impl::JournalPath() const {
  const std::string name = info.journal_path.empty() ? std::string(format::kJournalFile) : info.journal_path;
  return name.front() == '/' ? name : base::JoinPath(directory, name);
}

void WorkerReader::Impl::OpenJournal() {
  const std::string path = JournalPath();
  if (!base::LocalFileSystem().Exists(path)) return;  // a run that was copied without it, or not there yet
  auto reader = JournalReader::Open(path, info.writer_id);
  if (!reader.ok()) {
    // Its next owner writes worker.json first: what we hold may be yesterday's.
    const std::string before = worker_json;
    if (ReadWorkerJson().ok() && worker_json != before) reader = JournalReader::Open(JournalPath(), info.writer_id);
  }
  if (!reader.ok()) {
    Report({std::string(format::kJournalFile), reader.status().message(), 0});
    return;
  }
  journal = std::move(*reader);
  listed_pos = listed_seq = ~uint64_t{0};
  tail_pos = 0;
}

bool WorkerReader::Impl::TakeSnapshot() {
  if (!journal) OpenJournal();
  if (!journal) return false;
  auto now = journal->ReadSnapshot();
  if (!now.ok()) {
    journal.reset();
    OpenJournal();
    if (journal) now = journal->ReadSnapshot();
    if (!journal || !now.ok()) {
      Report({std::string(format::kJournalFile), now.status().message(), 0});
      journal.reset();
      return false;
    }
  }
  snapshot = *now;
  has_snapshot = true;
  last_seen_step = std::max(last_seen_step, snapshot.last_seen_step);
  last_seen_wall_nanos = std::max(last_seen_wall_nanos, snapshot.last_seen_wall_nanos);
  return true;
}

uint32_t WorkerReader::Impl::Intern(format::TensorDef def) {
  if (def.id < tensors.size() && SameTensor(tensors[def.id], def)) return def.id;
  // A new id of the same tensor (another writer in this directory) is the tensor that is known already; the
  // same id of another tensor gets a new number of ours.
  const auto [first, last] = tensors_by_name.equal_range(def.name);
  if (def.id != tensors.size()) {
    for (auto it = first; it != last; ++it) {
      if (SameTensor(tensors[it->second], def)) return it->second;
    }
  }
  def.id = static_cast<uint32_t>(tensors.size());
  tensors_by_name.emplace(def.name, def.id);
  tensors.push_back(std::move(def));
  return static_cast<uint32_t>(tensors.size() - 1);
}

void WorkerReader::Impl::LearnTensors(uint64_t writer, std::vector<format::TensorDef> defs) {
  if (writer != id_map_writer) {
    id_map.clear();
    id_map_writer = writer;
  }
  for (format::TensorDef& def : defs) {
    const uint32_t theirs = def.id;
    if (theirs > (1u << 24)) continue;  // dense by contract: this one is nonsense, its rows will be damage
    if (theirs >= id_map.size()) id_map.resize(theirs + 1, SegmentReader::kUnknownTensor);
    if (id_map[theirs] == SegmentReader::kUnknownTensor) id_map[theirs] = Intern(std::move(def));
  }
}

Status WorkerReader::Impl::AdoptSegment(const std::string& name, uint64_t last, bool* news) {
  const std::string path =
      base::JoinPath(base::JoinPath(directory, format::kSegmentsDir), name);
  std::vector<Damage> found;
  // Known definitions must be without holes to be skipped by count.
  const bool dense = std::find(id_map.begin(), id_map.end(), SegmentReader::kUnknownTensor) == id_map.end();
  auto segment = SegmentReader::Open(path, id_map_writer, dense ? id_map.size() : 0, &found);
  ReportAll(std::move(found));
  if (!segment.ok()) {
    const Code code = segment.status().code();
    if (code == Code::kResourceExhausted || code == Code::kUnavailable || code == Code::kUnimplemented) {
      return segment.status().Annotate(path);
    }
    Report({name, segment.status().message(), 0});
    seen_files.insert(name);
    covered_seq = last;
    *news = true;
    return OkStatus();
  }
  SegmentReader& s = **segment;
  LearnTensors(s.meta().writer_id, s.meta().tensors);
  s.SetIdMap(id_map);
  segment_commits.push_back(commits.items.size());
  commits.items.insert(commits.items.end(), s.commits().begin(), s.commits().end());
  for (const format::ContextRecord& record : s.meta().context) {
    const std::string text = format::ContextToJson(record);
    if (seen_context.insert(base::Hash64(std::as_bytes(std::span(text)))).second) context.items.push_back(record);
  }
  for (const std::string& ack : s.meta().acks) {
    if (std::find(acks.items.begin(), acks.items.end(), ack) == acks.items.end()) acks.items.push_back(ack);
  }
  if (!s.meta().end_json.empty()) {
    end_json = s.meta().end_json;
    ended = true;
  }
  last_seen_step = std::max(last_seen_step, s.meta().last_seen_step);
  last_seen_wall_nanos = std::max(last_seen_wall_nanos, s.meta().last_seen_wall_nanos);
  segment_bytes += s.file_bytes();
  segments.push_back(std::move(*segment));
  seen_files.insert(name);
  covered_seq = last;
  *news = true;
  return OkStatus();
}

Status WorkerReader::Impl::AdoptSegments(bool* news) {
  const std::string path = base::JoinPath(directory, format::kSegmentsDir);
  if (!base::LocalFileSystem().Exists(path)) return OkStatus();
  TDBG_ASSIGN_OR_RETURN(const std::vector<base::DirEntry> entries, base::LocalFileSystem().List(path));
  bool adopted = false;
  Status status;
  std::vector<format::Commit> told;  // what the journal said of the commits that change sides now
  size_t told_from = 0;
  for (const base::DirEntry& entry : entries) {
    const auto range = format::ParseSegmentFileName(entry.name);
    if (!range || seen_files.contains(entry.name)) continue;
    if (range->second <= covered_seq) {  // the same records twice: the first will do
      seen_files.insert(entry.name);
      continue;
    }
    if (range->first <= covered_seq) {
      Report({entry.name, "repeats a part of the segment before it: left out", entry.size});
      seen_files.insert(entry.name);
      continue;
    }
    if (range->first != covered_seq + 1) {
      Report({std::string(format::kSegmentsDir),
              "records " + std::to_string(covered_seq + 1) + " to " + std::to_string(range->first - 1) + " are missing",
              0});
    }
    if (!adopted) {
      told_from = commits.sealed;
      told.assign(commits.items.begin() + static_cast<ptrdiff_t>(told_from), commits.items.end());
      // Everything that came from the journal steps aside, then what is left of it is put behind the segments.
      commits.CutTail();
      context.CutTail();
      acks.CutTail();
      adopted = true;
    }
    status = AdoptSegment(entry.name, range->second, news);
    if (!status.ok()) break;
  }
  if (adopted) {
    commits.Seal();
    context.Seal();
    acks.Seal();
    ++resealed;
    live.TrimTo(covered_seq);
    RebuildTail();
    const auto begin = commits.items.begin() + static_cast<ptrdiff_t>(told_from);
    const bool same = commits.items.size() - told_from >= told.size() &&
                      std::equal(told.begin(), told.end(), begin, [](const auto& a, const auto& b) {
                        return a.global_step == b.global_step && a.flags == b.flags;
                      });
    if (!same) ++rewrites;
  }
  return status;
}

void WorkerReader::Impl::RebuildTail() {
  for (const LiveBatch& batch : live.batches()) {
    for (size_t i = batch.first_commit; i < batch.delta.commits.size(); ++i) {
      commits.items.push_back(batch.delta.commits[i].commit);
    }
    const auto front = batch.front();
    context.items.insert(context.items.end(), batch.delta.context.begin() + static_cast<ptrdiff_t>(front.context),
                         batch.delta.context.end());
    acks.items.insert(acks.items.end(), batch.delta.acks.begin() + static_cast<ptrdiff_t>(front.acks),
                      batch.delta.acks.end());
  }
}

Status WorkerReader::Impl::TakeIn(bool* news) {
  for (int lap = 0; lap < kMaxLaps; ++lap) {
    if (!TakeSnapshot()) return AdoptSegments(news);
    if (snapshot.sealed_pos != listed_pos || snapshot.sealed_seq != listed_seq) {
      TDBG_RETURN_IF_ERROR(AdoptSegments(news));
      listed_pos = snapshot.sealed_pos;
      listed_seq = snapshot.sealed_seq;
      if (covered_seq < snapshot.sealed_seq) {
        Report({std::string(format::kSegmentsDir),
                "records " + std::to_string(covered_seq + 1) + " to " + std::to_string(snapshot.sealed_seq) +
                    " are missing",
                0});
        covered_seq = snapshot.sealed_seq;
      }
    }
    tail_pos = std::max(tail_pos, snapshot.sealed_pos);
    tail_seq = std::max(tail_seq, covered_seq);
    if (snapshot.committed_pos <= tail_pos) return OkStatus();

    const uint64_t to = snapshot.committed_pos;
    const uint64_t to_seq = snapshot.committed_seq;
    JournalDelta delta;
    const Status read = journal->Read(tail_pos, to, tail_seq, &delta);
    if (!TakeSnapshot()) continue;
    if (snapshot.sealed_pos > tail_pos) continue;  // lapped: segments tell this part
    if (!read.ok()) {
      Report({std::string(format::kJournalFile), read.message(), to - tail_pos});
      tail_pos = to;
      return OkStatus();
    }
    tail_pos = to;
    tail_seq = delta.commits.empty() ? std::max(tail_seq, to_seq) : delta.commits.back().sequence;
    ReportAll(std::move(delta.damage));
    LearnTensors(info.writer_id, std::move(delta.tensors));
    if (!delta.end_json.empty()) {
      end_json = delta.end_json;
      ended = true;
    }
    if (delta.commits.empty()) return OkStatus();
    *news = true;
    for (const auto& commit : delta.commits) commits.items.push_back(commit.commit);
    context.items.insert(context.items.end(), delta.context.begin(), delta.context.end());
    acks.items.insert(acks.items.end(), delta.acks.begin(), delta.acks.end());
    std::vector<Damage> found;
    live.Append(std::move(delta), id_map, &found);
    ReportAll(std::move(found));
    return OkStatus();
  }
  return OkStatus();
}

Result<bool> WorkerReader::Impl::Refresh() {
  bool news = false;
  TDBG_RETURN_IF_ERROR(TakeIn(&news));
  // The order is what makes "dead" final: what the process committed before it died is taken in after its lock
  // was seen free.
  const bool locked = base::LocalFileSystem().IsLocked(base::JoinPath(directory, format::kLockFile));
  if (!locked && (alive || !opened)) TDBG_RETURN_IF_ERROR(TakeIn(&news));
  if (locked && !alive && journal && !journal->SameFileAs(JournalPath())) {
    journal.reset();  // the next owner of this directory made its own
    TDBG_RETURN_IF_ERROR(TakeIn(&news));
  }
  if (locked != alive) news = true;
  alive = locked;
  opened = true;
  return news;
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
        for (const SegmentReader::ScalarRow& row : segments[i]->Scalars(&found)) scalars.Append(row.tensor, row.point);
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
    if (s->meta().first_sequence <= ref.sequence && ref.sequence <= s->meta().last_sequence) segment = s.get();
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
  return impl_->segment_bytes + (impl_->journal ? impl_->journal->file_bytes() : 0);
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
