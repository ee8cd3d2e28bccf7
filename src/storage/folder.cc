#include "storage/folder.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <tuple>
#include <vector>

#include "base/clock.h"
#include "base/file.h"

namespace tdbg::storage {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kPiece = 8u << 20;
constexpr int64_t kNapMillis = 50;
constexpr int64_t kPauseMillis = 500;
constexpr int kMostListings = 5;

// The first `bytes` bytes at least; a file that is still being written grows meanwhile.
Status FetchObject(ObjectStore* store, const ObjectInfo& object, const std::string& path) {
  base::FileSystem& files = base::LocalFileSystem();
  TDBG_RETURN_IF_ERROR(files.CreateDirectories(fs::path(path).parent_path()));
  TDBG_ASSIGN_OR_RETURN(const auto file, files.CreatePending(path + ".part"));
  for (uint64_t at = 0; at < object.bytes; at += kPiece) {
    TDBG_ASSIGN_OR_RETURN(const Object piece,
                          store->Get(object.key, Range{at, std::min(kPiece, object.bytes - at)}));
    if (piece.info.etag != object.etag) return Unavailable("it changed while it was fetched: " + object.key);
    TDBG_RETURN_IF_ERROR(file->Write(std::as_bytes(std::span(piece.bytes))));
  }
  return file->Publish(path, false);
}

}  // namespace

Status FetchFolder(ObjectStore* store, const Location& from, const std::string& directory) {
  const std::string prefix = from.KeyPrefix();
  TDBG_ASSIGN_OR_RETURN(const auto objects, store->List(prefix));
  const size_t slash = prefix.rfind('/');
  const size_t parent = slash == std::string::npos ? 0 : slash + 1;
  size_t found = 0;
  for (const ObjectInfo& object : objects) {
    if (object.key.ends_with('/')) continue;  // a console's idea of a directory
    const bool inside = !prefix.empty() && object.key.starts_with(prefix + "/");
    const std::string name = object.key.substr(inside ? prefix.size() + 1 : parent);
    if (!IsSafeName(name)) return InvalidArgument("a key that is no path below a directory: " + object.key);
    TDBG_RETURN_IF_ERROR(FetchObject(store, object, base::JoinPath(directory, name)));
    ++found;
  }
  if (found == 0) return NotFound("No S3 objects found under S3 URL \"" + from.ToString() + "\"");
  return OkStatus();
}

Status FolderSender::SendDue() {
  struct Due {
    Sent state;
    std::string name;
  };
  std::vector<Due> due;
  std::map<std::string, Sent> left;
  std::error_code error;
  // A directory that is removed meanwhile ends the iteration: then once more, and not for ever.
  for (int tries = 0; tries < kMostListings; ++tries) {
    due.clear();
    left = sent_;
    error.clear();
    for (auto it = fs::recursive_directory_iterator(options_.directory, error); !error && it != fs::end(it);
         it.increment(error)) {
      struct stat info;
      if (::lstat(it->path().c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
      const std::string name = it->path().lexically_relative(options_.directory);
      if (name.ends_with(".tmp")) continue;
      const Sent state{static_cast<uint64_t>(info.st_size),
                       info.st_mtim.tv_sec * 1'000'000'000L + info.st_mtim.tv_nsec};
      left.erase(name);
      const auto before = sent_.find(name);
      if (before == sent_.end() || before->second != state) due.push_back({state, name});
    }
    if (!error) break;
  }
  // What was not seen is not gone: nobody's checkpoints are deleted because a listing broke off.
  if (error) left.clear();
  std::ranges::sort(due, [](const Due& a, const Due& b) {
    return std::tie(a.state.modified_nanos, a.name) < std::tie(b.state.modified_nanos, b.name);
  });
  Status first;
  for (const Due& one : due) {
    const auto put = store_->PutFile(KeyBelow(options_.to.KeyPrefix(), one.name),
                                     base::JoinPath(options_.directory, one.name), one.state.bytes);
    if (put.ok())
      sent_[one.name] = one.state;
    else if (first.ok() && base::LocalFileSystem().Exists(base::JoinPath(options_.directory, one.name)))
      first = put.status().Annotate(one.name);
    if (!first.ok()) return first;  // what is behind it may speak of it
  }
  for (const auto& [name, unused] : left) {
    if (options_.deletes) {
      if (const Status deleted = store_->Delete(KeyBelow(options_.to.KeyPrefix(), name)); !deleted.ok())
        return deleted;
    }
    sent_.erase(name);
  }
  std::error_code ignored;
  if (error && fs::exists(options_.directory, ignored))
    return Status(error == std::errc::permission_denied ? Code::kFailedPrecondition : Code::kUnavailable,
                  "cannot list " + options_.directory + ": " + error.message());
  return OkStatus();
}

Status FolderSender::Follow() {
  bool said = false;
  while (!stop_) {
    if (const Status sent = SendDue(); !sent.ok() && !said) {
      said = true;
      options_.say(sent.message());
    }
    for (int64_t napped = 0; napped < options_.every_millis && !stop_; napped += kNapMillis)
      ::usleep(kNapMillis * 1000);
  }
  // Nothing comes after this: a store that fails just now must not cost the last files, which say that there
  // are no more.
  const base::Clock& clock = base::SystemClock();
  const int64_t until = clock.MonotonicNanos() + options_.grace_millis * 1'000'000;
  Status sent = SendDue();
  while (sent.code() == Code::kUnavailable && clock.MonotonicNanos() < until) {
    ::usleep(kPauseMillis * 1000);
    sent = SendDue();
  }
  return sent;
}

}  // namespace tdbg::storage
