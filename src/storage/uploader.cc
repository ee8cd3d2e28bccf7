#include "storage/uploader.h"

#include <errno.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <set>
#include <span>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/file.h"
#include "base/posix.h"
#include "base/process.h"
#include "base/text.h"
#include "format/run_files.h"
#include "format/version.h"

namespace tdbg::storage {
namespace {

// Each change of a small file is sent at once. A larger one that grows is sent when it has grown by a
// quarter, or after a time that grows with it: of any file 100 kB/s at most, even where the whole is sent
// again.
constexpr uint64_t kSmallBytes = 64u << 10;
constexpr int64_t kNanosForByte = 10'000;
constexpr int64_t kLongestWaitNanos = 30'000'000'000;
constexpr int kLists = 3;  // how often a list is repeated that lacks what was sent
constexpr useconds_t kListPauseMicros = 100'000;
// How much of a file's end is compared before more is added behind it in the store.
constexpr uint64_t kComparedBytes = 4096;

// The last of a file's first `bytes` bytes; empty if they cannot be read.
std::string EndOf(const std::string& path, uint64_t bytes) {
  const auto file = base::LocalFileSystem().OpenReadable(path);
  std::string end(std::min(bytes, kComparedBytes), '\0');
  if (!file.ok()) return "";
  const auto got = (*file)->ReadAt(bytes - end.size(), std::as_writable_bytes(std::span(end)));
  return got.ok() && *got == end.size() ? end : "";
}

// With and without quotes, as an answer's header and its body have it.
bool SameEtag(std::string_view a, std::string_view b) {
  for (std::string_view* etag : {&a, &b}) {
    if (etag->size() >= 2 && etag->front() == '"') *etag = etag->substr(1, etag->size() - 2);
  }
  return a == b;
}

int64_t NowNanos() { return base::SystemClock().MonotonicNanos(); }

}  // namespace

Uploader::Uploader(ObjectStore* store, UploadOptions options)
    : store_(store),
      options_(std::move(options)),
      uploader_(options_.predecessor.empty() ? RandomId() : options_.predecessor),
      journals_(store, options_.run_directory, options_.to) {}

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
    return Status(
        Code::kAlreadyExists,
        fmt::format("{} holds another run ({}); tdbg resume {} goes on with that one, and a new run "
                    "needs a prefix of its own",
                    where, there->run, ShellWord(where)));
  const int64_t life = there->SilenceNanos(kReplacedNanos), age = AgeNanos(*state);
  if (there->following && !there->left && there->uploader != uploader_ && age < life &&
      !there->UploaderIsGone())
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
  const bool goes_on = !state_etag_.empty();
  UploadState state;
  state.following = true;
  state.held = HeldLocks(WorkersOfRun(options_.run_directory));
  const Status claimed = WriteState(std::move(state));
  if (claimed.code() == Code::kAlreadyExists)
    return Status(Code::kAlreadyExists, options_.to.ToString() + " was taken by another process just now");
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

Status Uploader::WriteState(UploadState state) {
  state.run = run_;
  state.uploader = uploader_;
  state.host = base::HostName();
  state.process = ThisProcess();
  state.beat_millis = options_.beat_millis;
  const std::lock_guard guard(state_mutex_);
  const bool same = state.following && state.SaysAs(state_);
  if (same && NowNanos() - state_nanos_ < options_.beat_millis * 1'000'000) return OkStatus();
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
  const auto every = std::chrono::milliseconds(options_.beat_millis);
  std::unique_lock lock(state_mutex_);
  while (!beats_.wait_for(lock, stop, every, [&] { return stop.stop_requested(); })) {
    // Passes that come in time need none.
    const bool silent = NowNanos() - state_nanos_ >= 2 * options_.beat_millis * 1'000'000;
    if (silent && state_.following) (void)PutState(state_);  // if it fails, the pass says so
  }
}

Status Uploader::LookAtStore() {
  if (looked_) return OkStatus();
  TDBG_ASSIGN_OR_RETURN(const std::vector<ObjectInfo> objects, store_->List(Key("")));
  for (const ObjectInfo& object : objects) {
    const std::string name = object.key.substr(Key("").size());
    there_[name] = object;
    // Parts that an earlier uploader left: ours begin a new epoch.
    const size_t parts = name.rfind("/" + std::string(kJournalParts) + "/");
    if (parts == std::string::npos) continue;
    const auto part = JournalPart::Parse(std::string_view(name).substr(parts + kJournalParts.size() + 2));
    if (part) journals_.Found(name.substr(0, parts), *part);
  }
  looked_ = true;
  return OkStatus();
}

bool Uploader::Due(const RunFile& file, bool last) const {
  const auto sent = sent_.find(file.name);
  const bool segment = IsSegmentFile(file.name);
  // A segment is sent once, whoever sent it. One that a compactor has put in its place since then has fewer
  // rows, to spare this disk: the store keeps all of them, and its readers never see an object change.
  if (sent == sent_.end()) {
    const auto there = there_.find(file.name);
    return !(segment && there != there_.end() && there->second.bytes >= file.bytes);
  }
  if (sent->second.file.Same(file) || (segment && file.bytes <= sent->second.file.bytes)) return false;
  const int64_t wait_nanos =
      static_cast<int64_t>(std::min<uint64_t>(file.bytes, kLongestWaitNanos / kNanosForByte)) * kNanosForByte;
  return last || file.bytes < kSmallBytes || file.bytes > sent->second.file.bytes / 4 * 5 ||
         NowNanos() - sent->second.monotonic_nanos > wait_nanos;
}

Result<Uploader::Sent> Uploader::SendFile(const RunFile& file, const Sent* before) {
  const std::string path = base::JoinPath(options_.run_directory, file.name);
  // One that somebody else put there, and that is not ours to read. The store has no part in it.
  if (::access(path.c_str(), R_OK) != 0 && errno != ENOENT)
    return InvalidArgument(base::PathError(errno, "cannot read", path).message());
  Sent sent;
  sent.file = file;
  sent.bytes = file.bytes;
  if (GrowsAtItsEnd(file.name)) sent.end = EndOf(path, file.bytes);
  sent.monotonic_nanos = NowNanos();
  // Sent before by another process, and the same still.
  if (const auto there = there_.find(file.name);
      before == nullptr && there != there_.end() && store_->Holds(there->second, path, file.bytes)) {
    sent.object = there->second;
    sent.bytes = 0;
    sent.was_there = true;
    return sent;
  }
  // What was sent of it is its beginning still, so only the rest is due.
  const bool grew = before != nullptr && before->file.inode == file.inode &&
                    before->file.bytes < file.bytes && !before->end.empty() &&
                    before->end == EndOf(path, before->file.bytes);
  if (grew) sent.bytes = file.bytes - before->file.bytes;
  auto put = grew ? store_->Lengthen(before->object, path, file.bytes)
                  : store_->PutFile(Key(file.name), path, file.bytes);
  if (put.ok()) {
    sent.object = *std::move(put);
    sent.monotonic_nanos = NowNanos();
    return sent;
  }
  // Deleted or shorter since it was listed, as a rotated log is: left to the next look.
  struct stat info;
  const bool changed = ::stat(path.c_str(), &info) != 0 || static_cast<uint64_t>(info.st_size) < file.bytes;
  return changed ? Status(Code::kNotFound, "changed") : put.status();
}

Status Uploader::SendFiles(const std::vector<RunFile>& files) {
  std::atomic<size_t> next{0};
  std::mutex mutex;
  Status failed;  // guarded by mutex, as are sent_, refused_ and totals_ meanwhile
  const auto send = [&] {
    for (size_t i = next++; i < files.size(); i = next++) {
      const Sent* before = nullptr;
      {
        const std::lock_guard guard(mutex);
        if (const auto at = sent_.find(files[i].name); at != sent_.end()) before = &at->second;
      }
      auto outcome = SendFile(files[i], before);
      const Status sent = outcome.ok() ? OkStatus() : outcome.status();
      const std::lock_guard guard(mutex);
      if (sent.ok()) {
        totals_.files += !outcome->was_there;
        totals_.bytes += outcome->bytes;
        sent_[files[i].name] = *std::move(outcome);
      } else if (sent.code() == Code::kInvalidArgument) {
        // A name that the store does not take, a file that cannot be read: the run is more than that one.
        if (refused_.ok()) refused_ = sent;
        ++totals_.files_left;
        totals_.bytes_left += files[i].bytes;
      } else if (sent.code() == Code::kNotFound) {
        changed_ |= base::LocalFileSystem().Exists(base::JoinPath(options_.run_directory, files[i].name));
      } else {
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

bool Uploader::IsAsSent(const std::string& name, const ObjectInfo& object) const {
  const auto sent = sent_.find(name);
  const auto before = there_.find(name);
  const ObjectInfo* wanted = sent != sent_.end() ? &sent->second.object : nullptr;
  if (wanted == nullptr && before != there_.end()) wanted = &before->second;
  return wanted != nullptr && wanted->bytes == object.bytes &&
         (wanted->etag.empty() || object.etag.empty() || SameEtag(wanted->etag, object.etag));
}

Status Uploader::CompareWithStore(const std::vector<RunFile>& files) {
  std::set<std::string> missing;
  for (const RunFile& file : files) {
    if (sent_.contains(file.name) || there_.contains(file.name)) missing.insert(file.name);
  }
  totals_.files_there = totals_.bytes_there = 0;
  const auto take = [&](const ObjectInfo& object) {
    const auto at = missing.find(object.key.substr(Key("").size()));
    if (at == missing.end() || !IsAsSent(*at, object)) return;
    missing.erase(at);
    ++totals_.files_there;
    totals_.bytes_there += object.bytes;
  };
  for (int tries = 0; tries < kLists && !missing.empty(); ++tries) {
    if (tries > 0) ::usleep(kListPauseMicros << tries);  // a list may be an older one
    TDBG_ASSIGN_OR_RETURN(const std::vector<ObjectInfo> listed, store_->List(Key("")));
    for (const ObjectInfo& object : listed) take(object);
  }
  for (auto at = missing.begin(); at != missing.end();) {
    const std::string name = *at++;
    const auto object = store_->Head(Key(name));
    if (object.ok()) take(*object);
    if (!object.ok() && object.status().code() != Code::kNotFound) return object.status();
  }
  if (missing.empty()) return OkStatus();
  for (const std::string& name : missing) {
    sent_.erase(name);
    there_.erase(name);
  }
  return Unavailable(fmt::format("{} {} not in {} as sent: {}{}", base::Counted(missing.size(), "file"),
                                 missing.size() == 1 ? "is" : "are", options_.to.ToString(), *missing.begin(),
                                 missing.size() == 1 ? "" : " ..."));
}

Status Uploader::Pass(bool last) {
  refused_ = OkStatus();
  changed_ = false;
  TDBG_RETURN_IF_ERROR(LookAtStore());
  const std::vector<std::string> workers = WorkersOfRun(options_.run_directory);
  // Who lives, before what they wrote: of a worker whose lock is free, its end is in the header. Asked at
  // the end of the pass, one that has ended since would be called dead, and without an end.
  std::vector<std::string> held = HeldLocks(workers);
  // Headers before files: segments that a header speaks of are there when the files are listed.
  std::map<std::string, std::string> headers;
  for (const std::string& worker : workers) {
    if (auto header = journals_.HeaderOf(worker)) headers[worker] = *std::move(header);
  }
  const int64_t began_nanos = NowNanos();
  TDBG_ASSIGN_OR_RETURN(const std::vector<RunFile> files, FilesOfRun(options_.run_directory));
  listing_nanos_ = NowNanos() - began_nanos;
  std::map<int, std::vector<RunFile>> due;
  totals_.files_left = totals_.bytes_left = 0;
  for (const RunFile& file : files) {
    if (!Due(file, last)) continue;
    // A new worker whose journal was not read yet: next time, together with its journal.
    if (RankOfFile(file.name) == 1 && !last && !headers.contains(file.name.substr(0, file.name.rfind('/'))))
      continue;
    due[RankOfFile(file.name)].push_back(file);
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
  for (int rank = 0; rank <= kLastRank; ++rank) {
    if (Status sent = SendFiles(due[rank]); !sent.ok()) return still_due(sent);
    if (rank != 0) continue;
    for (const auto& [worker, header] : headers) {
      const auto sent = journals_.Send(worker, header);
      if (!sent.ok()) return still_due(sent.status());
      totals_.files += *sent > 0;
      totals_.bytes += *sent;
    }
  }
  if (last && changed_)
    return Unavailable("files of " + options_.run_directory + " changed while they were sent");
  if (last) TDBG_RETURN_IF_ERROR(CompareWithStore(files));
  // What is still held by the children of a job whose launcher says that it is over changes nothing.
  goes_on_ = last && !held.empty() && (once_ || launcher_gone_.value_or(false));
  UploadState state;
  state.following = !last || goes_on_;
  state.left = goes_on_;
  state.complete = last && !goes_on_ && refused_.ok();
  state.files = static_cast<int64_t>(files.size());
  state.bytes = static_cast<int64_t>(totals_.bytes_there);
  if (state.following) state.held = std::move(held);
  TDBG_RETURN_IF_ERROR(WriteState(std::move(state)));
  return refused_;
}

// Whether nothing is to come after the next pass. A launcher that says so lives until all is sent. One that
// was killed says nothing: then the training is asked, until another launcher takes it over, whose uploader
// waits for this one to end.
bool Uploader::IsLast() {
  if (!stopping_) return false;
  if (once_) return true;
  const std::vector<std::string> held = HeldLocks(WorkersOfRun(options_.run_directory));
  const bool launched = std::ranges::find(held, format::kLauncherLockFile) != held.end();
  if (!launcher_gone_) launcher_gone_ = !launched;
  return !*launcher_gone_ || launched || held.empty();
}

Status Uploader::Follow() {
  const std::jthread beating([this](const std::stop_token& stop) { Beat(stop); });
  bool failing = false, said_waiting = false;
  int64_t stopped_nanos = 0;
  while (true) {
    const bool stopped = stopping_, last = IsLast();
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
    // Where a look itself takes long, as in a directory of very many files, looks are rarer.
    const int64_t pause_nanos =
        std::max((last ? 1'000 : options_.every_millis) * 1'000'000, 10 * listing_nanos_);
    const int64_t until = NowNanos() + pause_nanos;
    while (NowNanos() < until && (stopped || !stopping_)) ::usleep(50'000);
  }
}

Status Uploader::SendAll() {
  stopping_ = once_ = true;
  return Follow();
}

}  // namespace tdbg::storage
