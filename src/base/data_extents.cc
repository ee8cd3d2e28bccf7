#include "base/data_extents.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace tdbg::base {
namespace {

constexpr uint64_t kSearchedAnyway = uint64_t{1} << 30;
constexpr uint64_t kPiece = uint64_t{64} << 20;  // of a search that may be ended

}  // namespace

// A descriptor of its own: lseek moves the place at which whoever shares one reads on.
DataExtents::DataExtents(const std::string& path)
    : file_(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW)) {
  Look(file_.get());
}

void DataExtents::Look(int fd) {
  struct stat info;
  if (fd < 0 || ::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) return;
  seek_ = [fd](int64_t offset, int whence) { return ::lseek(fd, offset, whence); };
  Begin(static_cast<uint64_t>(info.st_size), static_cast<uint64_t>(info.st_blocks) * 512);
}

DataExtents::DataExtents(Seek seek, uint64_t file_bytes, uint64_t allocated_bytes) : seek_(std::move(seek)) {
  Begin(file_bytes, allocated_bytes);
}

void DataExtents::Begin(uint64_t file_bytes, uint64_t allocated_bytes) {
  file_bytes_ = file_bytes;
  const int64_t hole = seek_(0, SEEK_HOLE);
  knows_holes_ = hole >= 0 && static_cast<uint64_t>(hole) < file_bytes;
  if (!knows_holes_ && allocated_bytes < file_bytes) left_ = std::max(allocated_bytes, kSearchedAnyway);
}

uint64_t DataExtents::From(uint64_t offset) {
  if (offset < begin_ || offset >= end_) Find(offset);
  return std::max(offset, begin_);
}

void DataExtents::Find(uint64_t offset) {
  begin_ = offset;
  end_ = file_bytes_;
  if (knows_holes_) {
    const int64_t data = seek_(static_cast<int64_t>(offset), SEEK_DATA);
    if (data < 0 && errno == ENXIO) {
      begin_ = file_bytes_;
      return;
    }
    if (data < 0) return;
    begin_ = static_cast<uint64_t>(data);
    const int64_t hole = seek_(data, SEEK_HOLE);
    if (hole > data) end_ = static_cast<uint64_t>(hole);
  } else if (left_ != UINT64_MAX) {
    if (left_ == 0) begin_ = file_bytes_;
    end_ = std::min(file_bytes_, offset + std::min(left_, kPiece));
    left_ -= std::min(left_, kPiece);
  }
}

}  // namespace tdbg::base
