// Which parts of a file hold data: the rest are holes, which read as zeros and take no room on the disk.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/posix.h"

namespace tdbg::base {

/// For a search through a file whose length others have chosen: a terabyte of holes costs a few kB on a disk,
/// and must cost the search no more. \threadsafety One thread.
class DataExtents {
 public:
  /// lseek(offset, SEEK_DATA or SEEK_HOLE); -1 and errno.
  using Seek = std::function<int64_t(int64_t offset, int whence)>;

  /// Looks at the file that is there now. If it cannot be opened, all of it counts as data.
  explicit DataExtents(const std::string& path);
  /// Of an open file, which is borrowed. Its offset moves.
  explicit DataExtents(int fd) { Look(fd); }
  /// Of any file. \param allocated_bytes  what it takes on its disk
  DataExtents(Seek seek, uint64_t file_bytes, uint64_t allocated_bytes);

  /// The first offset at or behind this one that may hold data; the file's length if there is none. Where the
  /// file system does not know holes but the file takes less room than its length, a search ends after as
  /// many bytes as it takes, and 1 GiB at least. Costs two system calls an extent.
  uint64_t From(uint64_t offset);

 private:
  void Look(int fd);
  void Begin(uint64_t file_bytes, uint64_t allocated_bytes);
  void Find(uint64_t offset);

  UniqueFd file_;
  Seek seek_;
  uint64_t file_bytes_ = UINT64_MAX;
  uint64_t left_ = UINT64_MAX;    ///< how much may be searched where nobody knows what are holes
  uint64_t begin_ = 0, end_ = 0;  ///< of the extent that was found last; data lie between
  bool knows_holes_ = false;
};

}  // namespace tdbg::base
