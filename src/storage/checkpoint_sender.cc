#include "storage/checkpoint_sender.h"

#include <fmt/format.h>
#include <stddef.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <span>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/file.h"
#include "base/process.h"
#include "base/text.h"
#include "format/journal.h"
#include "format/json_fields.h"
#include "format/run_files.h"
#include "format/version.h"
#include "storage/s3/payload_hash.h"
#include "storage/upload_state.h"

namespace tdbg::storage {
namespace {

// Sent in one request, from memory, so that the sum is that of the very bytes that were sent.
constexpr uint64_t kSmallBytes = 8u << 20;
constexpr int64_t kNapMillis = 50;
constexpr int64_t kLookShare = 20;  // of the time, one part is spent with looking
// At the end the command writes no more, and the user waits.
constexpr int64_t kLastQuietMillis = 50;
// How long at the end a file may stay open for writing, by a process that the job has left.
constexpr int64_t kLeftoverNanos = 10'000'000'000;
constexpr int64_t kHurriedMillis = 50;
// When a user is told that a file is open for writing all the time.
constexpr int64_t kTellNanos = 60'000'000'000;
constexpr int64_t kPauseMillis = 1'000, kLongestPauseMillis = 30'000;
constexpr const char* kMetadata = "metadata.json";  // smdebug's (docs/jobs.md)
constexpr size_t kMetadataBytes = 16u << 20;

int64_t NowNanos() { return base::SystemClock().MonotonicNanos(); }

// A set of thousands of files is read while all of them are open.
void AllowManyFiles() {
  rlimit limit;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

int64_t AttemptOf(const std::string& run_directory) {
  int64_t attempt = -1;
  const auto entries = base::LocalFileSystem().List(run_directory);
  for (const base::DirEntry& entry : entries.ok() ? *entries : std::vector<base::DirEntry>())
    if (entry.is_directory) attempt = std::max(attempt, base::ParseInt(entry.name).value_or(-1));
  return attempt;
}

// The heartbeat of a worker (docs/semantics.md); -1: none yet.
int64_t StepOf(const std::string& worker) {
  base::FileSystem& files = base::LocalFileSystem();
  const auto text = files.ReadFile(base::JoinPath(worker, format::kWorkerFile), 1u << 20);
  const auto info = text.ok() ? format::WorkerInfo::FromJson(*text) : text.status();
  if (!info.ok()) return -1;
  const std::string& path = info->journal_path;
  const auto journal = files.OpenReadable(path.starts_with('/') ? path : base::JoinPath(worker, path));
  int64_t step = -1;
  if (!journal.ok()) return -1;
  const auto got = (*journal)->ReadAt(offsetof(format::JournalHeader, last_seen_step),
                                      std::as_writable_bytes(std::span(&step, 1)));
  return got.ok() && *got == sizeof(step) ? step : -1;
}

int64_t SeenStepOf(const std::string& run_directory, int64_t attempt) {
  int64_t step = -1;
  const std::string directory = base::JoinPath(run_directory, std::to_string(attempt));
  const auto entries = base::LocalFileSystem().List(directory);
  for (const base::DirEntry& entry : entries.ok() ? *entries : std::vector<base::DirEntry>())
    if (entry.is_directory && entry.name.starts_with("worker_"))
      step = std::max(step, StepOf(base::JoinPath(directory, entry.name)));
  return step;
}

// How many steps of training smdebug's file says that the checkpoints hold; -1: it does not.
int64_t StepInMetadata(std::string_view text) {
  if (!format::IsJson(text)) return -1;
  const format::Json states = format::Json::parse(text.begin(), text.end(), nullptr, false);
  int64_t step = -1;
  if (!states.is_array()) return -1;
  for (const format::Json& state : states) {
    int64_t seen = -1;
    if (state.is_object() && format::GetField(state, "latest-global-step-seen", &seen))
      step = std::max(step, seen + 1);
  }
  return step;
}

}  // namespace

CheckpointSender::CheckpointSender(ObjectStore* store, CheckpointOptions options)
    : store_(store), options_(std::move(options)) {
  AllowManyFiles();
}

void CheckpointSender::SayOnce(const std::string& what) {
  if (said_.insert(what).second) options_.say(what);
}

Status CheckpointSender::CheckOurs() {
  const std::string key = KeyBelow(options_.run.KeyPrefix(), std::string(kStateFile));
  TDBG_ASSIGN_OR_RETURN(const Object object, store_->Get(key));
  TDBG_ASSIGN_OR_RETURN(const UploadState state, UploadState::FromJson(object.bytes));
  if (uploader_.empty()) uploader_ = state.uploader;
  if (state.run == options_.run_id && state.uploader == uploader_) return OkStatus();
  return Status(Code::kAlreadyExists,
                fmt::format("{} is {} by now", options_.run.ToString(),
                            state.run == options_.run_id ? "filled by another process" : "another run's"));
}

Status CheckpointSender::LookAtStore() {
  if (!looked_) {
    TDBG_RETURN_IF_ERROR(CheckOurs());
    TDBG_ASSIGN_OR_RETURN(const std::vector<uint64_t> numbers, ListCheckpointSets(store_, options_.run));
    for (const uint64_t number : numbers) {
      highest_ = std::max(highest_, number);
      auto set = ReadCheckpointSet(store_, options_.run, number);
      if (set.ok()) {
        for (const CheckpointFile& file : set->files) verified_.insert(file.sha256);
        sets_[number] = *std::move(set);
      } else if (set.status().code() == Code::kDataLoss || set.status().code() == Code::kUnimplemented) {
        all_readable_ = false;  // what it names is not known, and nothing of it may be deleted
      } else if (set.status().code() != Code::kNotFound) {
        return set.status();
      }
    }
    looked_ = true;
  }
  // Each time: a lifecycle rule, or a person, may have deleted some.
  const std::string prefix = KeyOf("");
  TDBG_ASSIGN_OR_RETURN(const std::vector<ObjectInfo> objects, store_->List(prefix));
  listed_.clear();
  for (const ObjectInfo& object : objects) listed_[object.key.substr(prefix.size())] = object.bytes;
  return OkStatus();
}

bool CheckpointSender::IsThere(const std::string& sha256, uint64_t bytes) {
  const auto listed = listed_.find(sha256);
  const std::lock_guard guard(mutex_);
  return listed != listed_.end() && listed->second == bytes && verified_.contains(sha256);
}

Result<std::string> CheckpointSender::SendSmall(const Held& held) {
  const DirectoryEntry& entry = *held.entry;
  std::string content(entry.bytes, '\0');
  for (size_t at = 0; at < content.size();) {
    const ssize_t got =
        ::pread(held.fd.get(), content.data() + at, content.size() - at, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, "cannot read " + entry.name);
    if (got == 0) return std::string();
    at += static_cast<size_t>(got);
  }
  if (!held.copied && !HasSameBytes(held.fd.get(), entry)) return std::string();
  const std::string sum = Sha256Hex(std::as_bytes(std::span(content)));
  if (!IsThere(sum, entry.bytes))
    TDBG_RETURN_IF_ERROR(store_->Put(KeyOf(sum), std::as_bytes(std::span(content))).status());
  return sum;
}

Result<std::string> CheckpointSender::SendLarge(const Held& held) {
  const DirectoryEntry& entry = *held.entry;
  const auto sum_now = [&]() -> Result<std::string> {
    auto sum = Sha256OfFile(held.fd.get(), entry.bytes);
    const bool same = held.copied || HasSameBytes(held.fd.get(), entry);
    if (!same || sum.status().code() == Code::kUnavailable) return std::string();
    return sum;
  };
  TDBG_ASSIGN_OR_RETURN(const std::string sum, sum_now());
  if (sum.empty() || IsThere(sum, entry.bytes)) return sum;
  // The descriptor's file, whatever has become of its name.
  const auto put = store_->PutFile(KeyOf(sum), fmt::format("/proc/self/fd/{}", held.fd.get()), entry.bytes);
  // The bytes were read once more to be sent: are they what the object is called?
  bool same = held.copied || HasSameBytes(held.fd.get(), entry);
  if (same && put.ok() && entry.grows && !held.copied) {  // its times say nothing
    TDBG_ASSIGN_OR_RETURN(const std::string again, sum_now());
    same = again == sum;
  }
  if (!same) {
    if (put.ok())
      (void)store_->Delete(KeyOf(sum));  // where that fails: no set names it, so nobody believes it
    return std::string();
  }
  if (!put.ok()) return put.status();
  return sum;
}

Result<std::string> CheckpointSender::SendFile(Held* held) {
  const DirectoryEntry& entry = *held->entry;
  {
    const std::lock_guard guard(mutex_);
    const auto known = known_.find(entry.name);
    const bool same = known != known_.end() && known->second.entry.SameAs(entry) &&
                      known->second.entry.bytes == entry.bytes && !entry.grows;
    const auto listed = same ? listed_.find(known->second.sha256) : listed_.end();
    if (listed != listed_.end() && listed->second == entry.bytes && verified_.contains(listed->first))
      return listed->first;
  }
  if (!held->fd.ok()) {  // more files than we may have open
    auto fd = OpenSettled(options_.directory, entry);
    if (fd.status().code() == Code::kUnavailable) return std::string();
    TDBG_RETURN_IF_ERROR(fd.status());
    held->fd = *std::move(fd);
  }
  auto sum = entry.bytes <= kSmallBytes ? SendSmall(*held) : SendLarge(*held);
  held->fd.reset();  // what was deleted meanwhile takes no disk any longer
  if (sum.ok() && !sum->empty()) {
    const std::lock_guard guard(mutex_);
    verified_.insert(*sum);
    known_[entry.name] = {entry, *sum};
  }
  return sum;
}

Result<bool> CheckpointSender::SendFiles(std::vector<Held>* held, CheckpointSet* set) {
  std::atomic<size_t> next{0};
  std::mutex mutex;
  Status failed;  // guarded by mutex, as is the next
  const DirectoryEntry* changed = nullptr;
  std::vector<std::string> sums(held->size());
  const auto send = [&] {
    for (size_t i = next++; i < held->size(); i = next++) {
      auto sum = SendFile(&(*held)[i]);
      const std::lock_guard guard(mutex);
      if (sum.ok() && !sum->empty()) {
        sums[i] = *std::move(sum);
        continue;
      }
      if (!sum.ok() && failed.ok()) failed = sum.status();
      if (sum.ok()) changed = (*held)[i].entry;
      next = held->size();
    }
  };
  {
    std::vector<std::jthread> others;
    for (int i = 1; i < options_.files_at_once && static_cast<size_t>(i) < held->size(); ++i)
      others.emplace_back(send);
    send();
  }
  if (!failed.ok()) return failed;
  if (changed != nullptr) {
    copies_ = true;
    why_ = changed->name + " changed while it was read";
    return false;
  }
  for (size_t i = 0; i < held->size(); ++i) {
    const DirectoryEntry& entry = *(*held)[i].entry;
    set->files.push_back({entry.name, entry.bytes, sums[i], entry.modified_nanos});
  }
  return true;
}

Result<bool> CheckpointSender::Hold(const DirectoryState& state, std::vector<Held>* held) {
  bool full = false;  // as many files are open as we may have
  for (const DirectoryEntry& entry : state.entries) {
    if (entry.kind != DirectoryEntry::kFile) continue;
    Held one{&entry, {}, false};
    if (!full) {
      auto fd = OpenSettled(options_.directory, entry);
      full = fd.status().code() == Code::kResourceExhausted;
      if (fd.status().code() == Code::kUnavailable) {
        why_ = fd.status().message();
        return false;
      }
      if (!fd.ok() && !full) return fd.status();
      if (fd.ok()) one.fd = *std::move(fd);
    }
    held->push_back(std::move(one));
  }
  // Sockets, and what a request reads, need some, too.
  constexpr size_t kSpare = 64;
  if (full)
    for (size_t i = held->size(), closed = 0; i-- > 0 && closed < kSpare;)
      if ((*held)[i].fd.ok()) (*held)[i].fd.reset(), ++closed;
  return true;
}

// A directory that changes faster than it can be sent: what is to be sent is copied first, if there is room
// for it.
Result<bool> CheckpointSender::Copy(std::vector<Held>* held) {
  for (Held& one : *held) {
    const auto known = known_.find(one.entry->name);
    if (!one.fd.ok() ||
        (known != known_.end() && known->second.entry.SameAs(*one.entry) && !one.entry->grows))
      continue;
    auto copy = CopyUnnamed(one.fd.get(), one.entry->bytes, options_.directory, options_.run_directory);
    if (!HasSameBytes(one.fd.get(), *one.entry)) {
      why_ = one.entry->name + " changed while it was copied";
      return false;
    }
    if (!copy.ok()) {
      SayOnce(
          fmt::format("no copy of {} could be made ({}); while it changes faster than it can be sent, no set "
                      "of it is sent",
                      options_.directory, copy.status().message()));
      return true;
    }
    one.fd = *std::move(copy);
    one.copied = true;
  }
  return true;
}

CheckpointSet CheckpointSender::Describe(const DirectoryState& state) const {
  CheckpointSet set;
  set.id = RandomId();
  set.run = options_.run_id;
  set.host = base::HostName();
  set.wall_nanos = base::SystemClock().WallNanos();
  if (!options_.run_directory.empty()) {
    set.attempt = AttemptOf(options_.run_directory);
    if (set.attempt >= 0) set.seen_step = SeenStepOf(options_.run_directory, set.attempt);
  }
  for (const DirectoryEntry& entry : state.entries) {
    if (entry.kind == DirectoryEntry::kLink) set.links.push_back({entry.name, entry.target});
    if (entry.kind == DirectoryEntry::kFolder) set.folders.push_back({entry.name, entry.modified_nanos});
  }
  return set;
}

Result<bool> CheckpointSender::Take(const DirectoryState& state) {
  for (const std::string& link : state.left_out)
    SayOnce(fmt::format("{} leads out of {}; neither the link nor what it leads to is sent", link,
                        options_.directory));
  std::vector<Held> held;
  TDBG_ASSIGN_OR_RETURN(const bool all_held, Hold(state, &held));
  if (!all_held) return false;
  const auto metadata = std::ranges::find(held, std::string_view(kMetadata),
                                          [](const Held& one) { return std::string_view(one.entry->name); });
  int64_t step = -1;
  if (metadata != held.end() && metadata->fd.ok() && metadata->entry->bytes <= kMetadataBytes) {
    std::string text(metadata->entry->bytes, '\0');
    const ssize_t got = ::pread(metadata->fd.get(), text.data(), text.size(), 0);
    if (got == static_cast<ssize_t>(text.size())) step = StepInMetadata(text);
  }
  TDBG_ASSIGN_OR_RETURN(const DirectoryState again, LookAtDirectory(options_.directory));
  if (!state.SameAs(again)) {
    why_ = "it changes";
    return false;
  }
  // This was the instant: whatever is renamed or deleted from here on, its bytes are those that we hold.
  CheckpointSet set = Describe(state);
  set.step = step;
  TDBG_RETURN_IF_ERROR(LookAtStore());
  if (copies_) {
    TDBG_ASSIGN_OR_RETURN(const bool copied, Copy(&held));
    if (!copied) return false;
  }
  TDBG_ASSIGN_OR_RETURN(const bool sent, SendFiles(&held, &set));
  if (!sent) return false;
  held.clear();
  const auto newest = sets_.rbegin();
  if (newest == sets_.rend() || !newest->second.SameContent(set)) {
    TDBG_RETURN_IF_ERROR(CheckOurs());
    TDBG_RETURN_IF_ERROR(PutSet(&set));
    DeleteOld();
  } else {
    newest_ = newest->first;
  }
  sent_ = state;
  has_sent_ = true;
  std::erase_if(known_, [&](const auto& one) {
    return std::ranges::none_of(set.files,
                                [&](const CheckpointFile& file) { return file.name == one.first; });
  });
  return true;
}

Status CheckpointSender::PutSet(CheckpointSet* set) {
  const std::string text = set->ToJson();
  for (int tries = 0; tries < 3; ++tries) {
    const uint64_t number = highest_ + 1;
    const auto put = store_->Put(CheckpointSetKey(options_.run, number), std::as_bytes(std::span(text)),
                                 Condition{.absent = true, .matching = {}});
    if (!put.ok() && put.status().code() != Code::kAlreadyExists) return put.status();
    highest_ = number;
    bool ours = put.ok();
    if (!ours) {  // it may be ours: the store took it, and the answer was lost
      const auto there = ReadCheckpointSet(store_, options_.run, number);
      ours = there.ok() && there->id == set->id;
    }
    if (!ours) continue;
    newest_ = number;
    sets_[number] = *set;
    return OkStatus();
  }
  return Status(Code::kAlreadyExists, options_.run.ToString() + " is filled by another process by now");
}

// Never more than what is certainly not needed: the kept sets are whole without it.
void CheckpointSender::DeleteOld() {
  if (!may_delete_) return;
  Status failed;
  const auto drop = [&](const std::string& key) {
    if (!failed.ok()) return false;
    failed = store_->Delete(key);
    return failed.ok();
  };
  while (sets_.size() > options_.kept_sets && drop(CheckpointSetKey(options_.run, sets_.begin()->first)))
    sets_.erase(sets_.begin());
  if (failed.ok() && all_readable_) {
    std::set<std::string> needed;
    for (const auto& [number, set] : sets_)
      for (const CheckpointFile& file : set.files) needed.insert(file.sha256);
    for (const auto& [sum, bytes] : listed_) {
      if (needed.contains(sum)) continue;
      if (!drop(KeyOf(sum))) break;
      verified_.erase(sum);
    }
  }
  if (failed.code() != Code::kFailedPrecondition) return;  // anything else is tried again with the next set
  may_delete_ = false;
  options_.say("older checkpoints stay in the bucket: " + failed.message());
}

int64_t CheckpointSender::QuietMillis() const {
  const bool hurry = waiting_nanos_ >= 0 && NowNanos() - waiting_nanos_ > options_.hurry_millis * 1'000'000;
  return hurry ? std::min(kHurriedMillis, options_.every_millis) : options_.every_millis;
}

bool CheckpointSender::IsDue(const DirectoryState& now) {
  if (now.Empty() || (has_sent_ && sent_.SameAs(now))) {
    waiting_nanos_ = -1;
    has_seen_ = false;
    return false;
  }
  const int64_t nanos = NowNanos();
  if (waiting_nanos_ < 0) waiting_nanos_ = nanos;
  if (!has_seen_ || !seen_.SameAs(now)) {
    seen_ = now;
    has_seen_ = true;
    seen_nanos_ = nanos;
    return false;
  }
  return nanos - seen_nanos_ >= QuietMillis() * 1'000'000;
}

Status CheckpointSender::Look() {
  const auto now = LookAtDirectory(options_.directory);
  if (!now.ok()) {
    // One that is not there yet, or is being changed, is looked at again.
    const bool later = now.status().code() == Code::kNotFound || now.status().code() == Code::kUnavailable;
    return later ? OkStatus() : now.status();
  }
  if (!IsDue(*now)) return OkStatus();
  TDBG_ASSIGN_OR_RETURN(const bool taken, Take(*now));
  if (!taken && NowNanos() - waiting_nanos_ > kTellNanos && why_.ends_with("open for writing"))
    SayOnce(fmt::format("{} has been so for a minute; no checkpoints are sent until it is closed", why_));
  return OkStatus();
}

Status CheckpointSender::Follow() {
  int64_t pause = kPauseMillis;
  const auto nap = [this](int64_t millis) {
    for (int64_t napped = 0; napped < millis && !stopping_; napped += kNapMillis)
      ::usleep(static_cast<useconds_t>(std::min(kNapMillis, millis) * 1000));
  };
  while (!stopping_) {
    const int64_t began = NowNanos();
    const Status looked = Look();
    if (looked.code() == Code::kAlreadyExists) return looked;
    if (!looked.ok()) {
      ++failures_;
      if (said_.insert("failed").second)
        options_.say(looked.message() + "; the training goes on, and checkpoints are tried again");
      nap(pause);
      pause = std::min(2 * pause, kLongestPauseMillis);
      continue;
    }
    pause = kPauseMillis;
    // A look at a hundred thousand files takes a while, and must not take a core.
    nap(std::max(QuietMillis(), kLookShare * (NowNanos() - began) / 1'000'000));
  }
  return SendLast();
}

Status CheckpointSender::SendLast() {
  const int64_t began = NowNanos();
  while (true) {
    Status failed;
    auto now = LookAtDirectory(options_.directory);
    if (now.status().code() == Code::kNotFound || (now.ok() && now->Empty())) return OkStatus();
    ::usleep(kLastQuietMillis * 1000);
    const auto again = LookAtDirectory(options_.directory);
    int64_t limit_nanos = options_.grace_millis * 1'000'000;
    if (!again.ok()) {
      failed = again.status();
    } else if (!now.ok() || !now->SameAs(*again)) {
      why_ = "it changes";
    } else {
      const auto taken = Take(*again);
      if (taken.ok() && *taken) return OkStatus();
      if (!taken.ok()) failed = taken.status();
    }
    if (failed.ok()) {
      failed = Unavailable(why_);
      limit_nanos = std::min(limit_nanos, kLeftoverNanos);
    }
    if (failed.code() != Code::kUnavailable || NowNanos() - began > limit_nanos) return failed;
    ::usleep(kPauseMillis * 1000);
  }
}

}  // namespace tdbg::storage
