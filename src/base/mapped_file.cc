#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#include "base/local_files.h"
#include "base/posix.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14; Debian 12's headers know it, older ones do not
#endif

namespace tdbg::base {
namespace {

class LocalMapped : public MappedFile {
 public:
  LocalMapped(std::byte* data, size_t size) : data_(data), size_(size) {}
  ~LocalMapped() override { ::munmap(data_, size_); }
  std::span<std::byte> bytes() override { return {data_, size_}; }

 private:
  std::byte* const data_;
  const size_t size_;
};

// First touches cost 160-1200 ns a page, which belongs to this thread and not to the training one.
// MAP_POPULATE would not do: it populates for reading, and each first write still faults.
int PopulateForWriting(std::byte* data, size_t size) {
  if (::madvise(data, size, MADV_POPULATE_WRITE) == 0) return 0;
  // An old kernel says EINVAL: later first touches are slower, and that is all. Anything else is a page that
  // cannot be had, which would be a SIGBUS later.
  return errno == EINVAL ? 0 : errno;
}

Result<std::unique_ptr<MappedFile>> AllocateAndMap(int fd, const std::string& path, uint64_t bytes) {
  if (bytes == 0) return InvalidArgument("a mapped file needs at least one byte: " + path);
  if (bytes > static_cast<uint64_t>(INT64_MAX))
    return ResourceExhausted("larger than any file can be: " + path);
  int error;
  {
    const ScopedSignalShield shield;
    // ftruncate would leave holes, and a write into a hole of a full disk is SIGBUS in somebody's training.
    // The error is returned and errno is left alone.
    do {
      error = ::posix_fallocate(fd, 0, static_cast<off_t>(bytes));
    } while (error == EINTR);
  }
  if (error != 0) return PathError(error, "cannot allocate " + std::to_string(bytes) + " bytes", path);
  void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return PathError(errno, "cannot map", path);
  auto mapped = std::make_unique<LocalMapped>(static_cast<std::byte*>(data), bytes);
  error = PopulateForWriting(static_cast<std::byte*>(data), bytes);
  if (error == EFAULT || error == ENOMEM) error = ENOSPC;
  if (error != 0) return PathError(error, "cannot populate the mapping", path);
  return std::unique_ptr<MappedFile>(std::move(mapped));
}

}  // namespace

Result<std::unique_ptr<MappedFile>> CreateLocalMapped(const std::string& path, uint64_t bytes) {
  // O_EXCL: truncating a journal that somebody still has mapped is SIGBUS in that process.
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!fd.ok()) {
    if (errno == EEXIST) return Status(Code::kAlreadyExists, "exists already: " + path);
    return PathError(errno, "cannot create", path);
  }
  auto mapped = AllocateAndMap(fd.get(), path, bytes);
  // On ext4 a failed allocation keeps what it got (33 MB of 64 on a 40 MB disk) and fills the disk for
  // others.
  if (!mapped.ok()) ::unlink(path.c_str());
  return mapped;
}

}  // namespace tdbg::base
