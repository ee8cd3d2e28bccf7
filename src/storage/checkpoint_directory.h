// A directory of checkpoints as a sender sees it: what is in it, and files of it that are held open so that
// they can be read as they were at one instant. Looking and reading never make the training wait.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/posix.h"
#include "tdbg/status.h"

namespace tdbg::storage {

struct DirectoryEntry {
  enum Kind : uint8_t { kFile, kLink, kFolder };

  std::string name;  ///< below the directory
  Kind kind = kFile;
  /// A log that is open for the whole training: its name says so (IsGrowingLog). It is taken as far as it is
  /// written.
  bool grows = false;
  dev_t device = 0;
  ino_t inode = 0;
  uint64_t bytes = 0;
  int64_t modified_nanos = 0, changed_nanos = 0;
  std::string target;  ///< of a link

  /// Nothing happened to it between two looks; a log may have grown, and a folder's entries are looked at one
  /// by one.
  bool SameAs(const DirectoryEntry& other) const;
};

/// TensorBoard's event files, "*.log", "*.jsonl", "*.csv".
bool IsGrowingLog(const std::string& name);

struct DirectoryState {
  std::vector<DirectoryEntry> entries;  ///< by name
  std::vector<std::string> left_out;    ///< links that lead out of the directory

  /// No file and no link: there is nothing to keep.
  bool Empty() const;
  bool SameAs(const DirectoryState& other) const;
};

/// Without "*.tmp", what a restore has begun, and what is neither file, folder nor link. Follows no link
/// below the directory. \error kUnavailable  it changed while it was listed; kNotFound; kFailedPrecondition
/// it may not be listed; kResourceExhausted  more than a set may hold
Result<DirectoryState> LookAtDirectory(const std::string& directory);

/// Opens a file of the directory for reading. \error kUnavailable  it is another one by now, or a process has
/// it open for writing; kFailedPrecondition  it may not be read
Result<base::UniqueFd> OpenSettled(const std::string& directory, const DirectoryEntry& entry);
/// Has it still the bytes that it had? It may have been renamed or deleted.
bool HasSameBytes(int fd, const DirectoryEntry& entry);
/// A copy that nobody else can open and that vanishes with its last descriptor. Shares the bytes where the
/// file system can. \param near  a directory of the same file system; \param spare  where that one allows no
/// unnamed files
/// \error kResourceExhausted  less than half of what is free would be left
Result<base::UniqueFd> CopyUnnamed(int fd, uint64_t bytes, const std::string& near, const std::string& spare);

/// Lower-case hexadecimal SHA-256 of a file's first `bytes` bytes. \error kUnavailable  it has fewer
Result<std::string> Sha256OfFile(int fd, uint64_t bytes);

}  // namespace tdbg::storage
