// The files below a run's directory, and no others: names come from files that a stranger may have written.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/posix.h"
#include "tdbg/status.h"

namespace tdbg::compat::smdebug {

/// What tells that a file or folder is not what it was.
struct Signature {
  uint64_t inode = 0, bytes = 0;
  int64_t modified_nanos = 0;
  friend bool operator==(const Signature&, const Signature&) = default;
};

/// A regular file, open.
struct OpenFile {
  base::UniqueFd fd;
  Signature signature;
};

class Root {
 public:
  static Result<Root> Open(const std::string& path);

  /// Paths are relative to the directory. A symbolic link inside it may lead to another place inside it;
  /// whatever leads outside, and whatever is no regular file (a pipe would block), is refused.
  /// \error kNotFound; kInvalidArgument  leads outside, or is no file
  Result<OpenFile> OpenRegular(const std::string& relative) const;
  /// Reads a whole file into `buffer`, which keeps its memory for the next one, with `padding` bytes behind
  /// it.
  Result<Signature> Read(const std::string& relative, size_t padding, std::vector<char>* buffer) const;

  struct Entry {
    std::string name;
    bool is_directory = false;
  };
  /// Sorted by name; symbolic links are not listed. Empty where there is no such folder.
  Result<std::vector<Entry>> List(const std::string& relative) const;
  /// All zero where there is nothing.
  Signature SignatureOf(const std::string& relative) const;

  const std::string& path() const { return path_; }

 private:
  Result<base::UniqueFd> OpenBeneath(const std::string& relative, int flags) const;

  std::string path_;
  base::UniqueFd directory_;
};

/// Exactly `bytes` bytes at `offset`. \error kDataLoss  the file is shorter
Status ReadExactly(int fd, uint64_t offset, size_t bytes, std::byte* out);

}  // namespace tdbg::compat::smdebug
