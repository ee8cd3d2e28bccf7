#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <mutex>
#include <system_error>

#include "base/below.h"
#include "base/local_files.h"
#include "base/posix.h"

namespace tdbg::base {
namespace {

Status LargerThan(uint64_t bytes, const std::string& path) {
  return ResourceExhausted("larger than " + std::to_string(bytes) + " bytes: " + path);
}

class LocalFiles : public FileSystem {
 public:
  explicit LocalFiles(Ground ground = {}) : ground_(std::move(ground)) {}

  Status CreateDirectories(const std::string& path) override {
    std::error_code error;
    if (!ground_.root.empty() && path.starts_with(ground_.root + "/")) {
      TDBG_ASSIGN_OR_RETURN(const Spot spot, ground_.Find(path, /*create=*/true));
      if (::mkdirat(spot.at(), spot.name.c_str(), spot.directory_mode) == 0) return OkStatus();
      const int refused = errno;
      struct stat info;
      if (refused == EEXIST && ::fstatat(spot.at(), spot.name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0) {
        if (S_ISDIR(info.st_mode)) return OkStatus();
        if (S_ISLNK(info.st_mode)) return SpotError(ELOOP, "cannot create the directory", path);
      }
      return PathError(refused, "cannot create the directory", path);
    }
    std::filesystem::create_directories(path, error);
    if (error) return PathError(error.value(), "cannot create the directory", path);
    return OkStatus();
  }

  Result<std::vector<DirEntry>> List(const std::string& path) override {
    UniqueFd fd = OpenFd(path.c_str(), O_RDONLY | O_DIRECTORY);
    const std::unique_ptr<DIR, int (*)(DIR*)> directory(fd.ok() ? ::fdopendir(fd.get()) : nullptr,
                                                        [](DIR* d) { return ::closedir(d); });
    if (!directory) return PathError(errno, "cannot list", path);
    (void)fd.release();  // the directory's
    std::vector<DirEntry> entries;
    while (true) {
      errno = 0;
      const dirent* const entry = ::readdir(directory.get());
      if (!entry) break;
      DirEntry found;
      found.name = entry->d_name;
      if (found.name == "." || found.name == "..") continue;
      struct stat info;
      // Deleted since readdir (a journal that was just sealed): leave it out, as a later listing would.
      if (::fstatat(::dirfd(directory.get()), entry->d_name, &info, 0) != 0) continue;
      found.is_directory = S_ISDIR(info.st_mode);
      found.size = static_cast<uint64_t>(info.st_size);
      entries.push_back(std::move(found));
    }
    // Half a listing would look like a run with steps missing.
    if (errno != 0) return PathError(errno, "cannot list", path);
    std::sort(entries.begin(), entries.end(),
              [](const DirEntry& a, const DirEntry& b) { return a.name < b.name; });
    return entries;
  }

  bool Exists(const std::string& path) override {
    struct stat info;
    return ::stat(path.c_str(), &info) == 0;
  }

  Result<std::string> ReadFile(const std::string& path, uint64_t max_bytes) override {
    // O_NONBLOCK: anybody may put a pipe where a file of a run should be, and opening it would wait for a
    // writer for ever.
    const UniqueFd fd = OpenFd(path.c_str(), O_RDONLY | O_NONBLOCK);
    if (!fd.ok()) return PathError(errno, "cannot open", path);
    struct stat info;
    if (::fstat(fd.get(), &info) != 0) return PathError(errno, "cannot stat", path);
    if (S_ISDIR(info.st_mode)) return PathError(EISDIR, "cannot read", path);
    if (!S_ISREG(info.st_mode)) return DataLoss("not a regular file: " + path);
    // A length that was forged costs nothing on a disk, and reading up to the limit would take seconds.
    if (static_cast<uint64_t>(info.st_size) > max_bytes) return LargerThan(max_bytes, path);
    std::string contents;
    // No trust in st_size, which lies under /proc.
    contents.reserve(std::min(static_cast<uint64_t>(info.st_size), max_bytes));
    char buffer[16 << 10];
    while (true) {
      const ssize_t got = ::read(fd.get(), buffer, sizeof(buffer));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return PathError(errno, "cannot read", path);
      if (got == 0) return contents;
      if (static_cast<uint64_t>(got) > max_bytes - contents.size()) return LargerThan(max_bytes, path);
      contents.append(buffer, static_cast<size_t>(got));
    }
  }

  Status WriteFileAtomic(const std::string& path, std::string_view contents) override {
    // Pid and counter: two threads or two processes may replace the same file at once, and the last wins
    // whole.
    static std::atomic<uint64_t> counter{0};
    const std::string temporary =
        path + "." + std::to_string(::getpid()) + "-" + std::to_string(counter.fetch_add(1)) + ".tmp";
    TDBG_ASSIGN_OR_RETURN(const auto file, CreatePending(temporary));
    TDBG_RETURN_IF_ERROR(file->Write(std::as_bytes(std::span(contents.data(), contents.size()))));
    return file->Publish(path, /*durable=*/false);
  }

  Status AppendLine(const std::string& path, std::string_view line) override {
    std::string whole(line);
    if (!whole.ends_with('\n')) whole += '\n';
    TDBG_ASSIGN_OR_RETURN(const Spot spot, ground_.Find(path));
    TDBG_ASSIGN_OR_RETURN(const UniqueFd fd, OpenAt(spot, O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK,
                                                    "cannot open for appending", path));
    const ScopedSignalShield shield;
    ssize_t written;
    do {
      written = ::write(fd.get(), whole.data(), whole.size());
    } while (written < 0 && errno == EINTR);
    if (written < 0) return PathError(errno, "cannot append", path);
    if (static_cast<size_t>(written) == whole.size()) return OkStatus();
    // A full disk took a part. The next line would be glued to it and both would be lost, so it is taken
    // back, unless somebody has written behind it meanwhile.
    const off_t end = ::lseek(fd.get(), 0, SEEK_CUR);
    struct stat info;
    if (end >= written && ::fstat(fd.get(), &info) == 0 && info.st_size == end) {
      (void)!::ftruncate(fd.get(), end - written);
    }
    return PathError(ENOSPC, "cannot append", path);
  }

  Result<std::unique_ptr<ReadableFile>> OpenReadable(const std::string& path) override {
    return OpenLocalReadable(path);
  }
  Result<std::unique_ptr<PendingFile>> CreatePending(const std::string& temporary_path) override {
    return CreateLocalPending(ground_, temporary_path);
  }
  Result<std::unique_ptr<MappedFile>> CreateMapped(const std::string& path, uint64_t bytes) override {
    return CreateLocalMapped(ground_, path, bytes);
  }
  Result<std::unique_ptr<FileLock>> Lock(const std::string& path) override {
    return LockLocal(ground_, path);
  }
  bool IsLocked(const std::string& path) override { return IsLockedLocal(path); }

  Status Remove(const std::string& path) override {
    TDBG_ASSIGN_OR_RETURN(const Spot spot, ground_.Find(path));
    if (::unlinkat(spot.at(), spot.name.c_str(), 0) == 0) return OkStatus();
    if (errno == EISDIR && ::unlinkat(spot.at(), spot.name.c_str(), AT_REMOVEDIR) == 0) return OkStatus();
    return PathError(errno, "cannot remove", path);
  }

  Result<uint64_t> FreeBytes(const std::string& path) override {
    struct statvfs info;
    if (::statvfs(path.c_str(), &info) != 0) return PathError(errno, "cannot ask for free space", path);
    // f_bavail and not f_bfree: the reserve is root's.
    return static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
  }

 private:
  const Ground ground_;
};

}  // namespace

FileSystem& LocalFileSystem() {
  static FileSystem* const files = new LocalFiles;
  return *files;
}

FileSystem& FilesBelow(FileSystem& files, const std::string& given) {
  const std::string root = WithoutSlash(given);
  if (&files != &LocalFileSystem() || root.empty()) return files;
  // A process has one run or two. Entries are never removed: nobody says how long he uses one.
  static std::mutex* const mutex = new std::mutex;
  static auto* const known = new std::map<std::string, LocalFiles*>;
  const std::lock_guard guard(*mutex);
  LocalFiles*& found = (*known)[root];
  if (found == nullptr) found = new LocalFiles(Ground{root});
  return *found;
}

}  // namespace tdbg::base
