// Where a run is kept: s3://bucket/prefix, or file:///directory.
#pragma once

#include <string>
#include <string_view>

#include "tdbg/status.h"

namespace tdbg::storage {

struct Location {
  bool s3 = false;
  std::string bucket;  ///< S3 only
  /// S3: what all keys begin with, without a slash at either end; may be empty. Otherwise an absolute
  /// directory.
  std::string path;

  std::string ToString() const;
  /// What its objects' keys begin with in the store that OpenStore returns.
  std::string KeyPrefix() const { return s3 ? path : path.substr(1); }
};

/// A word for a shell, quoted where it must be.
std::string ShellWord(const std::string& word);

/// \error kInvalidArgument  another scheme, no bucket, an impossible name of a bucket
Result<Location> ParseLocation(std::string_view text);

/// Key of `name` below a prefix: "prefix/name", or "name" if the prefix is empty.
std::string KeyBelow(const std::string& prefix, const std::string& name);

/// Whether a key of a bucket may become a path below a directory of ours: it is relative and has no empty,
/// "." or
/// ".." component and no NUL. Keys of a bucket are not trusted.
bool IsSafeName(std::string_view name);

}  // namespace tdbg::storage
