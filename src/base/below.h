// Writing into a directory that others may write to, such as a run.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/file.h"

namespace tdbg::base {

/// The machine's files, to write below `root` with: what leads from there to a file that is written, locked,
/// renamed or removed is opened one directory at a time, and a symbolic link on the way is not followed,
/// whoever made it and whenever (\error kAlreadyExists, which names it). `root` itself is what the user
/// named and may be a link. Reading follows links. New files and directories let in who `root` lets in: those
/// of a directory 0700 are 0600 and 0700, of a 0755 (and a umask that allows it) 0644 and 0755. Paths
/// elsewhere (a journal on another disk) are taken as they are, with the same access.
///
/// Lives for ever. Another file system than the machine's (a test's) is returned as it is.
FileSystem& FilesBelow(FileSystem& files, const std::string& root);

/// Is there no symbolic link between `root` and `path`, as far as it exists? For who writes by other means.
/// \error kAlreadyExists  there is, and which; OK for a path that is not below it
Status CheckBelow(const std::string& root, const std::string& path);

/// Makes the directory of a new run, for its user alone; if `shared`, for whom the umask lets in. Parents as
/// the umask says. What is there stays as it is.
Status CreatePrivateDirectory(const std::string& path, bool shared);

/// How FilesBelow makes files in a directory; 0600 where it cannot be looked at.
mode_t FileModeIn(const std::string& directory);

}  // namespace tdbg::base
