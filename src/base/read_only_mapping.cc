#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bus_guard.h"
#include "base/file.h"
#include "base/posix.h"

namespace tdbg::base {

Result<std::shared_ptr<const ReadOnlyMapping>> ReadOnlyMapping::Open(const std::string& path) {
  const UniqueFd fd = OpenFd(path.c_str(), O_RDONLY | O_NONBLOCK);
  if (!fd.ok()) return PathError(errno, "cannot open", path);
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return PathError(errno, "cannot stat", path);
  if (!S_ISREG(info.st_mode)) return InvalidArgument("not a regular file: " + path);
  const std::shared_ptr<ReadOnlyMapping> mapping(new ReadOnlyMapping());
  if (info.st_size == 0) return std::shared_ptr<const ReadOnlyMapping>(mapping);  // mmap refuses length 0
  const size_t size = static_cast<size_t>(info.st_size);
  void* const data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return PathError(errno, "cannot map", path);
  mapping->path_ = path;
  mapping->data_ = static_cast<const std::byte*>(data);
  mapping->size_ = size;
  GuardReads(mapping.get());
  return std::shared_ptr<const ReadOnlyMapping>(mapping);
}

ReadOnlyMapping::~ReadOnlyMapping() {
  if (data_ == nullptr) return;
  NoLongerGuardReads(this);
  ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace tdbg::base
