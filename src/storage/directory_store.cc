#include "storage/directory_store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "base/clock.h"
#include "base/file.h"
#include "base/posix.h"

namespace tdbg::storage {
namespace {

constexpr uint64_t kStretch = 4u << 20;
constexpr std::string_view kUnfinished = ".tdbg-put-";  // no object has such a name

ObjectInfo InfoOf(const std::string& key, const struct stat& info) {
  return {key, static_cast<uint64_t>(info.st_size),
          std::to_string(info.st_ino) + "-" + std::to_string(info.st_mtim.tv_sec) + "." +
              std::to_string(info.st_mtim.tv_nsec) + "-" + std::to_string(info.st_size),
          int64_t{info.st_mtim.tv_sec} * 1'000'000'000};
}

Result<std::string> ReadStretch(int fd, uint64_t offset, uint64_t bytes, const std::string& path) {
  std::string content(bytes, '\0');
  for (size_t at = 0; at < content.size();) {
    const ssize_t got =
        ::pread(fd, content.data() + at, content.size() - at, static_cast<off_t>(offset + at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return base::PathError(errno, "cannot read", path);
    if (got == 0) return DataLoss("became shorter: " + path);
    at += static_cast<size_t>(got);
  }
  return content;
}

}  // namespace

Result<std::string> DirectoryStore::PathOf(const std::string& key) const {
  if (!IsSafeName(key)) return InvalidArgument("no key: '" + key + "'");
  return root_ + "/" + key;
}

Result<std::vector<ObjectInfo>> DirectoryStore::List(const std::string& prefix, size_t most) {
  std::vector<ObjectInfo> objects;
  std::error_code error;
  // Lists below the last directory that the prefix names, not below the root.
  const size_t slash = prefix.rfind('/');
  const std::string from = root_ + "/" + (slash == std::string::npos ? "" : prefix.substr(0, slash));
  std::filesystem::recursive_directory_iterator at(
      from, std::filesystem::directory_options::skip_permission_denied, error);
  for (; !error && at != std::filesystem::recursive_directory_iterator(); at.increment(error)) {
    const std::string path = at->path().string();
    const std::string key = path.substr(root_.size() + 1);
    if (!key.starts_with(prefix) || base::BaseName(path).starts_with(kUnfinished)) continue;
    struct stat info;
    if (::lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode)) objects.push_back(InfoOf(key, info));
  }
  std::ranges::sort(objects, {}, &ObjectInfo::key);
  if (most > 0 && objects.size() > most) objects.resize(most);
  return objects;
}

Result<Level> DirectoryStore::ListLevel(const std::string& prefix, size_t most) {
  Level level;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(root_ + "/" + prefix, error)) {
    const std::string name = entry.path().filename().string();
    struct stat info;
    if (name.starts_with(kUnfinished) || ::lstat(entry.path().c_str(), &info) != 0) continue;
    if (S_ISDIR(info.st_mode)) level.folders.push_back(name);
    if (S_ISREG(info.st_mode)) level.objects.push_back(InfoOf(prefix + name, info));
  }
  std::ranges::sort(level.objects, {}, &ObjectInfo::key);
  std::ranges::sort(level.folders);
  level.more = level.objects.size() + level.folders.size() > most;
  level.folders.resize(std::min(level.folders.size(), most));
  level.objects.resize(std::min(level.objects.size(), most - level.folders.size()));
  return level;
}

Result<ObjectInfo> DirectoryStore::Head(const std::string& key) {
  TDBG_ASSIGN_OR_RETURN(const std::string path, PathOf(key));
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return base::PathError(errno, "not there", path);
  if (!S_ISREG(info.st_mode)) return NotFound("no object: " + path);
  return InfoOf(key, info);
}

Result<Object> DirectoryStore::Get(const std::string& key, std::optional<Range> range) {
  TDBG_ASSIGN_OR_RETURN(const std::string path, PathOf(key));
  const base::UniqueFd fd = base::OpenFd(path.c_str(), O_RDONLY | O_NONBLOCK);
  if (!fd.ok()) return base::PathError(errno, "cannot open", path);
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return base::PathError(errno, "cannot stat", path);
  if (!S_ISREG(info.st_mode)) return NotFound("no object: " + path);
  Object object;
  object.info = InfoOf(key, info);
  const uint64_t offset = std::min(range ? range->offset : 0, object.info.bytes);
  uint64_t bytes = object.info.bytes - offset;
  if (range && range->bytes > 0) bytes = std::min(bytes, range->bytes);
  TDBG_ASSIGN_OR_RETURN(object.bytes, ReadStretch(fd.get(), offset, bytes, path));
  object.store_wall_nanos = base::SystemClock().WallNanos();
  return object;
}

Result<ObjectInfo> DirectoryStore::Put(const std::string& key, std::span<const std::byte> bytes,
                                       const Condition& condition) {
  return Place(key, condition, [&](int fd, const std::string& path) -> Status {
    const int error = base::WriteFully(fd, bytes);
    return error == 0 ? OkStatus() : base::PathError(error, "cannot write", path);
  });
}

Result<ObjectInfo> DirectoryStore::Place(const std::string& key, const Condition& condition,
                                         const std::function<Status(int, const std::string&)>& write) {
  TDBG_ASSIGN_OR_RETURN(const std::string path, PathOf(key));
  const std::string directory = path.substr(0, path.rfind('/'));
  TDBG_RETURN_IF_ERROR(base::LocalFileSystem().CreateDirectories(directory));
  std::string temporary = base::JoinPath(directory, std::string(kUnfinished) + "XXXXXX");
  base::UniqueFd fd(::mkostemp(temporary.data(), O_CLOEXEC));
  if (!fd.ok()) return base::PathError(errno, "cannot create", temporary);
  ::fchmod(fd.get(), 0644);
  if (Status written = write(fd.get(), path); !written.ok()) {
    ::unlink(temporary.c_str());
    return written;
  }
  const Status exists(Code::kAlreadyExists, "another one is there: " + path);
  int failed = 0;
  if (condition.absent) {
    if (::link(temporary.c_str(), path.c_str()) != 0) failed = errno;
    ::unlink(temporary.c_str());
    if (failed == EEXIST) return exists;
  } else if (!condition.matching.empty()) {
    // Check and replace under one lock, which all writers of conditions take.
    const base::UniqueFd lock = base::OpenFd(directory.c_str(), O_RDONLY | O_DIRECTORY);
    if (!lock.ok() || ::flock(lock.get(), LOCK_EX) != 0) failed = errno;
    const auto there = Head(key);
    const bool same = there.ok() && there->etag == condition.matching;
    if (failed == 0 && same && ::rename(temporary.c_str(), path.c_str()) != 0) failed = errno;
    if (failed != 0 || !same) ::unlink(temporary.c_str());
    if (failed == 0 && !same) return exists;
  } else if (::rename(temporary.c_str(), path.c_str()) != 0) {
    failed = errno;
    ::unlink(temporary.c_str());
  }
  if (failed != 0) return base::PathError(failed, "cannot write", path);
  return Head(key);
}

Result<ObjectInfo> DirectoryStore::PutFile(const std::string& key, const std::string& path, uint64_t bytes) {
  const base::UniqueFd fd = base::OpenFd(path.c_str(), O_RDONLY);
  if (!fd.ok()) return base::PathError(errno, "cannot open", path);
  // A stretch at a time: a black box is gigabytes.
  return Place(key, {}, [&](int to, const std::string& target) -> Status {
    for (uint64_t at = 0; at < bytes;) {
      TDBG_ASSIGN_OR_RETURN(const std::string content,
                            ReadStretch(fd.get(), at, std::min(kStretch, bytes - at), path));
      if (const int error = base::WriteFully(to, std::as_bytes(std::span(content))))
        return base::PathError(error, "cannot write", target);
      at += content.size();
    }
    return OkStatus();
  });
}

Status DirectoryStore::Delete(const std::string& key) {
  TDBG_ASSIGN_OR_RETURN(const std::string path, PathOf(key));
  if (::unlink(path.c_str()) == 0 || errno == ENOENT || errno == ENOTDIR) return OkStatus();
  return base::PathError(errno, "cannot remove", path);
}

}  // namespace tdbg::storage
