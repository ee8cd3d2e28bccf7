// A file of a mirror that has holes where nothing was fetched yet.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/posix.h"
#include "storage/object_store.h"

namespace tdbg::storage {

/// Writes all of it, or says why not.
Status WriteAt(int fd, uint64_t offset, std::string_view bytes, const std::string& path);

/// \threadsafety Missing, OpenFile and Take: any thread.
struct SparseFile {
  static constexpr uint64_t kBlock = 4096;  ///< unit in which holes are filled

  SparseFile() = default;
  SparseFile(const SparseFile&) = delete;
  ~SparseFile();

  /// Makes the file where it is missing, and the map of its blocks.
  Status Open(const std::string& parts_path);
  /// What of these bytes was not fetched yet, in requests.
  std::vector<Range> Missing(uint64_t offset, uint64_t wanted) const;
  base::UniqueFd OpenFile() const;
  /// Writes what was fetched of one range of Missing.
  Status Take(int fd, const Range& range, std::string_view fetched) const;

  std::string name;  ///< below the run's prefix
  uint64_t bytes = 0;
  /// Opened where it is read or filled: a run may have more segments than a process may have descriptors.
  std::string path;

 private:
  bool Has(uint64_t block) const {
    return (have_[block / 8].load(std::memory_order_acquire) >> (block % 8) & 1) != 0;
  }

  /// A bit for each block that was fetched; shared with other processes that mirror the same run.
  std::atomic<uint8_t>* have_ = nullptr;
  uint64_t have_bytes_ = 0;
};

}  // namespace tdbg::storage
