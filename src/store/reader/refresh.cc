// Taking in what is new: segments take over from the journal by sequence, whichever of the two tells a step
// first.
#include <algorithm>

#include "base/file.h"
#include "base/hash.h"
#include "format/segment.h"
#include "format/version.h"
#include "store/reader/worker_reader_impl.h"

namespace tdbg::store {
namespace {

// A reader that a busy drain laps this often in one Refresh takes what it has and leaves the rest to the
// next.
constexpr int kMaxLaps = 64;

bool SameTensor(const format::TensorDef& a, const format::TensorDef& b) {
  return a.name == b.name && a.dtype == b.dtype && a.shape == b.shape && a.part_begin == b.part_begin &&
         a.whole_shape == b.whole_shape;
}

}  // namespace

Status WorkerState::ReadWorkerJson() {
  const std::string path = base::JoinPath(directory, format::kWorkerFile);
  TDBG_ASSIGN_OR_RETURN(std::string text, base::LocalFileSystem().ReadFile(path));
  if (text == worker_json) return OkStatus();
  auto parsed = format::WorkerInfo::FromJson(text);
  if (!parsed.ok()) return parsed.status().Annotate(path);
  info = std::move(*parsed);
  worker_json = std::move(text);
  return OkStatus();
}

std::string WorkerState::JournalPath() const {
  const std::string name = info.journal_path.empty() ? std::string(format::kJournalFile) : info.journal_path;
  return name.front() == '/' ? name : base::JoinPath(directory, name);
}

void WorkerState::OpenJournal() {
  const std::string path = JournalPath();
  if (!base::LocalFileSystem().Exists(path)) return;  // a run that was copied without it, or not there yet
  auto reader = JournalReader::Open(path, info.writer_id);
  if (!reader.ok()) {
    // The directory's next owner writes worker.json before its journal: our copy may be out of date.
    const std::string before = worker_json;
    if (ReadWorkerJson().ok() && worker_json != before)
      reader = JournalReader::Open(JournalPath(), info.writer_id);
  }
  if (!reader.ok()) {
    Report({std::string(format::kJournalFile), reader.status().message(), 0});
    return;
  }
  journal = std::move(*reader);
  listed_pos = listed_seq = ~uint64_t{0};
  tail_pos = 0;
}

bool WorkerState::TakeSnapshot() {
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
  if (snapshot.from_records) {
    Report({std::string(format::kJournalFile),
            "its header's positions make no sense: what is read is what the records say of themselves", 0});
  }
  has_snapshot = true;
  last_seen_step = std::max(last_seen_step, snapshot.last_seen_step);
  last_seen_wall_nanos = std::max(last_seen_wall_nanos, snapshot.last_seen_wall_nanos);
  return true;
}

uint32_t WorkerState::Intern(format::TensorDef def) {
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

void WorkerState::LearnTensors(uint64_t writer, std::vector<format::TensorDef> defs) {
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

Status WorkerState::AdoptSegment(const std::string& name, uint64_t last, bool* news) {
  const std::string path = base::JoinPath(base::JoinPath(directory, format::kSegmentsDir), name);
  std::vector<Damage> found;
  // Definitions are skipped by their number, so those that are known must have no gaps.
  const bool dense = std::find(id_map.begin(), id_map.end(), SegmentReader::kUnknownTensor) == id_map.end();
  auto segment = SegmentReader::Open(path, {id_map_writer, dense ? id_map.size() : 0}, &found);
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
  s.SetTensors(id_map, &layouts, &spots);
  segment_commits.push_back(commits().size());
  sealed_commits.push_back(s.commits());
  for (const format::ContextRecord& record : s.meta().context) {
    const std::string text = format::ContextToJson(record);
    if (seen_context.insert(base::Hash64(std::as_bytes(std::span(text)))).second)
      context.items.push_back(record);
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

// Who keeps a run within its budget puts a smaller file in a segment's place, with the same steps
// (docs/format.md, "Levels"). As long as the old one is mapped, its blocks are not given back to the disk.
void WorkerState::TakeThinned(std::span<const base::DirEntry> entries, bool* news) {
  bool any = false;
  for (size_t i = 0; i < segments.size(); ++i) {
    const auto at = std::lower_bound(
        entries.begin(), entries.end(), segments[i]->file_name(),
        [](const base::DirEntry& entry, const std::string& name) { return entry.name < name; });
    if (at == entries.end() || at->name != segments[i]->file_name() ||
        at->size == segments[i]->file_bytes() || segments[i]->meta().writer_id != id_map_writer) {
      continue;
    }
    const std::string path = base::JoinPath(base::JoinPath(directory, format::kSegmentsDir), at->name);
    auto thinned = SegmentReader::Open(path, {id_map_writer, id_map.size()}, nullptr);
    // Cut off by somebody, or replaced by something else: what was mapped before is still there.
    if (!thinned.ok() || (*thinned)->commits().size() != sealed_commits[i].size()) continue;
    (*thinned)->SetTensors(id_map, &layouts, &spots);
    segment_bytes -= segments[i]->file_bytes();
    segment_bytes += (*thinned)->file_bytes();
    sealed_commits[i] = (*thinned)->commits();
    segments[i] = *std::move(thinned);
    any = true;
  }
  if (!any) return;
  batches.clear();
  batches_progress = {};
  rows = {};
  scalars = {};
  raws = {};
  lone_raws = {};
  ++resealed;
  ++rewrites;
  *news = true;
}

Status WorkerState::AdoptSegments(bool* news) {
  const std::string path = base::JoinPath(directory, format::kSegmentsDir);
  if (!base::LocalFileSystem().Exists(path)) return OkStatus();
  TDBG_ASSIGN_OR_RETURN(const std::vector<base::DirEntry> entries, base::LocalFileSystem().List(path));
  TakeThinned(entries, news);
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
              "records " + std::to_string(covered_seq + 1) + " to " + std::to_string(range->first - 1) +
                  " are missing",
              0});
    }
    if (!adopted) {
      told_from = commits().sealed();
      // Everything that came from the journal steps aside, then what is left of it is put behind the
      // segments.
      told.swap(tail_commits);
      context.CutTail();
      acks.CutTail();
      adopted = true;
    }
    status = AdoptSegment(entry.name, range->second, news);
    if (!status.ok()) break;
  }
  if (adopted) {
    context.Seal();
    acks.Seal();
    ++resealed;
    live.TrimTo(covered_seq);
    RebuildTail();
    const CommitList now = commits();
    bool same = now.size() - told_from >= told.size();
    for (size_t i = 0; same && i < told.size(); ++i) {
      const format::Commit commit = now[told_from + i];
      same = commit.global_step == told[i].global_step && commit.flags == told[i].flags;
    }
    if (!same) ++rewrites;
  }
  return status;
}

void WorkerState::RebuildTail() {
  for (const LiveBatch& batch : live.batches()) {
    for (size_t i = batch.first_commit; i < batch.delta.commits.size(); ++i) {
      tail_commits.push_back(batch.delta.commits[i].commit);
    }
    const auto front = batch.front();
    context.items.insert(context.items.end(),
                         batch.delta.context.begin() + static_cast<ptrdiff_t>(front.context),
                         batch.delta.context.end());
    acks.items.insert(acks.items.end(), batch.delta.acks.begin() + static_cast<ptrdiff_t>(front.acks),
                      batch.delta.acks.end());
  }
}

Status WorkerState::TakeIn(bool* news) {
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
    // Records that the journal should still hold and that nobody tells of. Remembered by where they end: a
    // page that is read while others write it may say the one position before the other, and then segments
    // tell of them later.
    const uint64_t told = std::max(tail_seq, snapshot.sealed_seq);
    if (delta.first_sequence > told + 1) untold_until_seq = delta.first_sequence - 1;
    tail_seq = delta.commits.empty() ? std::max(tail_seq, to_seq) : delta.commits.back().sequence;
    ReportAll(std::move(delta.damage));
    LearnTensors(info.writer_id, std::move(delta.tensors));
    if (!delta.end_json.empty()) {
      end_json = delta.end_json;
      ended = true;
    }
    if (delta.commits.empty()) return OkStatus();
    *news = true;
    for (const auto& commit : delta.commits) tail_commits.push_back(commit.commit);
    context.items.insert(context.items.end(), delta.context.begin(), delta.context.end());
    acks.items.insert(acks.items.end(), delta.acks.begin(), delta.acks.end());
    std::vector<Damage> found;
    live.Append(std::move(delta), id_map, &found);
    if (live.Merge()) ++resealed;
    ReportAll(std::move(found));
    return OkStatus();
  }
  return OkStatus();
}

void WorkerState::MissJournal() {
  // Who ended has everything in segments.
  if (journal || ended || base::LocalFileSystem().Exists(JournalPath())) return;
  const bool elsewhere = !info.journal_path.empty() && info.journal_path.front() == '/';
  Report(
      {std::string(format::kJournalFile),
       "is missing" +
           (elsewhere ? ", which lay at " + info.journal_path + (info.host.empty() ? "" : " on " + info.host)
                      : std::string()) +
           ": its worker died, and what was not in a segment by then is not here",
       0});
}

void WorkerState::ReadDeadJournalByItsRecords(bool* news) {
  if (!journal || snapshot.from_records) return;
  const uint64_t known = std::max(tail_seq, covered_seq);
  if (snapshot.committed_seq <= known && untold_until_seq <= covered_seq) return;
  const JournalSnapshot said = snapshot;
  journal->TrustPositions(false);
  const auto found = journal->ReadSnapshot();
  const bool tells_more =
      found.ok() && (found->committed_pos > said.committed_pos || found->sealed_pos < said.sealed_pos);
  if (!tells_more) {  // what is missing was damaged, and is reported as damage
    journal->TrustPositions(true);
    return;
  }
  // From the start, since what comes may belong in front of what is there.
  live = LiveTail();
  tail_commits.clear();
  context.CutTail();
  acks.CutTail();
  tail_pos = 0;
  tail_seq = covered_seq;
  ++resealed;
  ++rewrites;
  (void)TakeIn(news).ok();
}

Result<bool> WorkerState::Refresh() {
  bool news = false;
  // A writer whose journal was cut short makes another one; what the first one held is in segments by then.
  if (journal && !journal->SameFileAs(JournalPath()) && base::LocalFileSystem().Exists(JournalPath()))
    journal.reset();
  TDBG_RETURN_IF_ERROR(TakeIn(&news));
  // The order is what makes "dead" final: what the process committed before it died is taken in after its
  // lock was seen free.
  const bool locked = base::LocalFileSystem().IsLocked(base::JoinPath(directory, format::kLockFile));
  if (!locked && (alive || !opened)) TDBG_RETURN_IF_ERROR(TakeIn(&news));
  if (!locked) {
    ReadDeadJournalByItsRecords(&news);
    MissJournal();
  }
  if (locked && !alive && journal && !journal->SameFileAs(JournalPath())) {
    journal.reset();  // the next owner of this directory made its own
    TDBG_RETURN_IF_ERROR(TakeIn(&news));
  }
  if (locked != alive) news = true;
  alive = locked;
  opened = true;
  return news;
}

}  // namespace tdbg::store
