#include "service/private_root.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "base/posix.h"

namespace tdbg::service {
namespace {

namespace fs = std::filesystem;

Status Failed(const char* what) {
  return Unavailable(fmt::format("no private /opt/ml: {}", ErrnoStatus(errno, what).message()));
}

Status WriteTo(const char* path, const std::string& text) {
  const base::UniqueFd file = base::OpenFd(path, O_WRONLY);
  if (!file.ok() || ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return Failed(path);
  return OkStatus();
}

// /opt as it is, with an `ml` in it: a file system in memory takes its place, and everything that was there
// is mounted into it. Only where there is no /opt/ml to mount over, which a user cannot make.
Status AddMlToOpt() {
  std::error_code error;
  const fs::path old = "/opt";
  if (!fs::is_directory(old, error)) return Unavailable("no private /opt/ml: there is no /opt");
  // A way to what is about to be covered.
  const base::UniqueFd covered = base::OpenFd("/opt", O_PATH | O_DIRECTORY);
  if (!covered.ok()) return Failed("open /opt");
  const std::string below = fmt::format("/proc/self/fd/{}/", covered.get());
  if (::mount("tmpfs", "/opt", "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=755") != 0)
    return Failed("mount /opt");
  for (const fs::directory_entry& entry : fs::directory_iterator(below, error)) {
    const std::string name = entry.path().filename(), to = "/opt/" + name;
    if (name == "ml") continue;
    if (entry.is_symlink(error)) {
      fs::create_symlink(fs::read_symlink(entry.path(), error), to, error);
      continue;
    }
    if (entry.is_directory(error))
      (void)::mkdir(to.c_str(), 0755);
    else
      ::close(::open(to.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
    if (::mount((below + name).c_str(), to.c_str(), nullptr, MS_BIND | MS_REC, nullptr) != 0)
      return Failed("mount");
  }
  if (::mkdir("/opt/ml", 0755) != 0 && errno != EEXIST) return Failed("mkdir /opt/ml");
  return OkStatus();
}

}  // namespace

Status MakeRootPrivate(const std::string& directory) {
  const uid_t user = ::getuid();
  const gid_t group = ::getgid();
  if (::unshare(CLONE_NEWNS) != 0) {
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return Failed("unshare");
    TDBG_RETURN_IF_ERROR(WriteTo("/proc/self/setgroups", "deny"));
    TDBG_RETURN_IF_ERROR(WriteTo("/proc/self/uid_map", fmt::format("{} {} 1", user, user)));
    TDBG_RETURN_IF_ERROR(WriteTo("/proc/self/gid_map", fmt::format("{} {} 1", group, group)));
  }
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return Failed("mount /");
  // The bind mount is made by the directory itself: below /opt its path may be covered in a moment.
  const base::UniqueFd ml = base::OpenFd(directory.c_str(), O_PATH | O_DIRECTORY);
  if (!ml.ok()) return Failed(directory.c_str());
  std::error_code error;
  if (!std::filesystem::is_directory("/opt/ml", error)) TDBG_RETURN_IF_ERROR(AddMlToOpt());
  if (::mount(fmt::format("/proc/self/fd/{}", ml.get()).c_str(), "/opt/ml", nullptr, MS_BIND | MS_REC,
              nullptr) != 0)
    return Failed("mount /opt/ml");
  return OkStatus();
}

bool CanMakeRootPrivate(const std::string& directory) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(MakeRootPrivate(directory).ok() ? 0 : 1);
  if (child < 0) return false;
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace tdbg::service
