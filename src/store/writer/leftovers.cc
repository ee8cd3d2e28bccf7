#include "store/writer/leftovers.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/data_extents.h"
#include "base/posix.h"
#include "base/process.h"
#include "format/json_fields.h"
#include "format/segment.h"
#include "store/writer/ring.h"
#include "store/writer/segment_builder.h"
#include "store/writer/worker_writer.h"

#ifndef FALLOC_FL_PUNCH_HOLE
#include <linux/falloc.h>
#endif

namespace tdbg::store {
namespace {

// The journal of a dead process, mapped for writing: sealed_pos and the crash have to be written down in it.
// What its header says is looked at once, in a copy: somebody may write into the file while we seal it.
class DeadJournal {
 public:
  /// Nothing (and OK) if there is no journal, or none that its writer finished creating.
  static Result<std::unique_ptr<DeadJournal>> Open(const std::string& path) {
    auto mapped = base::MapForWriting(path);
    if (!mapped.ok()) {
      const Code code = mapped.status().code();
      if (code == Code::kNotFound || code == Code::kDataLoss) return std::unique_ptr<DeadJournal>();
      return mapped.status().Annotate("the journal");
    }
    const std::span<std::byte> bytes = (*mapped)->bytes();
    if (bytes.size() < format::kJournalHeaderBytes) return std::unique_ptr<DeadJournal>();
    std::unique_ptr<DeadJournal> journal(new DeadJournal(*std::move(mapped)));
    const std::span<const std::byte> page(journal->header_page_);
    std::memcpy(journal->header_page_, bytes.data(), sizeof(journal->header_page_));
    if (std::memcmp(page.data(), format::kJournalMagic, sizeof(format::kJournalMagic)) != 0) {
      return std::unique_ptr<DeadJournal>();
    }
    TDBG_RETURN_IF_ERROR(format::CheckJournalHeader(page, bytes.size()).Annotate(path));
    const Ring ring = journal->ring();
    TDBG_RETURN_IF_ERROR(format::CheckPositions(ring.sealed(), ring.committed(), ring.bytes).Annotate(path));
    return journal;
  }
  DeadJournal(const DeadJournal&) = delete;
  Ring ring() {
    return Ring::Over(mapping_->bytes(), reinterpret_cast<format::JournalHeader*>(header_page_));
  }
  /// \error kDataLoss  somebody cut it short since
  Status CheckIntact() const {
    return mapping_->intact() ? OkStatus() : DataLoss("the journal was cut short while it was sealed");
  }

 private:
  explicit DeadJournal(std::unique_ptr<base::MappedFile> mapping) : mapping_(std::move(mapping)) {}
  const std::unique_ptr<base::MappedFile> mapping_;
  alignas(format::JournalHeader) std::byte header_page_[format::kJournalHeaderBytes];
};

struct Segments {
  uint64_t last_sequence = 0;
  uint64_t bytes = 0;
  std::string newest;  // file name
};

Result<Segments> CleanAndCount(base::FileSystem& files, const std::string& directory) {
  Segments segments;
  if (!files.Exists(directory)) return segments;
  TDBG_ASSIGN_OR_RETURN(const auto entries, files.List(directory));
  for (const base::DirEntry& entry : entries) {
    if (entry.name.starts_with(".tmp-")) {
      TDBG_RETURN_IF_ERROR(files.Remove(base::JoinPath(directory, entry.name)));
      continue;
    }
    const auto range = format::ParseSegmentFileName(entry.name);
    if (!range) continue;
    segments.bytes += entry.size;
    if (range->second > segments.last_sequence) {
      segments.last_sequence = range->second;
      segments.newest = entry.name;
    }
  }
  return segments;
}

// The newest segment repeats every definition, and what was dropped up to then.
Status TakeFromSegment(base::FileSystem& files, const std::string& path, Inheritance* heir) {
  TDBG_ASSIGN_OR_RETURN(const auto file, files.OpenReadable(path));
  TDBG_ASSIGN_OR_RETURN(const uint64_t size, file->Size());
  std::vector<std::byte> bytes(8);
  TDBG_ASSIGN_OR_RETURN(size_t got, file->ReadAt(0, bytes));
  if (got < 8) return DataLoss("segment is shorter than its length field");
  uint64_t length;
  std::memcpy(&length, bytes.data(), 8);
  if (length > 100'000'000 || length > size) return DataLoss("segment's header length");
  bytes.resize(8 + length);
  TDBG_ASSIGN_OR_RETURN(got, file->ReadAt(0, bytes));
  if (got < bytes.size()) return DataLoss("segment is shorter than its header");
  TDBG_ASSIGN_OR_RETURN(const auto header, format::DecodeSegmentHeader(bytes, size));
  TDBG_ASSIGN_OR_RETURN(const format::Json json,
                        format::ParseJsonObject(header.tdbg_json, "segment", format::kMaxMetadataDepth));
  if (const auto tensors = json.find("tensors"); tensors != json.end() && tensors->is_array()) {
    for (const format::Json& def : *tensors) heir->tensors.Add(format::DumpJson(def));
  }
  if (const auto dropped = json.find("losses"); dropped != json.end() && dropped->is_array()) {
    for (const format::Json& item : *dropped) {
      if (!item.is_object()) continue;
      int64_t cause = 0, kind = 0, count = 0, dropped_bytes = 0;
      format::Drop drop;
      format::GetField(item, "cause", &cause);
      format::GetField(item, "kind", &kind);
      format::GetField(item, "count", &count);
      format::GetField(item, "bytes", &dropped_bytes);
      format::GetField(item, "first_step", &drop.first_step);
      format::GetField(item, "last_step", &drop.last_step);
      drop.cause = static_cast<uint8_t>(cause);
      drop.kind = static_cast<uint8_t>(kind);
      drop.count = static_cast<uint64_t>(count);
      drop.bytes = static_cast<uint64_t>(dropped_bytes);
      heir->dropped.push_back(drop);
    }
  }
  return OkStatus();
}

// A valid record behind committed_pos is a step that was cut off. Set, not added: a journal has one death,
// and this may run several times.
void NoteCrashedStep(const Ring& ring) {
  const uint64_t committed = ring.committed();
  format::RecordHeader header;
  std::memcpy(&header, ring.At(committed), sizeof(header));
  if (!format::CheckRecordHeader(header, committed, ring.Contiguous(committed)).ok()) return;
  if (header.sequence != ring.header->committed_seq.load(std::memory_order_acquire) + 1) return;
  // A pad or a definition carries no step of its own; the record behind it may.
  int64_t step = header.global_step;
  const auto type = static_cast<format::RecordType>(header.type);
  if (type == format::RecordType::kPad || type == format::RecordType::kTensorDef) {
    step = std::max<int64_t>(ring.header->last_seen_step.load(std::memory_order_relaxed), 0);
  }
  constexpr auto kCause = static_cast<size_t>(format::DropCause::kCrashed);
  constexpr auto kKind = static_cast<size_t>(format::DropKind::kStep) - 1;
  ring.header->drop_first_step[kCause][kKind].store(-1, std::memory_order_relaxed);
  ring.header->drop_last_step[kCause][kKind].store(-1, std::memory_order_relaxed);
  ring.header->drop_count[kCause][kKind].store(0, std::memory_order_relaxed);
  ring.CountDropped(format::DropCause::kCrashed, format::DropKind::kStep, step, 1, 0);
}

// `heir` is left alone where nobody wants it and nothing is to be sealed: it costs a look into a segment.
Status Seal(base::FileSystem& files, const std::string& worker_directory, const format::WorkerInfo& info,
            const std::string& journal_path, bool wants_heir, const std::atomic<bool>* stop,
            Inheritance* heir) {
  SegmentOrigin origin;
  origin.directory = base::JoinPath(worker_directory, format::kSegmentsDir);
  origin.run_id = info.run_id;
  origin.attempt = info.attempt;
  origin.worker = info.worker;
  TDBG_ASSIGN_OR_RETURN(Segments segments, CleanAndCount(files, origin.directory));
  heir->segment_bytes = segments.bytes;
  TDBG_ASSIGN_OR_RETURN(const std::unique_ptr<DeadJournal> journal, DeadJournal::Open(journal_path));
  const bool unsealed = journal != nullptr && journal->ring().sealed() < journal->ring().committed();
  if (!segments.newest.empty() && (wants_heir || unsealed)) {
    // A damaged newest segment costs the names, not the values: they are sealed under stand-ins.
    (void)TakeFromSegment(files, base::JoinPath(origin.directory, segments.newest), heir).ok();
  }
  if (journal == nullptr) {
    heir->next_sequence = segments.last_sequence + 1;
    return OkStatus();
  }

  const Ring ring = journal->ring();
  origin.writer_id = ring.header->writer_id;
  const uint64_t committed = ring.committed();
  const bool ended = ring.header->ended.load(std::memory_order_acquire) != 0;
  if (!ended) NoteCrashedStep(ring);
  if (unsealed) TDBG_RETURN_IF_ERROR(files.CreateDirectories(origin.directory));
  SegmentBuilder builder(&files, origin);
  std::optional<base::DataExtents> extents;  // once there is damage
  const auto data_from = [&](uint64_t offset) {
    if (!extents) extents.emplace(journal_path);
    return extents->From(offset);
  };
  while (ring.sealed() < committed) {
    if (stop != nullptr && stop->load(std::memory_order_relaxed)) return Unavailable("asked to stop");
    TDBG_ASSIGN_OR_RETURN(
        const SealResult sealed,
        builder.SealNext(ring, ring.sealed(), committed, SealLimits{}, /*verify=*/true,
                         segments.last_sequence, &heir->tensors,
                         {.check = [&] { return journal->CheckIntact(); }, .data_from = data_from}));
    heir->segment_bytes += sealed.file_bytes;
    ring.CountDropped(sealed.damage);
    ring.Set(&format::JournalHeader::sealed_seq, std::max(sealed.last_sequence, segments.last_sequence));
    ring.Set(&format::JournalHeader::sealed_pos, sealed.end_pos);
  }
  heir->dropped = DropsIn(*ring.header);
  heir->next_sequence =
      std::max(segments.last_sequence, ring.header->committed_seq.load(std::memory_order_acquire)) + 1;
  ring.Release();
  return OkStatus();
}

}  // namespace

bool MayTouchJournal(const std::string& worker_directory, const std::string& journal_path) {
  if (base::JoinPath(worker_directory, format::kJournalFile) == journal_path) return true;
  struct stat info;
  if (::lstat(journal_path.c_str(), &info) != 0) return true;  // nothing is there
  return S_ISREG(info.st_mode) && info.st_uid == ::geteuid() &&
         base::BaseName(journal_path).starts_with(kJournalElsewhere);
}

Result<Inheritance> SealLeftoversLocked(base::FileSystem& files, const std::string& worker_directory,
                                        const format::WorkerInfo& info, const std::string& journal_path) {
  Inheritance heir;
  TDBG_RETURN_IF_ERROR(
      Seal(files, worker_directory, info, journal_path, /*wants_heir=*/true, /*stop=*/nullptr, &heir));
  return heir;
}

Status SealLeftovers(base::FileSystem& files, const std::string& worker_directory,
                     const std::atomic<bool>* stop) {
  const std::string worker_file = base::JoinPath(worker_directory, format::kWorkerFile);
  if (!files.Exists(worker_file)) return OkStatus();  // it died before it wrote anything
  auto lock = files.Lock(base::JoinPath(worker_directory, format::kLockFile));
  if (!lock.ok()) return lock.status().code() == Code::kFailedPrecondition ? OkStatus() : lock.status();
  TDBG_ASSIGN_OR_RETURN(const std::string text, files.ReadFile(worker_file));
  TDBG_ASSIGN_OR_RETURN(const format::WorkerInfo info, format::WorkerInfo::FromJson(text));
  const std::string journal_path = info.journal_path.starts_with('/')
                                       ? info.journal_path
                                       : base::JoinPath(worker_directory, info.journal_path);
  // The journal is on another host's disk, so there is nothing to seal here. Its worker may be alive: a lock
  // need not reach across the network.
  if (info.host != base::HostName() && !files.Exists(journal_path)) return OkStatus();
  if (!MayTouchJournal(worker_directory, journal_path)) {
    return FailedPrecondition("worker.json names a journal that is no file of this user's: " + journal_path);
  }
  Inheritance nobody;
  return Seal(files, worker_directory, info, journal_path, /*wants_heir=*/false, stop, &nobody);
}

}  // namespace tdbg::store
