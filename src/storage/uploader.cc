#include "storage/uploader.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/file.h"
#include "base/posix.h"
#include "base/process.h"
#include "base/text.h"
#include "format/journal.h"
#include "format/run_files.h"
#include "format/version.h"

namespace tdbg::storage {
namespace {

// A growing file is uploaded whole each time, so only once it has grown by a quarter, or after this time.
constexpr int64_t kGrowingNanos = 30'000'000'000;
// If more than this of a journal is not sealed, a segment will come soon; do not upload the bytes twice.
constexpr uint64_t kMaxPartBytes = 32u << 20;
// So many parts are joined into one, because a reader that opens the run has to fetch each.
constexpr size_t kMaxParts = 16;

std::string RandomId() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

int64_t NowNanos() { return base::SystemClock().MonotonicNanos(); }

// Not uploaded: locks, files that only processes of this machine can use, unfinished files.
bool IsLeftOut(const std::string& name) {
  const std::string_view base_name = std::string_view(name).substr(name.rfind('/') + 1);
  for (const std::string_view left_out :
       {std::string_view("open.lock"), format::kLauncherLockFile, format::kLockFile, format::kJournalFile,
        std::string_view("journal.new"), format::kDoorbellFile, format::kControlFile, kStateFile}) {
    if (base_name == left_out) return true;
  }
  return base_name.starts_with(".tmp-") || base_name.ends_with(".tmp") ||
         name.find("/.tmp") != std::string::npos;
}

// "3/tmp": what the script keeps for itself while a reclaim is rehearsed ($TMPDIR), and is wiped.
bool IsScratch(const std::string& name) {
  const size_t slash = name.find('/');
  return slash != std::string::npos && base::ParseInt(name.substr(0, slash)).value_or(-1) >= 0 &&
         name.substr(slash) == "/tmp";
}

// smdebug's word that no more will come; in the run itself where its script is one of smdebug's.
bool IsEndOfExport(const std::string& name) { return ("/" + name).ends_with("/training_job_end.ts"); }

// Whoever finds one of these in the store believes that all before it is there, too.
int RankOf(const std::string& name) {
  if (name == format::kRunFile || IsEndOfExport(name)) return 3;
  if (name == format::kEventsFile) return 2;
  // smdebug's readers find a step's tensors through its index.
  if (("/" + name).find("/index/") != std::string::npos && name.ends_with(".json")) return 2;
  if (name.ends_with("/" + std::string(format::kWorkerFile))) return 1;
  return 0;
}

// A consistent copy of the header's page: read until two reads agree, since its fields are not written at
// once.
Result<std::string> ReadHeader(const base::ReadableFile& file) {
  std::string page(format::kJournalHeaderBytes, '\0'), before;
  for (int i = 0; i < 20; ++i) {
    TDBG_ASSIGN_OR_RETURN(const size_t got, file.ReadAt(0, std::as_writable_bytes(std::span(page))));
    if (got != page.size()) return DataLoss("a journal without a header");
    if (!before.empty() && ::memcmp(page.data() + 64, before.data() + 64, 16) == 0 &&
        ::memcmp(page.data() + 128, before.data() + 128, 16) == 0)
      break;
    before = page;
  }
  return page;
}

uint64_t U64At(const std::string& page, size_t offset) {
  uint64_t value;
  ::memcpy(&value, page.data() + offset, sizeof(value));
  return value;
}
uint64_t CommittedOf(const std::string& page) { return U64At(page, 64); }
uint64_t EndedOf(const std::string& page) { return U64At(page, 96); }
uint64_t SealedOf(const std::string& page) { return U64At(page, 128); }

}  // namespace

Uploader::Uploader(ObjectStore* store, UploadOptions options)
    : store_(store),
      options_(std::move(options)),
      uploader_(options_.predecessor.empty() ? RandomId() : options_.predecessor) {}

Status Uploader::Check(const std::string& run) {
  const std::string where = options_.to.ToString();
  const auto state = store_->Get(Key(std::string(kStateFile)));
  if (!state.ok() && state.status().code() != Code::kNotFound) return state.status();
  if (!state.ok()) {
    const std::string prefix = options_.to.KeyPrefix();
    TDBG_ASSIGN_OR_RETURN(const std::vector<ObjectInfo> objects,
                          store_->List(prefix.empty() ? "" : prefix + "/", 1));
    if (objects.empty()) return OkStatus();
    return Status(Code::kAlreadyExists, where + " is not empty: it holds " + objects[0].key +
                                            "; choose a prefix of its own for each run");
  }
  const auto there = UploadState::FromJson(state->bytes);
  if (!there.ok()) return there.status().Annotate(where);
  if (there->run != run)
    return Status(Code::kAlreadyExists,
                  where + " holds another run (" + there->run + "); choose a prefix of its own for each run");
  const int64_t life = there->SilenceNanos(kReplacedNanos), age = AgeNanos(*state);
  if (there->following && there->uploader != uploader_ && age < life)
    return Status(
        Code::kAlreadyExists,
        fmt::format(
            "{} is being filled by another process, on {}; its last sign of life is {} s old: if it is "
            "gone, try again in {} s",
            where, there->host, age / 1'000'000'000, (life - age) / 1'000'000'000 + 1));
  state_etag_ = state->info.etag;
  return OkStatus();
}

Status Uploader::Claim() {
  TDBG_ASSIGN_OR_RETURN(const std::string text, base::LocalFileSystem().ReadFile(base::JoinPath(
                                                    options_.run_directory, format::kRunFile)));
  TDBG_ASSIGN_OR_RETURN(const format::RunInfo run, format::RunInfo::FromJson(text));
  run_ = run.id;
  TDBG_RETURN_IF_ERROR(Check(run_));
  std::vector<std::string> workers;
  TDBG_RETURN_IF_ERROR(Walk(&workers).status());
  const bool goes_on = !state_etag_.empty();
  const Status claimed = WriteState(true, false, HeldLocks(workers));
  if (claimed.code() == Code::kAlreadyExists)
    return Status(Code::kAlreadyExists, options_.to.ToString() + " was taken by another process just now");
  claimed_ = claimed.ok();
  return claimed.ok() && goes_on ? TakeBackEnds() : claimed;
}

Status Uploader::TakeBackEnds() {
  TDBG_RETURN_IF_ERROR(LookAtStore());
  for (const auto& [name, unused] : there_) {
    if (!IsEndOfExport(name) || base::LocalFileSystem().Exists(base::JoinPath(options_.run_directory, name)))
      continue;
    const Status deleted = store_->Delete(Key(name));
    if (deleted.ok()) continue;
    if (deleted.code() != Code::kFailedPrecondition) return deleted;
    options_.say(deleted.message() + ". Until it is overwritten it tells readers that the training is over");
  }
  return OkStatus();
}

std::vector<std::string> Uploader::HeldLocks(const std::vector<std::string>& workers) const {
  std::vector<std::string> locks = {std::string(format::kLauncherLockFile)};
  for (const std::string& worker : workers) locks.push_back(worker + "/" + std::string(format::kLockFile));
  std::erase_if(locks, [this](const std::string& lock) {
    return !base::LocalFileSystem().IsLocked(base::JoinPath(options_.run_directory, lock));
  });
  return locks;
}

Status Uploader::WriteState(bool following, bool complete, std::vector<std::string> held) {
  UploadState state;
  state.run = run_;
  state.uploader = uploader_;
  state.host = base::HostName();
  state.following = following;
  state.complete = complete;
  state.beat_millis = options_.every_millis;
  std::vector<std::string> workers;
  TDBG_ASSIGN_OR_RETURN(const std::vector<File> files, Walk(&workers));
  state.files = static_cast<int64_t>(files.size());
  if (following) state.held = std::move(held);
  const std::lock_guard guard(state_mutex_);
  TDBG_RETURN_IF_ERROR(PutState(state));
  state_ = std::move(state);
  return OkStatus();
}

Status Uploader::PutState(const UploadState& state) {
  const std::string key = Key(std::string(kStateFile)), text = state.ToJson();
  state_nanos_ = NowNanos();
  const auto put = [&] {
    return store_->Put(key, std::as_bytes(std::span(text)),
                       Condition{.absent = state_etag_.empty(), .matching = state_etag_});
  };
  auto written = put();
  if (!written.ok() && written.status().code() == Code::kAlreadyExists) {
    // It may be ours: the store took the last one, and all answers that said so were lost.
    const auto there = store_->Get(key);
    const auto said = there.ok() ? UploadState::FromJson(there->bytes) : there.status();
    if (said.ok() && said->uploader == uploader_) {
      state_etag_ = there->info.etag;
      written = put();
    }
  }
  if (!written.ok()) return written.status();
  state_etag_ = written->etag;
  return OkStatus();
}

// A pass writes the state at its end, and may take minutes: one file of gigabytes, a slow store. Meanwhile
// what was said last is said again, for its time alone.
void Uploader::Beat(const std::stop_token& stop) {
  const auto every = std::chrono::milliseconds(options_.every_millis);
  std::unique_lock lock(state_mutex_);
  while (!beats_.wait_for(lock, stop, every, [&] { return stop.stop_requested(); })) {
    // Passes that come in time need none.
    const bool silent = NowNanos() - state_nanos_ >= 2 * options_.every_millis * 1'000'000;
    if (silent && state_.following) (void)PutState(state_);  // if it fails, the pass says so
  }
}

Status Uploader::LookAtStore() {
  if (looked_) return OkStatus();
  TDBG_ASSIGN_OR_RETURN(const std::vector<ObjectInfo> objects, store_->List(Key("")));
  for (const ObjectInfo& object : objects) {
    const std::string name = object.key.substr(Key("").size());
    there_[name] = object.bytes;
    // Parts that an earlier uploader left: ours begin a new epoch.
    const size_t parts = name.rfind("/" + std::string(kJournalParts) + "/");
    if (parts == std::string::npos) continue;
    const auto part = JournalPart::Parse(std::string_view(name).substr(parts + kJournalParts.size() + 2));
    if (!part) continue;
    Journal& journal = journals_[name.substr(0, parts)];
    journal.epoch = std::max(journal.epoch, part->epoch);
    journal.stale.push_back(*part);
  }
  looked_ = true;
  return OkStatus();
}

Result<std::vector<Uploader::File>> Uploader::Walk(std::vector<std::string>* workers) const {
  namespace fs = std::filesystem;
  std::vector<File> files;
  std::error_code error;
  // A directory that is removed meanwhile ends the iteration: then once more, and not for ever.
  for (int tries = 0; tries < 5; ++tries) {
    files.clear();
    workers->clear();
    error.clear();
    fs::recursive_directory_iterator at(options_.run_directory, fs::directory_options::skip_permission_denied,
                                        error);
    for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
      if (IsScratch(at->path().string().substr(options_.run_directory.size() + 1)))
        at.disable_recursion_pending();
      else
        TakeFile(at->path().string(), &files, workers);
    }
    if (!error) break;
  }
  // Half of a run must never be called all of it.
  if (error) return Unavailable("cannot list " + options_.run_directory + ": " + error.message());
  std::ranges::sort(files, {}, [](const File& file) { return std::pair(RankOf(file.name), file.name); });
  std::ranges::sort(*workers);
  return files;
}

void Uploader::TakeFile(const std::string& path, std::vector<File>* files,
                        std::vector<std::string>* workers) const {
  File file;
  file.name = path.substr(options_.run_directory.size() + 1);
  struct stat info;
  // A symbolic link leads out of the run: what it leads to is not ours to send.
  if (::lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return;
  if (base::BaseName(file.name) == format::kWorkerFile)
    workers->push_back(file.name.substr(0, std::max<size_t>(1, file.name.rfind('/'))));
  if (IsLeftOut(file.name)) return;
  file.bytes = static_cast<uint64_t>(info.st_size);
  file.modified_nanos = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
  file.inode = info.st_ino;
  files->push_back(std::move(file));
}

bool Uploader::Due(const File& file, bool last) const {
  const auto sent = sent_.find(file.name);
  const bool segment = file.name.find("/" + std::string(format::kSegmentsDir) + "/") != std::string::npos;
  // A segment is sent once, whoever sent it. One that a compactor has put in its place since then has fewer
  // rows, to spare this disk: the store keeps all of them, and its readers never see an object change.
  if (sent == sent_.end()) {
    const auto there = there_.find(file.name);
    return !(segment && there != there_.end() && there->second >= file.bytes);
  }
  if (sent->second.file.Same(file) || (segment && file.bytes <= sent->second.file.bytes)) return false;
  return last || file.bytes < (1u << 20) || file.bytes > sent->second.file.bytes / 4 * 5 ||
         NowNanos() - sent->second.monotonic_nanos > kGrowingNanos;
}

Status Uploader::SendFile(const File& file) {
  const std::string path = base::JoinPath(options_.run_directory, file.name);
  // One that somebody else put there, and that is not ours to read. The store has no part in it.
  if (::access(path.c_str(), R_OK) != 0 && errno != ENOENT)
    return InvalidArgument(base::PathError(errno, "cannot read", path).message());
  const auto put = store_->PutFile(Key(file.name), path, file.bytes);
  if (put.ok()) return OkStatus();
  // Deleted or shorter since it was listed, as a rotated log is: left to the next look.
  struct stat info;
  const bool changed = ::stat(path.c_str(), &info) != 0 || static_cast<uint64_t>(info.st_size) < file.bytes;
  return changed ? Status(Code::kNotFound, "changed") : put.status();
}

Status Uploader::SendFiles(const std::vector<File>& files) {
  std::atomic<size_t> next{0};
  std::mutex mutex;
  Status failed;  // guarded by mutex, as are sent_, refused_ and totals_ meanwhile
  const auto send = [&] {
    for (size_t i = next++; i < files.size(); i = next++) {
      const Status sent = SendFile(files[i]);
      const std::lock_guard guard(mutex);
      if (sent.ok()) {
        sent_[files[i].name] = {files[i], NowNanos()};
        ++totals_.files;
        totals_.bytes += files[i].bytes;
      } else if (sent.code() == Code::kInvalidArgument) {
        // A name that the store does not take, a file that cannot be read: the run is more than that one.
        if (refused_.ok()) refused_ = sent;
        ++totals_.files_left;
        totals_.bytes_left += files[i].bytes;
      } else if (sent.code() != Code::kNotFound) {
        if (failed.ok()) failed = sent;
        next = files.size();
      }
    }
  };
  {
    std::vector<std::jthread> others;
    for (int i = 1; i < options_.files_at_once && static_cast<size_t>(i) < files.size(); ++i)
      others.emplace_back(send);
    send();
  }
  return failed;
}

Status Uploader::SendJournal(const std::string& worker, const std::string& page, Journal* journal) {
  const std::string directory = base::JoinPath(options_.run_directory, worker);
  const auto text = base::LocalFileSystem().ReadFile(base::JoinPath(directory, format::kWorkerFile));
  const auto info = text.ok() ? format::WorkerInfo::FromJson(*text) : text.status();
  if (!info.ok()) return OkStatus();
  const std::string path = info->journal_path.starts_with('/')
                               ? info->journal_path
                               : base::JoinPath(directory, format::kJournalFile);
  const auto file = base::LocalFileSystem().OpenReadable(path);
  struct stat now;
  if (!file.ok() || ::stat(path.c_str(), &now) != 0) return OkStatus();
  const uint64_t committed = CommittedOf(page), sealed = std::min(SealedOf(page), committed);
  const uint64_t ring = U64At(page, 16);
  const bool anew = journal->counter == 0 || journal->inode != now.st_ino ||
                    journal->writer_id != U64At(page, 24) || committed < journal->committed_pos;
  if (anew) {
    journal->stale.insert(journal->stale.end(), journal->parts.begin(), journal->parts.end());
    journal->parts.clear();
    ++journal->epoch;
    journal->counter = 0;
    journal->inode = now.st_ino;
    journal->writer_id = U64At(page, 24);
    journal->committed_pos = sealed;
  } else if (journal->committed_pos == committed && journal->sealed_pos == sealed &&
             journal->ended == EndedOf(page)) {
    return OkStatus();
  }
  JournalPart part;
  part.epoch = journal->epoch;
  part.counter = journal->counter + 1;
  part.from = std::max(journal->committed_pos, sealed);
  part.to = committed;
  // If there are many parts, join this one with those before it.
  if (journal->parts.size() >= kMaxParts && committed - sealed <= kMaxPartBytes) part.from = sealed;
  if (part.to - part.from > kMaxPartBytes || ring == 0) return OkStatus();
  std::string bytes = page;
  bytes.resize(page.size() + (part.to - part.from));
  for (uint64_t at = part.from; at < part.to;) {
    const uint64_t stretch = std::min(part.to - at, ring - at % ring);
    const auto out =
        std::as_writable_bytes(std::span(bytes)).subspan(page.size() + (at - part.from), stretch);
    TDBG_ASSIGN_OR_RETURN(const size_t got, (*file)->ReadAt(format::kJournalHeaderBytes + at % ring, out));
    if (got != stretch) return OkStatus();  // the journal was replaced by another one
    at += stretch;
  }
  TDBG_ASSIGN_OR_RETURN(const std::string after, ReadHeader(**file));
  // The ring overwrote it while it was read: the next look finds its segment.
  if (SealedOf(after) > part.from && part.to > part.from) return OkStatus();
  const std::string below = worker + "/" + std::string(kJournalParts) + "/";
  TDBG_RETURN_IF_ERROR(store_->Put(Key(below + part.Name()), std::as_bytes(std::span(bytes))).status());
  ++totals_.files;
  totals_.bytes += bytes.size();
  journal->counter = part.counter;
  journal->committed_pos = committed;
  journal->sealed_pos = sealed;
  journal->ended = EndedOf(page);
  journal->parts.push_back(part);
  const std::vector<JournalPart> cover = CoverOf(journal->parts, sealed);
  std::erase_if(journal->parts, [&](const JournalPart& old) {
    if (std::ranges::find(cover, old) != cover.end()) return false;
    journal->stale.push_back(old);
    return true;
  });
  // Without the permission to delete they stay; they cost readers nothing.
  while (!journal->stale.empty() && store_->Delete(Key(below + journal->stale.back().Name())).ok())
    journal->stale.pop_back();
  return OkStatus();
}

Status Uploader::Pass(bool last) {
  refused_ = OkStatus();
  TDBG_RETURN_IF_ERROR(LookAtStore());
  std::vector<std::string> workers;
  // Headers before files: segments that a header speaks of are there when the files are listed.
  TDBG_RETURN_IF_ERROR(Walk(&workers).status());
  // And who lives before what they wrote: of a worker whose lock is free, its end is in the header. Asked at
  // the end of the pass, one that has ended since would be called dead, and without an end.
  std::vector<std::string> held = HeldLocks(workers);
  std::map<std::string, std::string> headers;
  for (const std::string& worker : workers) {
    const std::string directory = base::JoinPath(options_.run_directory, worker);
    const auto text = base::LocalFileSystem().ReadFile(base::JoinPath(directory, format::kWorkerFile));
    const auto info = text.ok() ? format::WorkerInfo::FromJson(*text) : text.status();
    if (!info.ok()) continue;
    const std::string path = info->journal_path.starts_with('/')
                                 ? info->journal_path
                                 : base::JoinPath(directory, format::kJournalFile);
    const auto file = base::LocalFileSystem().OpenReadable(path);
    if (!file.ok()) continue;
    auto page = ReadHeader(**file);
    const auto size = (*file)->Size();
    if (page.ok() && size.ok() && format::CheckJournalHeader(std::as_bytes(std::span(*page)), *size).ok())
      headers[worker] = *std::move(page);
  }
  std::vector<std::string> found;
  TDBG_ASSIGN_OR_RETURN(const std::vector<File> files, Walk(&found));
  std::map<int, std::vector<File>> due;
  totals_.files_left = totals_.bytes_left = 0;
  for (const File& file : files) {
    if (!Due(file, last)) continue;
    // A new worker whose journal was not read yet: next time, together with its journal.
    if (RankOf(file.name) == 1 && !last && !headers.contains(file.name.substr(0, file.name.rfind('/'))))
      continue;
    due[RankOf(file.name)].push_back(file);
    ++totals_.files_left;
    totals_.bytes_left += file.bytes;
  }
  const uint64_t files_due = totals_.files_left, bytes_due = totals_.bytes_left;
  totals_.files_left = totals_.bytes_left = 0;
  const auto still_due = [&](const Status& failed) {
    totals_.files_left = files_due;
    totals_.bytes_left = bytes_due;
    return failed;
  };
  for (int rank = 0; rank <= 3; ++rank) {
    if (Status sent = SendFiles(due[rank]); !sent.ok()) return still_due(sent);
    if (rank != 0) continue;
    for (const auto& [worker, page] : headers) {
      if (Status sent = SendJournal(worker, page, &journals_[worker]); !sent.ok()) return still_due(sent);
    }
  }
  TDBG_RETURN_IF_ERROR(WriteState(!last, last && refused_.ok(), std::move(held)));
  return refused_;
}

Status Uploader::Follow() {
  const std::jthread beating([this](const std::stop_token& stop) { Beat(stop); });
  bool failing = false, said_waiting = false;
  int64_t stopped_nanos = 0;
  while (true) {
    const bool last = stopping_;
    if (last && stopped_nanos == 0) stopped_nanos = NowNanos();
    const Status passed = Pass(last);
    if (!passed.ok()) ++totals_.failed_passes;
    if (passed.code() == Code::kAlreadyExists)
      return Status(Code::kAlreadyExists,
                    options_.to.ToString() + " is filled by another process by now; nothing more is sent");
    if (!passed.ok() && !last && !failing)
      options_.say(passed.message() + "; the training goes on, and what is due is sent when that works");
    // Said again: from here on somebody waits for it.
    if (!passed.ok() && last && passed.code() != Code::kInvalidArgument && !std::exchange(said_waiting, true))
      options_.say(
          fmt::format("{}; {} left to send, tried again for up to {} s", passed.message(),
                      totals_.files_left == 0 ? "what is" : base::Counted(totals_.files_left, "file"),
                      options_.grace_millis / 1000));
    if (passed.ok() && failing && !last) options_.say("uploading works again");
    failing = !passed.ok();
    if (last && passed.ok()) return OkStatus();
    if (last && passed.code() == Code::kInvalidArgument)
      return passed;  // a file that cannot go does not go later either
    const int64_t spent_millis = stopped_nanos == 0 ? 0 : (NowNanos() - stopped_nanos) / 1'000'000;
    if (last && spent_millis >= options_.grace_millis) return passed;
    const int64_t until = NowNanos() + (last ? 1'000 : options_.every_millis) * 1'000'000;
    while (NowNanos() < until && (last || !stopping_)) ::usleep(50'000);
  }
}

Status Uploader::SendAll() {
  stopping_ = true;
  return Follow();
}

}  // namespace tdbg::storage
