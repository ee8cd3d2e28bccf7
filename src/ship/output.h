// Files and directories that an export makes: under a temporary name until they are whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "base/posix.h"
#include "tdbg/status.h"

namespace tdbg::ship {

/// What is collected before it is written.
inline constexpr size_t kBufferBytes = 1u << 20;

/// A directory being made beside the one that it will be. Dropped uncommitted, it is removed.
class OutputDirectory {
 public:
  /// Did an earlier export of the same kind put this file there? `inside` is its path below `directory`.
  using IsOurs = std::function<bool(const std::string& directory, const std::string& inside)>;

  /// \param force  replace what is there, if it is nothing but such an export
  /// \error kAlreadyExists  `path` is there and not empty (an empty directory is fine), or holds something
  ///                        that `is_ours` does not know
  static Result<OutputDirectory> Create(const std::string& path, bool force, const IsOurs& is_ours);
  OutputDirectory(OutputDirectory&& other) noexcept;
  ~OutputDirectory();

  const std::string& temporary_path() const { return temporary_; }
  /// Puts it where it belongs; what was there is gone then.
  Status Commit();

 private:
  OutputDirectory(std::string path, std::string temporary)
      : path_(std::move(path)), temporary_(std::move(temporary)) {}

  std::string path_, temporary_;
};

/// Did an earlier export of the same kind write the regular file at `path`? Asked of its content.
using IsOurFile = std::function<bool(const std::string& path)>;

/// May a file be written at `path`? \error kAlreadyExists  it is there (with `force`: and neither empty nor
/// an earlier export), or is a directory; kNotFound  the directory that it would lie in is not there
Status CheckOutputFile(const std::string& path, bool force, const IsOurFile& is_ours);

/// What the file begins with: up to `bytes` of it; nothing where it cannot be read.
std::string HeadOf(const std::string& path, size_t bytes);

/// A file being made beside the one that it will be. Dropped uncommitted, it is removed.
class OutputFile {
 public:
  /// \error CheckOutputFile's
  static Result<OutputFile> Create(const std::string& path, bool force, const IsOurFile& is_ours);
  OutputFile(OutputFile&& other) noexcept;
  ~OutputFile();

  Status Write(std::span<const std::byte> bytes);
  /// Over bytes that were written already.
  Status WriteAt(uint64_t offset, std::span<const std::byte> bytes);
  uint64_t bytes() const { return bytes_; }  ///< written so far
  const std::string& temporary_path() const { return temporary_; }
  Status Commit();

 private:
  OutputFile(std::string path, std::string temporary, base::UniqueFd fd)
      : path_(std::move(path)), temporary_(std::move(temporary)), fd_(std::move(fd)) {}
  Status Flush();

  std::string path_, temporary_, buffer_;
  base::UniqueFd fd_;
  uint64_t bytes_ = 0;
};

/// A name beside `path` that is nobody's: hidden, and of this process.
std::string TemporaryPathBeside(const std::string& path);

}  // namespace tdbg::ship
