#include "base/below.h"

#include <errno.h>
#include <sys/stat.h>

#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/spot.h"

namespace tdbg::base {
namespace {

constexpr mode_t kOthers = 077;

bool IsBelow(const std::string& root, const std::string& path) {
  return !root.empty() && path.size() > root.size() + 1 && path.starts_with(root) && path[root.size()] == '/';
}

std::vector<std::string> PartsBelow(const std::string& root, const std::string& path) {
  std::vector<std::string> parts;
  std::string_view rest = std::string_view(path).substr(root.size());
  while (!rest.empty()) {
    const size_t slash = rest.find('/');
    const std::string_view part = rest.substr(0, slash);
    if (!part.empty() && part != ".") parts.emplace_back(part);
    rest.remove_prefix(slash == std::string_view::npos ? rest.size() : slash + 1);
  }
  return parts;
}

Result<UniqueFd> Enter(int directory, const std::string& name, const std::string& path) {
  // Opened to be looked at, not to be listed: permission to enter the directory is enough.
  UniqueFd fd = OpenFdAt(directory, name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW);
  if (fd.ok()) return fd;
  const int error = errno;
  struct stat info;
  const bool link =
      ::fstatat(directory, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(info.st_mode);
  return SpotError(link ? ELOOP : error, "cannot enter", path);
}

}  // namespace

std::string WithoutSlash(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

Status SpotError(int error_number, const std::string& what, const std::string& path) {
  if (error_number != ELOOP) return PathError(error_number, what, path);
  return {Code::kAlreadyExists,
          what + ": it is a symbolic link, or lies behind one, and nothing is written through it: " + path};
}

Result<UniqueFd> OpenAt(const Spot& spot, int flags, const char* what, const std::string& path) {
  UniqueFd fd = OpenFdAt(spot.at(), spot.name.c_str(), flags | O_NOFOLLOW, spot.file_mode);
  if (!fd.ok()) return SpotError(errno, what, path);
  return fd;
}

Result<LastingFd> OpenLastingAt(const Spot& spot, int flags, const char* what, const std::string& path) {
  LastingFd fd = LastingFd::OpenAt(spot.at(), spot.name.c_str(), flags | O_NOFOLLOW, spot.file_mode);
  if (!fd.ok()) return SpotError(errno, what, path);
  return fd;
}

Result<Spot> Ground::Find(const std::string& path, bool create) const {
  Spot spot;
  spot.name = path;
  if (root.empty()) return spot;
  UniqueFd directory = OpenFd(root.c_str(), O_PATH | O_DIRECTORY);
  if (!directory.ok()) return PathError(errno, "cannot enter", root);
  struct stat info;
  if (::fstat(directory.get(), &info) != 0) return PathError(errno, "cannot look at", root);
  spot.directory_mode = 0700 | (info.st_mode & kOthers);
  spot.file_mode = spot.directory_mode & 0666;
  if (!IsBelow(root, path)) return spot;
  const std::vector<std::string> parts = PartsBelow(root, path);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i] == "..") return InvalidArgument("a path that leads upwards: " + path);
    if (i + 1 == parts.size()) break;
    if (create && ::mkdirat(directory.get(), parts[i].c_str(), spot.directory_mode) != 0 && errno != EEXIST)
      return SpotError(errno, "cannot create the directory", path);
    TDBG_ASSIGN_OR_RETURN(directory, Enter(directory.get(), parts[i], path));
  }
  spot.directory = std::move(directory);
  spot.name = parts.empty() ? "." : parts.back();
  return spot;
}

Status CheckBelow(const std::string& given, const std::string& path) {
  const std::string root = WithoutSlash(given);
  if (!IsBelow(root, path)) return OkStatus();
  const Result<Spot> spot = Ground{root}.Find(path);
  if (!spot.ok()) return spot.status().code() == Code::kNotFound ? OkStatus() : spot.status();
  struct stat info;
  if (::fstatat(spot->at(), spot->name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISLNK(info.st_mode))
    return OkStatus();
  return SpotError(ELOOP, "cannot write", path);
}

Status CreatePrivateDirectory(const std::string& path, bool shared) {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  if (!parent.empty()) std::filesystem::create_directories(parent, error);
  if (error) return PathError(error.value(), "cannot create the directory", parent.string());
  if (::mkdir(path.c_str(), shared ? 0777 : 0700) == 0) return OkStatus();
  const int refused = errno;
  if (std::filesystem::is_directory(path, error)) return OkStatus();
  return PathError(refused, "cannot create the directory", path);
}

mode_t FileModeIn(const std::string& directory) {
  struct stat info;
  return ::stat(directory.c_str(), &info) == 0 ? 0600 | (info.st_mode & kOthers & 0666) : 0600;
}

}  // namespace tdbg::base
