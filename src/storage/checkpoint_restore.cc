#include "storage/checkpoint_restore.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/posix.h"
#include "base/sha256.h"
#include "base/text.h"

namespace tdbg::storage {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kPiece = 8u << 20;
constexpr int64_t kFirstWordNanos = 1'000'000'000, kNextWordNanos = 10'000'000'000;
// A folder with all of the set in it, whose entries are being moved into the directory around it.
constexpr std::string_view kMoving = ".tdbg-restored-";
constexpr std::string_view kFetching = ".tdbg-restore-";

timespec TimeOf(int64_t nanos) {
  nanos = std::max<int64_t>(0, nanos);
  return {static_cast<time_t>(nanos / 1'000'000'000), static_cast<long>(nanos % 1'000'000'000)};
}

void SetModified(const std::string& path, int64_t nanos) {
  const timespec times[2] = {{0, UTIME_OMIT}, TimeOf(nanos)};
  if (nanos > 0) (void)::utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW);
}

Result<std::vector<std::string>> NamesIn(const std::string& directory) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(directory.c_str()), ::closedir);
  if (!open) {
    if (errno == ENOENT) return names;
    return FailedPrecondition(base::PathError(errno, "cannot list", directory).message());
  }
  while (const dirent* const entry = ::readdir(open.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != ".." && name != kLostAndFound) names.push_back(name);
  }
  return names;
}

// Folders that killed restores have left; not one that is being written now, whose lock is held.
void RemoveLeftovers(const std::string& folder, const std::string& prefix) {
  const auto names = NamesIn(folder);
  for (const std::string& name : names.ok() ? *names : std::vector<std::string>()) {
    if (!name.starts_with(prefix)) continue;
    const std::string path = base::JoinPath(folder, name);
    const base::UniqueFd fd = base::OpenFd(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (!fd.ok() || ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) continue;
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
}

Status MoveEntries(const std::string& from, const std::string& to) {
  TDBG_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(from));
  for (const std::string& name : names) {
    if (::rename(base::JoinPath(from, name).c_str(), base::JoinPath(to, name).c_str()) != 0)
      return base::PathError(errno, "cannot move into place", base::JoinPath(to, name));
  }
  return ::rmdir(from.c_str()) == 0 ? OkStatus() : base::PathError(errno, "cannot remove", from);
}

// What a restore has fetched whole, and was killed while it moved it into place.
Status FinishMove(const std::string& directory, bool* finished) {
  TDBG_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(directory));
  for (const std::string& name : names) {
    if (!name.starts_with(kMoving)) continue;
    *finished = true;
    TDBG_RETURN_IF_ERROR(MoveEntries(base::JoinPath(directory, name), directory));
  }
  return OkStatus();
}

// Not where a disk is mounted there, or the name is a link: then the directory stays, and entries come into
// it.
bool IsReplaceable(const std::string& directory) {
  struct statx info;
  if (::statx(AT_FDCWD, directory.c_str(), AT_SYMLINK_NOFOLLOW, STATX_TYPE, &info) != 0) return false;
  if (!S_ISDIR(info.stx_mode)) return false;
  if ((info.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) != 0)
    return (info.stx_attributes & STATX_ATTR_MOUNT_ROOT) == 0;
  struct stat inside, outside;  // before Linux 5.8
  return ::stat(directory.c_str(), &inside) == 0 && ::stat((directory + "/..").c_str(), &outside) == 0 &&
         inside.st_dev == outside.st_dev;
}

// The folder in which a set is put together: on the directory's own disk, and locked while it is written.
class Staging {
 public:
  static Result<Staging> Make(const std::string& directory) {
    Staging staging;
    staging.directory_ = directory;
    const std::string parent = fs::path(directory).parent_path();
    const std::string beside =
        base::JoinPath(parent, "." + base::BaseName(directory) + std::string(kFetching));
    RemoveLeftovers(parent, base::BaseName(beside));
    RemoveLeftovers(directory, std::string(kFetching));
    struct stat inside;
    const bool there = ::stat(directory.c_str(), &inside) == 0;
    const bool replaceable = !there || IsReplaceable(directory);
    staging.path_ = beside + "XXXXXX";
    staging.mode_ = there ? inside.st_mode & 07777 : 0777;
    if (replaceable && ::mkdtemp(staging.path_.data()) != nullptr) {
      staging.beside_ = true;
    } else {
      staging.path_ = base::JoinPath(directory, std::string(kFetching) + "XXXXXX");
      if (::mkdtemp(staging.path_.data()) == nullptr)
        return FailedPrecondition(base::PathError(errno, "cannot write into", directory).message());
    }
    staging.lock_ = base::OpenFd(staging.path_.c_str(), O_RDONLY | O_DIRECTORY);
    if (staging.lock_.ok()) (void)::flock(staging.lock_.get(), LOCK_EX | LOCK_NB);
    if (!there) {
      const mode_t mask = ::umask(0);
      ::umask(mask);
      staging.mode_ &= ~mask;
    }
    return staging;
  }
  Staging(Staging&&) = default;
  ~Staging() { Clear(true); }

  const std::string& path() const { return path_; }
  /// Removes what is in it; with `whole` the folder, too.
  void Clear(bool whole) {
    std::error_code ignored;
    if (!lock_.ok()) return;  // moved from, or in place
    const auto names = NamesIn(path_);
    for (const std::string& name : names.ok() ? *names : std::vector<std::string>())
      fs::remove_all(base::JoinPath(path_, name), ignored);
    if (whole) fs::remove(path_, ignored);
  }
  Status PutInPlace() {
    if (beside_) {
      (void)::chmod(path_.c_str(), mode_);
      // Replaces an empty directory, and nothing else.
      if (::rename(path_.c_str(), directory_.c_str()) == 0) {
        lock_.reset();
        return OkStatus();
      }
      if (errno == ENOTEMPTY || errno == EEXIST)
        return FailedPrecondition(directory_ +
                                  " was filled by somebody else meanwhile; nothing was changed in it");
      if (errno != EBUSY) return base::PathError(errno, "cannot move into place", directory_);
      return FailedPrecondition("cannot replace " + directory_);
    }
    TDBG_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(directory_));
    if (names.size() != 1)
      return FailedPrecondition(directory_ +
                                " was filled by somebody else meanwhile; nothing was changed in it");
    // From here on a restore that is killed is finished by the next one.
    const std::string moving =
        base::JoinPath(directory_, std::string(kMoving) + path_.substr(path_.size() - 6));
    if (::rename(path_.c_str(), moving.c_str()) != 0) return base::PathError(errno, "cannot rename", path_);
    lock_.reset();
    return MoveEntries(moving, directory_);
  }

 private:
  Staging() = default;
  std::string directory_, path_;
  base::UniqueFd lock_;
  mode_t mode_ = 0;
  bool beside_ = false;
};

class Fetching {
 public:
  Fetching(ObjectStore* store, const RestoreOptions& options, const CheckpointSet& set)
      : store_(store), options_(options), set_(set), all_(set.Bytes()) {}

  /// \error kDataLoss  the set is not whole; others: it may be
  Status Into(const std::string& folder) {
    TDBG_RETURN_IF_ERROR(CheckObjects());
    TDBG_RETURN_IF_ERROR(CheckRoom(folder));
    for (const CheckpointFolder& one : set_.folders)
      TDBG_RETURN_IF_ERROR(MakeFolder(base::JoinPath(folder, one.name)));
    TDBG_RETURN_IF_ERROR(FetchFiles(folder));
    for (const CheckpointLink& link : set_.links) {
      const std::string path = base::JoinPath(folder, link.name);
      TDBG_RETURN_IF_ERROR(MakeFolder(fs::path(path).parent_path()));
      if (::symlink(link.target.c_str(), path.c_str()) != 0)
        return base::PathError(errno, "cannot make a link", path);
    }
    // Times of folders last, since what is put into one changes its own.
    for (const CheckpointFolder& one : set_.folders)
      SetModified(base::JoinPath(folder, one.name), one.modified_nanos);
    return OkStatus();
  }

 private:
  // Before anything is fetched: a set that lacks an object costs one request.
  Status CheckObjects() {
    const std::string prefix = CheckpointFileKey(options_.run, "");
    TDBG_ASSIGN_OR_RETURN(const std::vector<ObjectInfo> objects, store_->List(prefix));
    std::map<std::string, uint64_t> sizes;
    for (const ObjectInfo& object : objects) sizes[object.key.substr(prefix.size())] = object.bytes;
    for (const CheckpointFile& file : set_.files) {
      const auto found = sizes.find(file.sha256);
      if (found == sizes.end()) return DataLoss(file.name + " is not in the bucket");
      if (found->second != file.bytes) return DataLoss(file.name + " has another size");
    }
    return OkStatus();
  }

  Status CheckRoom(const std::string& folder) {
    struct statvfs room;
    if (::statvfs(folder.c_str(), &room) != 0) return OkStatus();
    const uint64_t free = uint64_t{room.f_bavail} * room.f_frsize;
    if (all_ <= free) return OkStatus();
    return ResourceExhausted(fmt::format("{} has {} free, and the checkpoints take {}", options_.directory,
                                         base::FormatBytes(free), base::FormatBytes(all_)));
  }

  static Status MakeFolder(const std::string& path) {
    return base::LocalFileSystem().CreateDirectories(path);
  }

  Status FetchFiles(const std::string& folder) {
    std::atomic<size_t> next{0};
    std::mutex mutex;
    Status failed;  // guarded by mutex
    const auto fetch = [&] {
      for (size_t i = next++; i < set_.files.size(); i = next++) {
        const Status fetched = FetchFile(set_.files[i], base::JoinPath(folder, set_.files[i].name));
        if (fetched.ok()) continue;
        const std::lock_guard guard(mutex);
        if (failed.ok()) failed = fetched;
        next = set_.files.size();
      }
    };
    std::vector<std::jthread> others;
    for (int i = 1; i < options_.files_at_once && static_cast<size_t>(i) < set_.files.size(); ++i)
      others.emplace_back(fetch);
    fetch();
    others.clear();
    return failed;
  }

  Status FetchFile(const CheckpointFile& file, const std::string& path) {
    TDBG_RETURN_IF_ERROR(MakeFolder(fs::path(path).parent_path()));
    const base::UniqueFd fd = base::OpenFd(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW);
    if (!fd.ok()) return base::PathError(errno, "cannot write", path);
    const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> sum(EVP_MD_CTX_new(), EVP_MD_CTX_free);
    if (!sum || EVP_DigestInit_ex(sum.get(), EVP_sha256(), nullptr) != 1) return Internal("no SHA-256");
    for (uint64_t at = 0; at < file.bytes;) {
      const auto piece = store_->Get(CheckpointFileKey(options_.run, file.sha256),
                                     Range{at, std::min(kPiece, file.bytes - at)});
      if (piece.status().code() == Code::kNotFound) return DataLoss(file.name + " is not in the bucket");
      TDBG_RETURN_IF_ERROR(piece.status());
      if (piece->bytes.empty()) return DataLoss(file.name + " has another size");
      if (const int error = base::WriteFully(fd.get(), std::as_bytes(std::span(piece->bytes))))
        return base::PathError(error, "cannot write", path);
      EVP_DigestUpdate(sum.get(), piece->bytes.data(), piece->bytes.size());
      at += piece->bytes.size();
      Progress(piece->bytes.size());
    }
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    if (EVP_DigestFinal_ex(sum.get(), digest, &size) != 1) return Internal("no SHA-256");
    if (base::HexOf({reinterpret_cast<const char*>(digest), size}) != file.sha256)
      return DataLoss(file.name + " has another sum");
    // A machine that goes down must not leave a whole set of empty files.
    if (::fdatasync(fd.get()) != 0) return base::PathError(errno, "cannot write", path);
    SetModified(path, file.modified_nanos);
    return OkStatus();
  }

  void Progress(uint64_t bytes) {
    const std::lock_guard guard(mutex_);
    done_ += bytes;
    const int64_t now = base::SystemClock().MonotonicNanos();
    if (now < next_word_nanos_ || done_ >= all_) return;
    next_word_nanos_ = now + kNextWordNanos;
    options_.say(
        fmt::format("checkpoints come back: {} of {}", base::FormatBytes(done_), base::FormatBytes(all_)));
  }

  ObjectStore* const store_;
  const RestoreOptions& options_;
  const CheckpointSet& set_;
  const uint64_t all_;
  std::mutex mutex_;
  uint64_t done_ = 0;  ///< guarded by mutex_, as is the next
  int64_t next_word_nanos_ = base::SystemClock().MonotonicNanos() + kFirstWordNanos;
};

}  // namespace

Result<bool> HoldsNothing(const std::string& directory) {
  TDBG_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(directory));
  return std::ranges::all_of(names, [](const std::string& name) { return name.starts_with(kFetching); });
}

Result<Restored> RestoreCheckpoints(ObjectStore* store, const RestoreOptions& options) {
  std::string directory = fs::absolute(options.directory).lexically_normal();
  while (directory.size() > 1 && directory.back() == '/') directory.pop_back();
  bool finished = false;
  TDBG_RETURN_IF_ERROR(FinishMove(directory, &finished));
  if (finished) options.say(directory + ": a restore that was killed is finished now");
  TDBG_ASSIGN_OR_RETURN(const bool nothing, HoldsNothing(directory));
  Restored restored;
  restored.kept = !nothing;
  if (restored.kept) return restored;
  TDBG_ASSIGN_OR_RETURN(const std::vector<uint64_t> numbers, ListCheckpointSets(store, options.run));
  if (numbers.empty()) return restored;
  TDBG_RETURN_IF_ERROR(base::LocalFileSystem().CreateDirectories(fs::path(directory).parent_path()));
  TDBG_ASSIGN_OR_RETURN(Staging staging, Staging::Make(directory));
  for (const uint64_t number : numbers) {
    const auto set = ReadCheckpointSet(store, options.run, number);
    Status fetched = set.status();
    if (set.ok()) fetched = Fetching(store, options, *set).Into(staging.path());
    if (fetched.ok()) {
      TDBG_RETURN_IF_ERROR(staging.PutInPlace());
      restored.number = number;
      restored.set = *set;
      return restored;
    }
    // Deleted since it was listed, since newer ones are there: or it is damaged.
    const bool damaged =
        fetched.code() == Code::kDataLoss || (!set.ok() && fetched.code() == Code::kNotFound);
    if (!damaged) return fetched;
    options.say(fmt::format("the checkpoints of set {} are not whole ({})", number, fetched.message()));
    staging.Clear(false);
  }
  return DataLoss(fmt::format("none of the {} of checkpoints in {} is whole",
                              base::Counted(numbers.size(), "set"), options.run.ToString()));
}

}  // namespace tdbg::storage
