#include "storage/mirror.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <set>
#include <utility>

#include "base/file.h"
#include "base/process.h"
#include "base/sha256.h"
#include "base/text.h"
#include "format/journal.h"
#include "format/json_fields.h"
#include "format/run_files.h"
#include "format/segment.h"
#include "format/segment_index.h"
#include "format/version.h"
#include "storage/cache_use.h"
#include "storage/checkpoint_sets.h"
#include "storage/parallel.h"
#include "storage/s3/credentials.h"
#include "storage/sparse_file.h"

namespace tdbg::storage {
namespace {

namespace fs = std::filesystem;

// A segment up to this size is fetched whole: cheaper than several requests.
constexpr uint64_t kWholeBytes = 256u << 10;
// How much of a segment's end the first request for its index fetches.
constexpr uint64_t kTailBytes = 64u << 10;
constexpr uint64_t kMaxCopied = 64u << 20;        // largest file of a run that is copied whole
constexpr uint64_t kMaxCopiedOfWhole = 1u << 20;  // where everything is fetched, longer ones come in ranges
constexpr uint64_t kMaxOthers = uint64_t{1} << 30;
constexpr uint64_t kMaxSegment = uint64_t{1} << 42;
constexpr int kLists = 4;  // how often a list is repeated that lacks an object that must be there
constexpr useconds_t kListPauseMicros = 100'000;

std::vector<std::string> PartsOf(const std::string& name) { return base::SplitList(name, '/'); }

bool IsNumber(const std::string& text) { return base::ParseInt(text).value_or(-1) >= 0; }

bool IsSegment(const std::vector<std::string>& parts) {
  return parts.size() == 4 && IsNumber(parts[0]) && parts[2] == format::kSegmentsDir &&
         format::ParseSegmentFileName(parts[3]).has_value();
}

// What the state names as held, and nothing else.
bool IsLock(const std::string& name) {
  const std::vector<std::string> parts = PartsOf(name);
  return name == format::kLauncherLockFile ||
         (parts.size() == 3 && IsNumber(parts[0]) && parts[2] == format::kLockFile);
}

// What only processes of one machine can use; no uploader puts it there.
bool IsOfOneMachine(const std::string& name) {
  const std::string base_name = base::BaseName(name);
  for (const std::string_view file : {format::kLauncherLockFile, format::kLockFile, format::kJournalFile,
                                      format::kDoorbellFile, format::kControlFile}) {
    if (base_name == file) return true;
  }
  return false;
}

// Files that readers open, besides segments and journals; not the job's output or exports.
bool IsCopied(const std::vector<std::string>& parts) {
  return parts.size() == 1 || (parts.size() <= 3 && IsNumber(parts[0]));
}

int RankOf(const std::string& name) {
  if (name == format::kRunFile) return 2;
  return name == format::kEventsFile ? 1 : 0;
}

// In the mirror, the journal is always in the worker's directory, wherever the original was.
std::string WithJournalHere(const std::string& worker_json) {
  auto json = format::ParseJsonObject(worker_json, format::kWorkerFile);
  if (!json.ok()) return worker_json;
  (*json)["journal_path"] = format::kJournalFile;
  return format::DumpJson(*json);
}

struct RingPosition {
  uint64_t position = 0, sequence = 0;
};

Result<RingPosition> CommittedIn(int fd, const std::string& path) {
  RingPosition committed;
  const ssize_t got =
      ::pread(fd, &committed, sizeof(committed), offsetof(format::JournalHeader, committed_pos));
  if (got != sizeof(committed)) return base::PathError(got < 0 ? errno : EIO, "cannot read", path);
  return committed;
}

// Another process may be reading this journal now. What is about to be overwritten is called sealed first, as
// a training's own drain does: readers look at sealed_pos after they have read. Never beyond what is
// committed, which stays as it is until all bytes are there.
Status CallSealed(int fd, RingPosition committed, const std::string& newest_page, const std::string& path) {
  constexpr uint64_t kSealed = offsetof(format::JournalHeader, sealed_pos);
  RingPosition sealed;
  ::memcpy(&sealed, newest_page.data() + kSealed, sizeof(sealed));
  if (sealed.position > committed.position) sealed = committed;
  return WriteAt(fd, kSealed, std::string_view(reinterpret_cast<const char*>(&sealed), sizeof(sealed)), path);
}

}  // namespace

Mirror::Mirror(ObjectStore* store, MirrorOptions options) : store_(store), options_(std::move(options)) {}

Mirror::~Mirror() {
  held_.clear();
  if (lazy_ || directory_.empty()) return;
  std::error_code error;
  fs::remove_all(fs::path(directory_).parent_path(), error);
}

std::string Mirror::PathOf(const std::string& name) const { return base::JoinPath(directory_, name); }

Result<Object> Mirror::Fetch(const std::string& name, std::optional<Range> range) {
  ++requests_;
  auto object = store_->Get(Key(name), range);
  if (object.ok()) bytes_fetched_ += object->bytes.size();
  return object;
}

Result<std::unique_ptr<Mirror>> Mirror::Open(ObjectStore* store, MirrorOptions options, FetchedBytes* bytes) {
  std::unique_ptr<Mirror> mirror(new Mirror(store, std::move(options)));
  Mirror& m = *mirror;
  m.bytes_ = bytes;
  const auto run = m.Fetch(std::string(format::kRunFile));
  std::string of_run;
  if (run.ok()) {
    const auto info = format::RunInfo::FromJson(run->bytes);
    if (!info.ok()) return info.status().Annotate(m.options_.from.ToString());
    of_run = base::HexOf(base::Sha256(info->id)).substr(0, 16);
  } else if (run.status().code() == Code::kNotFound && m.options_.whole) {
    m.has_run_file_ = false;
    of_run = base::HexOf(base::Sha256(m.options_.run_id)).substr(0, 16);
  } else if (run.status().code() == Code::kNotFound) {
    m.lazy_ = false;
    of_run = fmt::format("other-{}", ::getpid());
    bool smdebug = false;
    for (const char* const folder : {"collections/", "index/", "events/"}) {
      TDBG_ASSIGN_OR_RETURN(const auto there, store->List(m.Key(folder), 1));
      smdebug |= !there.empty();
    }
    if (!smdebug) return NotFound("no run there: " + m.options_.from.ToString());
  } else {
    return run.status();
  }
  const std::string place = m.options_.from.ToString() + "\n" + ProcessEnvironment("AWS_ENDPOINT_URL_S3") +
                            "\n" + ProcessEnvironment("AWS_ENDPOINT_URL");
  const std::string home = base::JoinPath(
      base::JoinPath(m.options_.cache_root, base::HexOf(base::Sha256(place)).substr(0, 16)), of_run);
  base::FileSystem& files = base::LocalFileSystem();
  TDBG_ASSIGN_OR_RETURN(m.in_use_, KeepInUse(home));
  ::chmod(m.options_.cache_root.c_str(), 0700);
  const std::string lock = base::JoinPath(home, "sync.lock");
  m.sync_lock_ = base::OpenFd(lock.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW, 0600);
  if (!m.sync_lock_.ok()) return base::PathError(errno, "cannot make", lock);
  ::futimens(m.sync_lock_.get(), nullptr);
  if (::flock(m.sync_lock_.get(), LOCK_EX) != 0) return base::PathError(errno, "cannot lock", lock);
  // After a crash of the machine, the bits may say that blocks are there whose bytes were lost.
  const std::string boot = base::JoinPath(home, "boot");
  const auto booted = files.ReadFile(boot);
  if (!booted.ok() || *booted != base::BootId()) {
    std::error_code error;
    fs::remove_all(base::JoinPath(home, "run"), error);
    fs::remove_all(base::JoinPath(home, "have"), error);
    TDBG_RETURN_IF_ERROR(files.WriteFileAtomic(boot, base::BootId()));
  }
  m.directory_ = base::JoinPath(home, "run");
  TDBG_RETURN_IF_ERROR(files.CreateDirectories(m.directory_));
  ::flock(m.sync_lock_.get(), LOCK_UN);
  TDBG_RETURN_IF_ERROR(m.Refresh());
  RemoveUnused(m.options_.cache_root);
  return mirror;
}

Status Mirror::Refresh() {
  // Only one process at a time updates the mirror of a run; the kernel releases the lock if we die.
  if (::flock(sync_lock_.get(), LOCK_EX) != 0) return base::PathError(errno, "cannot lock", directory_);
  const auto unlock = [this](const Status& status) {
    ::flock(sync_lock_.get(), LOCK_UN);
    return status;
  };
  // Read the state before the list: if the state says complete, the list has everything.
  std::optional<UploadState> state;
  bool alive = false;
  if (lazy_) {
    const auto object = Fetch(std::string(kStateFile));
    if (!object.ok() && object.status().code() != Code::kNotFound) return unlock(object.status());
    if (object.ok()) {
      auto parsed = UploadState::FromJson(object->bytes);
      if (parsed.ok()) state = *std::move(parsed);
      alive = !options_.whole && state && MayGoOn(*state, AgeNanos(*object));
    }
  }
  const auto listed = List(state);
  if (!listed.ok()) return unlock(listed.status());
  SayLeftOut(*listed);
  std::vector<ObjectInfo> copied, segments;
  std::map<std::string, std::vector<JournalPart>> journals;
  for (ObjectInfo object : *listed) {
    const std::vector<std::string> parts = PartsOf(object.key);
    if (!lazy_) {
      if (object.bytes <= kMaxOthers) copied.push_back(std::move(object));
    } else if (options_.whole && (object.key == kStateFile || IsOfOneMachine(object.key))) {
      continue;
    } else if (IsSegment(parts)) {
      if (object.bytes <= kMaxSegment) segments.push_back(std::move(object));
    } else if (parts.size() == 4 && parts[2] == kJournalParts) {
      if (const auto part = JournalPart::Parse(parts[3]))
        journals[parts[0] + "/" + parts[1]].push_back(*part);
    } else if (options_.whole) {
      (object.bytes > kMaxCopiedOfWhole ? segments : copied).push_back(std::move(object));
    } else if (included_.contains(parts[0]) && object.bytes <= kMaxOthers) {
      copied.push_back(std::move(object));
    } else if (IsCopied(parts) && object.bytes <= kMaxCopied && object.key != kStateFile) {
      copied.push_back(std::move(object));
    }
  }
  if (bytes_ != nullptr) {
    for (const std::vector<ObjectInfo>* objects : {&copied, &segments}) {
      for (const ObjectInfo& object : *objects) bytes_->all += object.bytes;
    }
  }
  if (Status taken = TakeSegments(segments); !taken.ok()) return unlock(taken);
  if (Status taken = TakeJournals(journals); !taken.ok()) return unlock(taken);
  // Take the locks of living workers before their files appear: otherwise a reader would take them for dead.
  if (alive) HoldLocks(&*state, true);
  if (Status taken = CopyWhole(copied); !taken.ok()) return unlock(taken);
  if (!alive) HoldLocks(nullptr, false);
  return unlock(OkStatus());
}

// Who reads a run that lacks something is told, once.
void Mirror::SayLeftOut(const std::vector<ObjectInfo>& objects) {
  for (const ObjectInfo& object : objects) {
    const std::vector<std::string> parts = PartsOf(object.key);
    uint64_t most = lazy_ ? 0 : kMaxOthers;
    if (lazy_ && IsSegment(parts)) most = kMaxSegment;
    if (lazy_ && !options_.whole && !IsSegment(parts) && IsCopied(parts)) most = kMaxCopied;
    if (most == 0 || object.bytes <= most || !options_.say || !left_out_.insert(object.key).second) continue;
    options_.say(fmt::format("{} ({}) is longer than {} and is left out", object.key,
                             base::FormatBytes(object.bytes), base::FormatBytes(most)));
  }
}

// Names below the prefix. A list may be outdated (a cache in front of the store, a store that is not
// consistent): one that lacks objects that must be there is requested again.
Result<std::vector<ObjectInfo>> Mirror::List(const std::optional<UploadState>& state) {
  for (int tries = 0;; ++tries) {
    ++requests_;
    TDBG_ASSIGN_OR_RETURN(const std::vector<ObjectInfo> all, store_->List(Key("")));
    std::vector<ObjectInfo> named;
    int64_t files = 0;
    bool run = false;
    for (ObjectInfo object : all) {
      object.key = object.key.substr(Key("").size());
      if (!IsSafeName(object.key)) continue;  // a "directory", or something that is not ours
      // A script's checkpoints are no files of the run, and come back by themselves.
      if (object.key.starts_with(kCheckpointSets) || object.key.starts_with(kCheckpointFiles)) continue;
      run |= object.key == format::kRunFile;
      files += object.key != kStateFile && object.key.find(kJournalParts) == std::string::npos;
      named.push_back(std::move(object));
    }
    const bool run_is_there = run || !lazy_ || !has_run_file_;
    const bool whole = run_is_there && (!state || !state->complete || files >= state->files);
    if (whole || tries >= kLists) {
      if (options_.whole && run_is_there && !whole)
        return DataLoss(fmt::format("{} of the {} files of the run are missing in {}", state->files - files,
                                    state->files, options_.from.ToString()));
      if (run_is_there) return named;  // files that were removed since are reported as damage
      return Unavailable("the store lists no run.json in " + options_.from.ToString() + ", and has one");
    }
    ::usleep(kListPauseMicros << tries);
  }
}

// Whether the processes that the state names may live: what it says is believed until its uploader is taken
// for gone, and with it the machine (kGoneNanos).
bool Mirror::MayGoOn(const UploadState& state, int64_t age_nanos) {
  if (!state.following) return false;
  if (state.left) {  // nobody promised a sign of life: silence says nothing
    if (options_.say && !std::exchange(said_late_, true))
      options_.say(
          fmt::format("it was sent {} s ago, on {}, while it trained; tdbg upload sends what came since",
                      age_nanos / 1'000'000'000, state.host));
    return true;
  }
  const bool gone = age_nanos >= state.SilenceNanos(kGoneNanos);
  const bool late = !gone && age_nanos >= state.SilenceNanos(kReplacedNanos);
  bool& said = gone ? said_gone_ : said_late_;
  if ((gone || late) && options_.say && !std::exchange(said, true))
    options_.say(fmt::format("its uploader, on {}, has given no sign of life for {} s: {}", state.host,
                             age_nanos / 1'000'000'000,
                             gone ? "it is taken for gone, and so is what it last saw alive"
                                  : fmt::format("what is shown may be late; it is taken for gone after {} s",
                                                state.SilenceNanos(kGoneNanos) / 1'000'000'000)));
  if (!gone && !late) said_late_ = said_gone_ = false;
  return !gone;
}

// Who looked last decides, for all that read this mirror: a process that has not looked for long may still
// hold what was held then. So what is not held is removed, and whoever asks for such a lock finds none.
void Mirror::HoldLocks(const UploadState* state, bool alive) {
  if (!lazy_) return;
  std::map<std::string, base::UniqueFd> held;
  std::set<std::string> kept;
  for (const std::string& name : alive ? state->held : std::vector<std::string>()) {
    if (!IsLock(name) || !IsSafeName(name)) continue;
    kept.insert(name);
    const std::string path = PathOf(name);
    if (const auto at = held_.find(name); at != held_.end() && IsAt(at->second.get(), path)) {
      held[name] = std::move(at->second);
      continue;
    }
    (void)base::LocalFileSystem().CreateDirectories(path.substr(0, path.rfind('/')));
    base::UniqueFd fd = base::OpenFd(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW, 0600);
    // If another process that mirrors this run holds the lock, that serves as well: where it lets go, readers
    // look again before they believe it (Trial::Refresh).
    if (fd.ok() && ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) held[name] = std::move(fd);
  }
  held_ = std::move(held);
  std::error_code error;
  std::vector<fs::path> others;
  fs::recursive_directory_iterator at(directory_, error);
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    if (at.depth() >= 2) at.disable_recursion_pending();
    const std::string name = at->path().lexically_relative(directory_).string();
    if (IsLock(name) && !kept.contains(name)) others.push_back(at->path());
  }
  for (const fs::path& other : others) fs::remove(other, error);
}

Status Mirror::CopyWhole(const std::vector<ObjectInfo>& objects) {
  std::map<int, std::vector<const ObjectInfo*>> due;
  for (const ObjectInfo& object : objects) {
    const auto known = etags_.find(object.key);
    if (known == etags_.end() || known->second != object.etag) due[RankOf(object.key)].push_back(&object);
  }
  for (const auto& [rank, list] : due) {
    const auto& objects_of_rank = list;
    TDBG_RETURN_IF_ERROR(InParallel(list.size(), options_.requests_at_once,
                                    [&](size_t i) { return CopyOne(*objects_of_rank[i]); }));
  }
  return OkStatus();
}

namespace {

// Also where it cannot be said, as the store does not answer.
bool IsAllOf(const Result<Object>& copy, const ObjectInfo& object) {
  return copy.ok() ? copy->bytes.size() == object.bytes : copy.status().code() != Code::kNotFound;
}

}  // namespace

Status Mirror::CopyOne(const ObjectInfo& object) {
  auto copy = Fetch(object.key);
  if (options_.whole && !IsAllOf(copy, object))
    return DataLoss(object.key + " is listed and cannot be read, in " + options_.from.ToString());
  // Deleted since it was listed.
  if (!copy.ok() && copy.status().code() == Code::kNotFound) return OkStatus();
  if (!copy.ok()) return copy.status();
  if (bytes_ != nullptr) bytes_->done += copy->bytes.size();
  if (lazy_ && base::BaseName(object.key) == format::kWorkerFile) copy->bytes = WithJournalHere(copy->bytes);
  const std::string path = PathOf(object.key);
  TDBG_RETURN_IF_ERROR(base::LocalFileSystem().CreateDirectories(path.substr(0, path.rfind('/'))));
  TDBG_RETURN_IF_ERROR(base::LocalFileSystem().WriteFileAtomic(path, copy->bytes));
  const std::lock_guard guard(etags_mutex_);
  etags_[object.key] = copy->info.etag.empty() ? object.etag : copy->info.etag;
  return OkStatus();
}

Status Mirror::TakeSegments(const std::vector<ObjectInfo>& objects) {
  std::vector<std::unique_ptr<SparseFile>> fresh;
  for (const ObjectInfo& object : objects) {
    if (segments_.contains(object.key)) continue;
    auto segment = std::make_unique<SparseFile>();
    segment->name = object.key;
    segment->bytes = object.bytes;
    const std::string path = PathOf(object.key);
    const std::string parts =
        base::JoinPath(base::JoinPath(fs::path(directory_).parent_path().string(), "have"), object.key);
    for (const std::string& file : {path, parts})
      TDBG_RETURN_IF_ERROR(base::LocalFileSystem().CreateDirectories(file.substr(0, file.rfind('/'))));
    // Gets its final name only once its index was fetched, since readers open every segment they see.
    std::error_code error;
    bool known = base::LocalFileSystem().Exists(path);
    // A segment never changes; what else an earlier try has left may be of an earlier time.
    const bool stays = IsSegment(PartsOf(object.key));
    if (!stays) fs::remove(parts, error);
    if (known && (!stays || fs::file_size(path, error) != object.bytes)) {
      // The store has another object of this name by now. Nothing of the old one is part of it; cut off in
      // place it would end under whoever has it mapped.
      fs::remove(path, error);
      fs::remove(parts, error);
      known = false;
    }
    segment->path = known ? path : path.substr(0, path.rfind('/') + 1) + ".tmp-" + base::BaseName(path);
    TDBG_RETURN_IF_ERROR(segment->Open(parts));
    fresh.push_back(std::move(segment));
  }
  TDBG_RETURN_IF_ERROR(options_.whole ? FetchAll(fresh)
                                      : InParallel(fresh.size(), options_.requests_at_once,
                                                   [&](size_t i) { return Prefetch(fresh[i].get()); }));
  for (auto& segment : fresh) {
    const std::string path = PathOf(segment->name);
    if (segment->path != path && ::rename(segment->path.c_str(), path.c_str()) != 0)
      return base::PathError(errno, "cannot make", path);
    segment->path = path;
    segments_[segment->name] = std::move(segment);
  }
  return OkStatus();
}

// Fetches what is read when a segment is opened: its beginning, its index and its table of steps.
Status Mirror::Prefetch(SparseFile* segment) {
  const uint64_t bytes = segment->bytes;
  if (bytes <= kWholeBytes) return Fill(segment, 0, bytes);
  TDBG_RETURN_IF_ERROR(Fill(segment, bytes - kTailBytes, kTailBytes));
  TDBG_RETURN_IF_ERROR(Fill(segment, 0, SparseFile::kBlock));
  format::IndexFooter footer;
  const base::UniqueFd file = segment->OpenFile();
  if (!file.ok()) return base::PathError(errno, "cannot open", segment->path);
  if (::pread(file.get(), &footer, sizeof(footer), static_cast<off_t>(bytes - sizeof(footer))) !=
          static_cast<ssize_t>(sizeof(footer)) ||
      ::memcmp(footer.magic, format::kIndexMagic, sizeof(footer.magic)) != 0)
    return Fill(segment, 0, bytes);  // an old run has no index: its header is read, and mostly all of it
  const uint64_t most = bytes - sizeof(footer);
  if (footer.raws > most / sizeof(format::IndexRaw) ||
      footer.head_bytes > most - footer.raws * sizeof(format::IndexRaw))
    return Fill(segment, 0, bytes);
  const uint64_t head = most - footer.raws * sizeof(format::IndexRaw) - footer.head_bytes;
  TDBG_RETURN_IF_ERROR(Fill(segment, head, footer.head_bytes));
  TDBG_ASSIGN_OR_RETURN(const auto mapping, base::ReadOnlyMapping::Open(segment->path));
  const auto index = format::DecodeSegmentIndex(mapping->bytes());
  if (!index.ok()) return Fill(segment, 0, bytes);
  for (size_t i = 0; i < index->columns.size(); ++i) {
    if (index->ColumnName(i).starts_with("step/"))
      TDBG_RETURN_IF_ERROR(
          Fill(segment, index->data_offset + index->columns[i].begin, index->columns[i].bytes));
  }
  return OkStatus();
}

Status Mirror::Fill(SparseFile* segment, uint64_t offset, uint64_t bytes) {
  const std::vector<Range> missing = segment->Missing(offset, bytes);
  return InParallel(missing.size(), options_.requests_at_once,
                    [&](size_t i) { return FillRange(*segment, missing[i]); });
}

Status Mirror::FetchAll(const std::vector<std::unique_ptr<SparseFile>>& segments) {
  std::vector<std::pair<const SparseFile*, Range>> missing;
  for (const auto& segment : segments) {
    uint64_t bytes = 0;
    for (const Range& range : segment->Missing(0, segment->bytes)) {
      missing.emplace_back(segment.get(), range);
      bytes += range.bytes;
    }
    if (bytes_ != nullptr) bytes_->done += segment->bytes - bytes;
  }
  return InParallel(missing.size(), options_.requests_at_once,
                    [&](size_t i) { return FillRange(*missing[i].first, missing[i].second); });
}

Status Mirror::FillRange(const SparseFile& segment, const Range& range) {
  const base::UniqueFd file = segment.OpenFile();
  if (!file.ok()) return base::PathError(errno, "cannot open", segment.path);
  TDBG_ASSIGN_OR_RETURN(const Object object, Fetch(segment.name, range));
  if (object.bytes.size() != range.bytes)
    return DataLoss(segment.name + " is another one than it was, in " + options_.from.ToString());
  if (bytes_ != nullptr) bytes_->done += object.bytes.size();
  return segment.Take(file.get(), range, object.bytes);
}

Status Mirror::Need(const std::string& name, uint64_t offset, uint64_t bytes) {
  const auto at = segments_.find(name);
  if (at == segments_.end()) {
    // Another process that mirrors this run has fetched it since we last looked.
    if (!IsSafeName(name) || !IsSegment(PartsOf(name))) return OkStatus();
    TDBG_RETURN_IF_ERROR(Refresh());
    if (!segments_.contains(name)) return NotFound(name + " is not in " + options_.from.ToString());
    return Need(name, offset, bytes);
  }
  return Fill(at->second.get(), offset, bytes);
}

Status Mirror::Include(const std::string& folder) {
  if (folder.empty() || folder.find('/') != std::string::npos || !IsSafeName(folder))
    return InvalidArgument("no folder of a run: " + folder);
  return included_.insert(folder).second ? Refresh() : OkStatus();
}

Status Mirror::TakeJournals(const std::map<std::string, std::vector<JournalPart>>& parts) {
  std::vector<std::string> workers;
  for (const auto& [worker, list] : parts) workers.push_back(worker);
  return InParallel(workers.size(), 1,
                    [&](size_t i) { return LayJournal(workers[i], parts.at(workers[i])); });
}

Status Mirror::LayJournal(const std::string& worker, const std::vector<JournalPart>& parts) {
  const auto newest = *std::ranges::max_element(
      parts, {}, [](const JournalPart& part) { return std::pair(part.epoch, part.counter); });
  const auto laid = laid_.find(worker);
  const bool same_epoch = laid != laid_.end() && laid->second.epoch == newest.epoch;
  // This list may be older than the one before.
  if (same_epoch && newest.counter <= laid->second.counter) return OkStatus();
  if (laid != laid_.end() && newest.epoch < laid->second.epoch) return OkStatus();
  const std::string below = worker + "/" + std::string(kJournalParts) + "/";
  auto first = Fetch(below + newest.Name());
  if (!first.ok()) return first.status().code() == Code::kNotFound ? OkStatus() : first.status();
  const auto whole = [](const Object& object, const JournalPart& part) {
    return object.bytes.size() == format::kJournalHeaderBytes + (part.to - part.from);
  };
  if (!whole(*first, newest))
    return DataLoss(below + newest.Name() + " has not the length that its name says");
  uint64_t ring = 0, sealed = 0;
  ::memcpy(&ring, first->bytes.data() + 16, sizeof(ring));
  ::memcpy(&sealed, first->bytes.data() + 128, sizeof(sealed));
  if (ring == 0 || ring % 64 != 0 || ring > kMaxSegment || newest.to - newest.from > ring)
    return DataLoss(below + newest.Name() + " is no part of a journal");
  const std::vector<JournalPart> cover = CoverOf(parts, sealed);
  // Some parts were deleted: their records are in a segment that the next list has.
  if (cover.empty()) return OkStatus();
  const std::string path = PathOf(worker + "/" + std::string(format::kJournalFile));
  TDBG_RETURN_IF_ERROR(base::LocalFileSystem().CreateDirectories(path.substr(0, path.rfind('/'))));
  const std::string made = same_epoch ? path : path + ".tmp";
  if (!same_epoch) ::unlink(made.c_str());
  const base::UniqueFd fd = base::OpenFd(made.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW, 0600);
  if (!fd.ok() || ::ftruncate(fd.get(), static_cast<off_t>(format::kJournalHeaderBytes + ring)) != 0)
    return base::PathError(errno, "cannot make", made);
  // Where the local journal ends is asked of the file: other processes lay parts into it, too.
  RingPosition committed;
  if (same_epoch) {
    TDBG_ASSIGN_OR_RETURN(committed, CommittedIn(fd.get(), made));
    if (committed.position > newest.to) return OkStatus();
    TDBG_RETURN_IF_ERROR(CallSealed(fd.get(), committed, first->bytes, made));
  }
  for (const JournalPart& part : cover) {
    // Earlier bytes are there.
    if (same_epoch && part.to <= committed.position && !(part == newest)) break;
    Object object;
    if (part == newest) {
      object = *first;
    } else {
      auto fetched = Fetch(below + part.Name());
      if (!fetched.ok()) return fetched.status().code() == Code::kNotFound ? OkStatus() : fetched.status();
      object = *std::move(fetched);
      if (!whole(object, part))
        return DataLoss(below + part.Name() + " has not the length that its name says");
    }
    const std::string_view bytes = std::string_view(object.bytes).substr(format::kJournalHeaderBytes);
    for (uint64_t at = part.from; at < part.to;) {
      const uint64_t stretch = std::min(part.to - at, ring - at % ring);
      TDBG_RETURN_IF_ERROR(WriteAt(fd.get(), format::kJournalHeaderBytes + at % ring,
                                   bytes.substr(at - part.from, stretch), made));
      at += stretch;
    }
  }
  TDBG_RETURN_IF_ERROR(
      WriteAt(fd.get(), 0, std::string_view(first->bytes).substr(0, format::kJournalHeaderBytes), made));
  if (!same_epoch && ::rename(made.c_str(), path.c_str()) != 0)
    return base::PathError(errno, "cannot make", path);
  laid_[worker] = newest;
  return OkStatus();
}

}  // namespace tdbg::storage
