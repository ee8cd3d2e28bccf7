#include "jobs/once_file.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include <random>

#include "base/below.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/posix.h"

namespace tdbg::jobs {

Result<bool> MakeOnce(const std::string& root, const std::string& path, std::string_view contents) {
  base::FileSystem& files = base::FilesBelow(base::LocalFileSystem(), root);
  std::random_device device;
  const uint64_t random = (static_cast<uint64_t>(device()) << 32) | device();
  const std::string temporary = path + "." + base::Hex64(random) + ".tmp";
  TDBG_RETURN_IF_ERROR(files.WriteFileAtomic(temporary, contents));
  TDBG_RETURN_IF_ERROR(base::CheckBelow(root, path));
  const int error = ::link(temporary.c_str(), path.c_str()) == 0 ? 0 : errno;
  // A server's answer may have been lost and the request repeated: then the link says that it is there, and
  // is ours.
  struct stat info;
  const bool ours = error == 0 || (::stat(temporary.c_str(), &info) == 0 && info.st_nlink == 2);
  (void)files.Remove(temporary);
  if (ours) return true;
  if (error == EEXIST) return false;
  return base::PathError(error, "cannot make (nodes need a file system with hard links)", path);
}

}  // namespace tdbg::jobs
