#include "storage/bring_back.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "format/run_files.h"
#include "format/version.h"
#include "storage/upload_state.h"

namespace tdbg::storage {
namespace {

namespace fs = std::filesystem;

constexpr useconds_t kLookMicros = 1'000'000;

bool IsNumber(const std::string& text) { return base::ParseInt(text).value_or(-1) >= 0; }

class Bringing {
 public:
  Bringing(ObjectStore* store, const BringBackOptions& options, FetchedBytes* bytes)
      : store_(store), options_(options), bytes_(bytes) {}

  Result<BroughtBack> Run();

 private:
  Result<std::optional<Object>> Get(const std::string& name) const;
  Result<bool> IsBehind() const;
  Status WaitForUploader(Object object, UploadState state) const;
  Status Fetch(const std::string& run) const;
  Status MakeRun(const std::string& fetched, const std::string& run) const;
  std::string Here(const std::string& name) const { return base::JoinPath(options_.directory, name); }
  std::string Hidden() const {
    const size_t slash = options_.directory.rfind('/');
    return options_.directory.substr(0, slash + 1) + ".tdbg-" + options_.directory.substr(slash + 1);
  }

  ObjectStore* const store_;
  const BringBackOptions& options_;
  FetchedBytes* const bytes_;
  const std::string url_ = options_.from.ToString();
};

Result<std::string> IdOf(const std::string& run_json, const std::string& where) {
  const auto info = format::RunInfo::FromJson(run_json);
  if (!info.ok()) return info.status().Annotate(where);
  return info->id;
}

Result<std::optional<Object>> Bringing::Get(const std::string& name) const {
  auto object = store_->Get(KeyBelow(options_.from.KeyPrefix(), name));
  if (!object.ok() && object.status().code() == Code::kNotFound) return std::optional<Object>();
  if (!object.ok()) return object.status();
  return std::optional<Object>(*std::move(object));
}

Result<BroughtBack> Bringing::Run() {
  TDBG_ASSIGN_OR_RETURN(const std::optional<Object> object, Get(std::string(kStateFile)));
  if (!object) return BroughtBack::kNoRun;
  const auto state = UploadState::FromJson(object->bytes);
  if (!state.ok()) return state.status().Annotate(url_);
  const std::string run_file = Here(std::string(format::kRunFile));
  if (base::LocalFileSystem().Exists(run_file)) {
    TDBG_ASSIGN_OR_RETURN(const std::string text, base::LocalFileSystem().ReadFile(run_file));
    TDBG_ASSIGN_OR_RETURN(const std::string id, IdOf(text, run_file));
    if (id != state->run)
      return Status(Code::kAlreadyExists, fmt::format("{} holds another run ({}) than {} ({})", url_,
                                                      state->run, options_.directory, id));
    TDBG_ASSIGN_OR_RETURN(const bool behind, IsBehind());
    return behind ? BroughtBack::kBehind : BroughtBack::kIsHere;
  }
  std::error_code error;
  if (base::LocalFileSystem().Exists(options_.directory) && !fs::is_empty(options_.directory, error))
    return Status(Code::kAlreadyExists, options_.directory +
                                            " is not empty and holds no run; choose a new or an empty "
                                            "directory");
  TDBG_RETURN_IF_ERROR(WaitForUploader(*object, *state));
  TDBG_RETURN_IF_ERROR(Fetch(state->run));
  return BroughtBack::kBrought;
}

// Each attempt writes its attempt.json once. The bucket has one that the directory has not, or another one of
// that number: then the run went on where that was written.
Result<bool> Bringing::IsBehind() const {
  int64_t last = -1;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(options_.directory, error)) {
    const std::string name = entry.path().filename();
    if (IsNumber(name) && fs::exists(entry.path() / std::string(format::kAttemptFile), error))
      last = std::max(last, *base::ParseInt(name));
  }
  const auto name_of = [](int64_t attempt) {
    return base::JoinPath(std::to_string(attempt), std::string(format::kAttemptFile));
  };
  const auto next = store_->Head(KeyBelow(options_.from.KeyPrefix(), name_of(last + 1)));
  if (next.ok()) return true;
  if (next.status().code() != Code::kNotFound) return next.status();
  for (int64_t attempt = last; attempt >= 0; --attempt) {
    TDBG_ASSIGN_OR_RETURN(const std::optional<Object> there, Get(name_of(attempt)));
    if (!there) continue;  // not uploaded yet
    const auto here = base::LocalFileSystem().ReadFile(Here(name_of(attempt)));
    const auto ours = here.ok() ? format::AttemptInfo::FromJson(*here) : here.status();
    const auto theirs = format::AttemptInfo::FromJson(there->bytes);
    return ours.ok() && theirs.ok() && ours->started_wall_nanos != theirs->started_wall_nanos;
  }
  return false;
}

Status Bringing::WaitForUploader(Object object, UploadState state) const {
  bool said = false;
  while (state.following && !state.UploaderIsGone()) {
    const int64_t left = state.SilenceNanos(kReplacedNanos) - AgeNanos(object);
    if (left <= 0) break;
    if (!std::exchange(said, true))
      options_.say(fmt::format(
          "{} was filled by a process on {} {} s ago; if it gives no more sign of life, the run is brought "
          "back in {} s",
          url_, state.host, AgeNanos(object) / 1'000'000'000, left / 1'000'000'000 + 1));
    ::usleep(kLookMicros);
    TDBG_ASSIGN_OR_RETURN(std::optional<Object> now, Get(std::string(kStateFile)));
    if (!now) return NotFound("no run there any more: " + url_);
    const bool beats = now->info.etag != object.info.etag ||
                       now->info.modified_wall_nanos != object.info.modified_wall_nanos;
    TDBG_ASSIGN_OR_RETURN(state, UploadState::FromJson(now->bytes));
    if (beats && state.following)
      return Status(Code::kAlreadyExists,
                    fmt::format("{} is being filled by another process, on {}: the run goes on there", url_,
                                state.host));
    object = *std::move(now);
  }
  return OkStatus();
}

Status Bringing::Fetch(const std::string& run) const {
  base::FileSystem& files = base::LocalFileSystem();
  const std::string hidden = Hidden();
  TDBG_RETURN_IF_ERROR(files.CreateDirectories(hidden));
  auto lock = files.Lock(base::JoinPath(hidden, "lock"));
  if (!lock.ok() && lock.status().code() == Code::kFailedPrecondition)
    return FailedPrecondition("another process is bringing the run back to " + options_.directory);
  TDBG_RETURN_IF_ERROR(lock.status());
  // That other one may have ended between our look and our lock.
  if (files.Exists(Here(std::string(format::kRunFile)))) return OkStatus();
  MirrorOptions options;
  options.from = options_.from;
  options.cache_root = base::JoinPath(hidden, "files");
  options.requests_at_once = options_.requests_at_once;
  options.whole = true;
  options.run_id = run;
  options.say = options_.say;
  {
    TDBG_ASSIGN_OR_RETURN(const auto mirror, Mirror::Open(store_, options, bytes_));
    TDBG_RETURN_IF_ERROR(MakeRun(mirror->directory(), run));
  }
  std::error_code ignored;
  fs::remove_all(hidden, ignored);
  return OkStatus();
}

// What only a run of this machine has, and what an uploader that was cut off has left half.
Status Bringing::MakeRun(const std::string& fetched, const std::string& run) const {
  base::FileSystem& files = base::LocalFileSystem();
  const std::string run_file = base::JoinPath(fetched, std::string(format::kRunFile));
  if (files.Exists(run_file)) {
    TDBG_ASSIGN_OR_RETURN(const std::string text, files.ReadFile(run_file));
    TDBG_ASSIGN_OR_RETURN(const std::string id, IdOf(text, url_));
    if (id != run)
      return DataLoss(fmt::format("{}: run.json is of the run {}, tdbg-upload.json of {}", url_, id, run));
  } else {  // it is uploaded last
    format::RunInfo info;
    info.id = run;
    info.name = base::BaseName(options_.directory);
    info.created_wall_nanos = base::SystemClock().WallNanos();
    TDBG_RETURN_IF_ERROR(files.WriteFileAtomic(run_file, info.ToJson()));
  }
  std::error_code error;
  for (const auto& attempt : fs::directory_iterator(fetched, error)) {
    if (!IsNumber(attempt.path().filename())) continue;
    std::error_code inner;
    for (const auto& worker : fs::directory_iterator(attempt.path(), inner)) {
      const fs::path lock = worker.path() / std::string(format::kLockFile);
      if (!fs::exists(worker.path() / std::string(format::kWorkerFile), inner)) continue;
      const base::UniqueFd made = base::OpenFd(lock.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW, 0600);
      if (!made.ok()) return base::PathError(errno, "cannot make", lock.string());
    }
  }
  // It was uploaded while it grew. What is appended now must not be glued to half a line.
  const std::string events = base::JoinPath(fetched, std::string(format::kEventsFile));
  if (const auto text = files.ReadFile(events); text.ok() && !text->empty() && !text->ends_with('\n'))
    TDBG_RETURN_IF_ERROR(files.WriteFileAtomic(events, text->substr(0, text->rfind('\n') + 1)));
  ::chmod(fetched.c_str(), 0700);
  // A machine that fails now must not leave a whole directory of empty files.
  if (const base::UniqueFd at = base::OpenFd(fetched.c_str(), O_RDONLY | O_DIRECTORY); at.ok())
    (void)::syncfs(at.get());
  if (::rename(fetched.c_str(), options_.directory.c_str()) != 0)
    return base::PathError(errno, "cannot make", options_.directory);
  return OkStatus();
}

}  // namespace

Result<BroughtBack> BringBack(ObjectStore* store, const BringBackOptions& options, FetchedBytes* bytes) {
  return Bringing(store, options, bytes).Run();
}

}  // namespace tdbg::storage
