#include "storage/sparse_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace tdbg::storage {
namespace {

constexpr uint64_t kStretchBytes = 4u << 20;  // largest request

}  // namespace

Status WriteAt(int fd, uint64_t offset, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t done = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return base::PathError(errno, "cannot write", path);
    bytes.remove_prefix(static_cast<size_t>(done));
    offset += static_cast<uint64_t>(done);
  }
  return OkStatus();
}

SparseFile::~SparseFile() {
  if (have_ != nullptr) ::munmap(have_, have_bytes_);
}

base::UniqueFd SparseFile::OpenFile() const {
  return base::OpenFd(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW, 0600);
}

Status SparseFile::Open(const std::string& parts_path) {
  const base::UniqueFd file = OpenFile();
  if (!file.ok() || ::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0)
    return base::PathError(errno, "cannot make", path);
  have_bytes_ = (bytes / kBlock + 8) / 8;
  const base::UniqueFd parts = base::OpenFd(parts_path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW, 0600);
  if (!parts.ok() || ::ftruncate(parts.get(), static_cast<off_t>(have_bytes_)) != 0)
    return base::PathError(errno, "cannot make", parts_path);
  // A hole in it would be a SIGBUS once the disk is full.
  if (const int full = ::posix_fallocate(parts.get(), 0, static_cast<off_t>(have_bytes_)))
    return base::PathError(full, "cannot make", parts_path);
  void* const mapped = ::mmap(nullptr, have_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, parts.get(), 0);
  if (mapped == MAP_FAILED) return base::PathError(errno, "cannot map", parts_path);
  have_ = static_cast<std::atomic<uint8_t>*>(mapped);
  return OkStatus();
}

std::vector<Range> SparseFile::Missing(uint64_t offset, uint64_t wanted) const {
  std::vector<Range> missing;
  if (offset >= bytes) return missing;
  wanted = std::min(wanted, bytes - offset);
  if (wanted == 0) return missing;
  for (uint64_t block = offset / kBlock; block <= (offset + wanted - 1) / kBlock; ++block) {
    if (Has(block)) continue;
    const uint64_t begin = block * kBlock, end = std::min(begin + kBlock, bytes);
    const bool goes_on = !missing.empty() && missing.back().offset + missing.back().bytes == begin &&
                         missing.back().bytes < kStretchBytes;
    if (goes_on) {
      missing.back().bytes += end - begin;
    } else {
      missing.push_back({begin, end - begin});
    }
  }
  return missing;
}

Status SparseFile::Take(int fd, const Range& range, std::string_view fetched) const {
  TDBG_RETURN_IF_ERROR(WriteAt(fd, range.offset, fetched, path));
  for (uint64_t at = range.offset; at < range.offset + range.bytes; at += kBlock) {
    const uint64_t block = at / kBlock;
    have_[block / 8].fetch_or(static_cast<uint8_t>(1u << (block % 8)), std::memory_order_release);
  }
  return OkStatus();
}

}  // namespace tdbg::storage
