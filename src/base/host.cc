#include <limits.h>
#include <unistd.h>

#include "base/file.h"
#include "base/process.h"
#include "base/text.h"

namespace tdbg::base {

std::string SelfExecutable() {
  char path[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof(path));
  return length > 0 ? std::string(path, static_cast<size_t>(length)) : std::string();
}

std::string HostName() {
  char name[HOST_NAME_MAX + 1] = "";
  // A truncated name may come without its NUL.
  if (::gethostname(name, sizeof(name) - 1) != 0) return "unknown";
  return name;
}

std::string BootId() {
  const auto id = LocalFileSystem().ReadFile("/proc/sys/kernel/random/boot_id", 256);
  return id.ok() ? std::string(Trim(*id)) : std::string();
}

}  // namespace tdbg::base
