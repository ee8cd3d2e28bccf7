// Where a writing call acts. For the pieces of LocalFileSystem only.
#pragma once

#include <fcntl.h>
#include <sys/types.h>

#include <string>

#include "base/posix.h"
#include "tdbg/status.h"

namespace tdbg::base {

/// `name`, relative to a directory that was reached without following a link; or any path.
struct Spot {
  UniqueFd directory;
  std::string name;
  mode_t file_mode = 0666, directory_mode = 0777;
  int at() const { return directory.ok() ? directory.get() : AT_FDCWD; }
};

/// The directory below which no link is followed. An empty root: links are followed everywhere.
struct Ground {
  std::string root;
  /// \param create  make the directories on the way
  Result<Spot> Find(const std::string& path, bool create = false) const;
};

/// O_NOFOLLOW and O_CLOEXEC are added. \error the errno, with a sentence for ELOOP
Result<UniqueFd> OpenAt(const Spot& spot, int flags, const char* what, const std::string& path);
/// The same for a descriptor that stays open for long in a training process, which may close it.
Result<LastingFd> OpenLastingAt(const Spot& spot, int flags, const char* what, const std::string& path);
/// A root as Ground wants it.
std::string WithoutSlash(std::string path);
/// PathError, but of a link that was not followed.
Status SpotError(int error_number, const std::string& what, const std::string& path);

}  // namespace tdbg::base
