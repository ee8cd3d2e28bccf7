#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/bus_guard.h"
#include "base/local_files.h"
#include "base/posix.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14; Debian 12's headers know it, older ones do not
#endif

namespace tdbg::base {
namespace {

class LocalMapped : public MappedFile {
 public:
  LocalMapped(std::byte* data, size_t size, dev_t device, ino_t inode)
      : data_(data), size_(size), device_(device), inode_(inode), guard_(std::in_place, data, size) {}
  ~LocalMapped() override {
    guard_.reset();  // before somebody else's mapping may come to lie there
    ::munmap(data_, size_);
  }
  std::span<std::byte> bytes() override { return {data_, size_}; }
  bool intact() const override { return !guard_->torn(); }
  bool IsAt(const std::string& path) const override {
    struct stat there;
    return ::stat(path.c_str(), &there) == 0 && there.st_dev == device_ && there.st_ino == inode_;
  }

 private:
  std::byte* const data_;
  const size_t size_;
  const dev_t device_;
  const ino_t inode_;
  std::optional<GuardedStretch> guard_;
};

// MAP_POPULATE would not do: it populates for reading, and each first write still faults.
int PopulateForWriting(std::byte* data, size_t size) {
  if (::madvise(data, size, MADV_POPULATE_WRITE) == 0) return 0;
  // An old kernel says EINVAL: later first touches are slower, and that is all. Anything else is a page that
  // cannot be had, which would be a SIGBUS later.
  return errno == EINVAL ? 0 : errno;
}

Result<std::unique_ptr<MappedFile>> Map(const LastingFd& fd, const std::string& path, uint64_t bytes) {
  void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.Get(), 0);
  if (data == MAP_FAILED) return PathError(errno, "cannot map", path);
  return std::unique_ptr<MappedFile>(
      std::make_unique<LocalMapped>(static_cast<std::byte*>(data), bytes, fd.device(), fd.inode()));
}

Result<std::unique_ptr<MappedFile>> AllocateAndMap(const LastingFd& fd, const std::string& path,
                                                   uint64_t bytes) {
  if (bytes == 0) return InvalidArgument("a mapped file needs at least one byte: " + path);
  if (bytes > static_cast<uint64_t>(INT64_MAX))
    return ResourceExhausted("larger than any file can be: " + path);
  int error;
  {
    const ScopedSignalShield shield;
    // ftruncate would leave holes, and a write into a hole of a full disk is SIGBUS in somebody's training.
    // The error is returned and errno is left alone.
    do {
      error = ::posix_fallocate(fd.Get(), 0, static_cast<off_t>(bytes));
    } while (error == EINTR);
  }
  if (error != 0) return PathError(error, "cannot allocate " + std::to_string(bytes) + " bytes", path);
  TDBG_ASSIGN_OR_RETURN(auto mapped, Map(fd, path, bytes));
  error = PopulateForWriting(mapped->bytes().data(), std::min(bytes, kTouchedAtCreation));
  if (error == EFAULT || error == ENOMEM) error = ENOSPC;
  if (error != 0) return PathError(error, "cannot populate the mapping", path);
  return mapped;
}

}  // namespace

Result<std::unique_ptr<MappedFile>> CreateLocalMapped(const Ground& ground, const std::string& path,
                                                      uint64_t bytes) {
  TDBG_ASSIGN_OR_RETURN(const Spot spot, ground.Find(path));
  // O_EXCL: truncating a journal that somebody still has mapped is SIGBUS in that process. Nor does it follow
  // links.
  const LastingFd fd =
      LastingFd::OpenAt(spot.at(), spot.name.c_str(), O_RDWR | O_CREAT | O_EXCL, spot.file_mode);
  if (!fd.ok()) {
    if (errno == EEXIST) return Status(Code::kAlreadyExists, "exists already: " + path);
    return PathError(errno, "cannot create", path);
  }
  auto mapped = AllocateAndMap(fd, path, bytes);
  // On ext4 a failed allocation keeps what it got (33 MB of 64 on a 40 MB disk) and fills the disk for
  // others.
  if (!mapped.ok()) ::unlinkat(spot.at(), spot.name.c_str(), 0);
  return mapped;
}

Result<std::unique_ptr<MappedFile>> MapForWriting(const std::string& path) {
  const LastingFd fd = LastingFd::Open(path.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK);
  if (!fd.ok()) return SpotError(errno, "cannot open", path);
  struct stat info;
  if (::fstat(fd.Get(), &info) != 0) return PathError(errno, "cannot stat", path);
  if (!S_ISREG(info.st_mode) || info.st_size == 0) return DataLoss("not a file of any length: " + path);
  return Map(fd, path, static_cast<uint64_t>(info.st_size));
}

}  // namespace tdbg::base
