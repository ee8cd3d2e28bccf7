#include "storage/checkpoint_directory.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <openssl/evp.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>

#include "base/file.h"
#include "base/sha256.h"
#include "storage/checkpoint_sets.h"

namespace tdbg::storage {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostEntries = 200'000;
constexpr size_t kStretch = 1u << 20;

int64_t Nanos(const timespec& time) { return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec; }

std::string TargetOf(const std::string& path) {
  std::string target(PATH_MAX, '\0');
  const ssize_t got = ::readlink(path.c_str(), target.data(), target.size());
  target.resize(got < 0 ? 0 : static_cast<size_t>(got));
  return target;
}

// Adds what is at `path`. \return whether to look into it
bool TakeEntry(const std::string& path, const std::string& name, DirectoryState* state) {
  if (name.ends_with(".tmp") || name.starts_with(kRestoreMark) || name == kLostAndFound) return false;
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0) return false;  // gone: the next look says so, too
  DirectoryEntry entry;
  entry.name = name;
  entry.device = info.st_dev;
  entry.inode = info.st_ino;
  entry.modified_nanos = Nanos(info.st_mtim);
  entry.changed_nanos = Nanos(info.st_ctim);
  if (S_ISDIR(info.st_mode)) {
    entry.kind = DirectoryEntry::kFolder;
  } else if (S_ISREG(info.st_mode)) {
    entry.bytes = static_cast<uint64_t>(info.st_size);
    entry.grows = IsGrowingLog(name);
  } else if (S_ISLNK(info.st_mode)) {
    entry.kind = DirectoryEntry::kLink;
    entry.target = TargetOf(path);
    if (!LinkStaysInside(name, entry.target)) {
      state->left_out.push_back(name);
      return false;
    }
  } else {
    return false;
  }
  const bool folder = entry.kind == DirectoryEntry::kFolder;
  state->entries.push_back(std::move(entry));
  return folder;
}

// A lease for reading is refused while anybody has the file open for writing, or mapped so. It is given back
// at once: who opens a file for writing waits for its holder. File systems without leases (NFS, FUSE) say
// nothing.
bool IsOpenForWriting(int fd) {
  (void)::fcntl(fd, F_SETSIG, SIGURG);  // who has to wait is told to us by a signal; this one does nothing
  if (::fcntl(fd, F_SETLEASE, F_RDLCK) == 0) {
    (void)::fcntl(fd, F_SETLEASE, F_UNLCK);
    return false;
  }
  return errno == EAGAIN;
}

Status CheckRoom(int fd, uint64_t bytes) {
  struct statvfs room;
  if (::fstatvfs(fd, &room) != 0) return OkStatus();
  const uint64_t free = uint64_t{room.f_bavail} * room.f_frsize;
  return bytes <= free / 2 ? OkStatus() : ResourceExhausted("no room for a copy");
}

base::UniqueFd OpenUnnamed(const std::string& near, const std::string& spare) {
  base::UniqueFd fd = base::OpenFd(near.c_str(), O_TMPFILE | O_RDWR, 0600);
  if (fd.ok() || spare.empty()) return fd;
  fd = base::OpenFd(spare.c_str(), O_TMPFILE | O_RDWR, 0600);
  if (fd.ok()) return fd;
  std::string name = base::JoinPath(spare, ".tmp-checkpoint-XXXXXX");
  fd.reset(::mkostemp(name.data(), O_CLOEXEC));
  if (fd.ok()) ::unlink(name.c_str());
  return fd;
}

Status CopyBytes(int from, int to, uint64_t bytes) {
  loff_t at = 0, written = 0;
  while (static_cast<uint64_t>(at) < bytes) {
    const ssize_t done = ::copy_file_range(from, &at, to, &written, bytes - static_cast<uint64_t>(at), 0);
    if (done > 0 || (done < 0 && errno == EINTR)) continue;
    if (done == 0) return Unavailable("became shorter");
    if (errno != EXDEV && errno != EINVAL && errno != EOPNOTSUPP && errno != ENOSYS)
      return ErrnoStatus(errno, "cannot copy");
    break;
  }
  std::string stretch;
  if (::lseek(to, at, SEEK_SET) < 0) return ErrnoStatus(errno, "cannot copy");
  while (static_cast<uint64_t>(at) < bytes) {  // file systems that cannot do it by themselves
    stretch.resize(std::min<uint64_t>(kStretch, bytes - static_cast<uint64_t>(at)));
    const ssize_t got = ::pread(from, stretch.data(), stretch.size(), at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, "cannot copy");
    if (got == 0) return Unavailable("became shorter");
    stretch.resize(static_cast<size_t>(got));
    if (const int error = base::WriteFully(to, std::as_bytes(std::span(stretch))))
      return ErrnoStatus(error, "cannot copy");
    at += got;
  }
  return OkStatus();
}

}  // namespace

bool DirectoryEntry::SameAs(const DirectoryEntry& other) const {
  if (name != other.name || kind != other.kind || device != other.device || inode != other.inode)
    return false;
  if (kind == kFolder) return true;
  if (grows) return bytes <= other.bytes;
  return bytes == other.bytes && modified_nanos == other.modified_nanos &&
         changed_nanos == other.changed_nanos && target == other.target;
}

bool IsGrowingLog(const std::string& name) {
  const std::string base_name = base::BaseName(name);
  return base_name.find(".tfevents.") != std::string::npos || base_name.ends_with(".log") ||
         base_name.ends_with(".jsonl") || base_name.ends_with(".csv");
}

bool DirectoryState::Empty() const {
  return std::ranges::all_of(
      entries, [](const DirectoryEntry& entry) { return entry.kind == DirectoryEntry::kFolder; });
}

bool DirectoryState::SameAs(const DirectoryState& other) const {
  return std::ranges::equal(entries, other.entries,
                            [](const DirectoryEntry& a, const DirectoryEntry& b) { return a.SameAs(b); });
}

Result<DirectoryState> LookAtDirectory(const std::string& directory) {
  DirectoryState state;
  std::error_code error;
  std::string root = directory;
  while (root.size() > 1 && root.back() == '/') root.pop_back();
  fs::recursive_directory_iterator at(root, error);
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    const std::string path = at->path().string();
    if (!TakeEntry(path, path.substr(root.size() + 1), &state)) at.disable_recursion_pending();
    if (state.entries.size() > kMostEntries)
      return ResourceExhausted(fmt::format("{} holds more than {} files", directory, kMostEntries));
  }
  if (error == std::errc::permission_denied)
    return FailedPrecondition(fmt::format("cannot list {}: {}", directory, error.message()));
  if (error) {
    const bool gone = !base::LocalFileSystem().Exists(directory);
    return Status(gone ? Code::kNotFound : Code::kUnavailable,
                  fmt::format("cannot list {}: {}", directory, error.message()));
  }
  std::ranges::sort(state.entries, {}, &DirectoryEntry::name);
  std::ranges::sort(state.left_out);
  return state;
}

Result<base::UniqueFd> OpenSettled(const std::string& directory, const DirectoryEntry& entry) {
  base::UniqueFd fd = base::OpenFd(base::JoinPath(directory, entry.name).c_str(),
                                   O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_NOATIME);
  if (!fd.ok() && errno == EPERM)  // O_NOATIME is for a file's owner
    fd = base::OpenFd(base::JoinPath(directory, entry.name).c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW);
  if (!fd.ok() && errno == EACCES) return FailedPrecondition(entry.name + " may not be read");
  if (!fd.ok() && (errno == EMFILE || errno == ENFILE)) return ResourceExhausted("too many open files");
  const Status changed = Unavailable(entry.name + " changes");
  struct stat info;
  if (!fd.ok() || ::fstat(fd.get(), &info) != 0) return changed;
  DirectoryEntry now = entry;
  now.device = info.st_dev;
  now.inode = info.st_ino;
  now.bytes = static_cast<uint64_t>(info.st_size);
  now.modified_nanos = Nanos(info.st_mtim);
  now.changed_nanos = Nanos(info.st_ctim);
  if (!S_ISREG(info.st_mode) || !entry.SameAs(now)) return changed;
  if (!entry.grows && IsOpenForWriting(fd.get())) return Unavailable(entry.name + " is open for writing");
  return fd;
}

bool HasSameBytes(int fd, const DirectoryEntry& entry) {
  struct stat info;
  if (::fstat(fd, &info) != 0) return false;
  if (entry.grows) return static_cast<uint64_t>(info.st_size) >= entry.bytes;
  return static_cast<uint64_t>(info.st_size) == entry.bytes && Nanos(info.st_mtim) == entry.modified_nanos;
}

Result<base::UniqueFd> CopyUnnamed(int fd, uint64_t bytes, const std::string& near,
                                   const std::string& spare) {
  base::UniqueFd to = OpenUnnamed(near, spare);
  if (!to.ok()) return ErrnoStatus(errno, "cannot make a copy in " + near);
  TDBG_RETURN_IF_ERROR(CheckRoom(to.get(), bytes));
  TDBG_RETURN_IF_ERROR(CopyBytes(fd, to.get(), bytes));
  return to;
}

Result<std::string> Sha256OfFile(int fd, uint64_t bytes) {
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  if (!context || EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) != 1) return Internal("no SHA-256");
  std::string stretch(std::min<uint64_t>(kStretch, std::max<uint64_t>(1, bytes)), '\0');
  for (uint64_t at = 0; at < bytes;) {
    const ssize_t got =
        ::pread(fd, stretch.data(), std::min<uint64_t>(stretch.size(), bytes - at), static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, "cannot read a checkpoint");
    if (got == 0) return Unavailable("became shorter");
    EVP_DigestUpdate(context.get(), stretch.data(), static_cast<size_t>(got));
    at += static_cast<uint64_t>(got);
  }
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  if (EVP_DigestFinal_ex(context.get(), digest, &size) != 1) return Internal("no SHA-256");
  return base::HexOf({reinterpret_cast<const char*>(digest), size});
}

}  // namespace tdbg::storage
