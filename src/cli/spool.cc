#include "cli/spool.h"

#include <errno.h>
#include <stdio.h>

#include <filesystem>

#include "base/file.h"
#include "base/posix.h"
#include "base/sha256.h"
#include "base/text.h"
#include "jobs/run_directory.h"
#include "jobs/state_directory.h"

namespace tdbg::cli {
namespace {

constexpr const char* kFolder = "spool";
constexpr const char* kUrlFile = "url";
constexpr const char* kAside = "-behind-";  // between the name of a set-aside spool's folder and its number

std::string FolderOf(const std::string& directory) { return directory.substr(0, directory.rfind('/')); }

}  // namespace

std::string NormalUrl(std::string url) {
  while (url.size() > 5 && url.ends_with('/')) url.pop_back();
  return url;
}

Result<std::string> SpoolOf(const std::string& url) {
  const std::string state = jobs::StateDirectory();
  if (state.empty())
    return FailedPrecondition(url + ": no home to keep the run in meanwhile; set XDG_STATE_HOME");
  const std::string normal = NormalUrl(url);
  const std::string folder =
      base::JoinPath(base::JoinPath(state, kFolder), base::HexOf(base::Sha256(normal)).substr(0, 16));
  const std::string name = base::BaseName(normal);
  return jobs::AbsolutePath(
      base::JoinPath(folder, name.empty() || name == "." || name == ".." ? "run" : name));
}

void MarkSpool(const std::string& directory, const std::string& url) {
  (void)base::LocalFileSystem().WriteFileAtomic(base::JoinPath(FolderOf(directory), kUrlFile),
                                                NormalUrl(url) + "\n");
}

std::string UrlOfSpool(const std::string& path) {
  const std::string state = jobs::StateDirectory();
  const std::string root = jobs::AbsolutePath(base::JoinPath(state, kFolder)) + "/";
  if (state.empty() || !path.starts_with(root)) return "";
  const size_t name = path.find('/', root.size());
  if (name == std::string::npos) return "";
  const std::string directory = path.substr(0, path.find('/', name + 1));
  const auto text = base::LocalFileSystem().ReadFile(base::JoinPath(FolderOf(directory), kUrlFile), 1u << 16);
  if (!text.ok()) return "";
  const std::string url(base::Trim(*text));
  const auto spool = SpoolOf(url);
  return spool.ok() && *spool == directory ? url + path.substr(directory.size()) : "";
}

Result<std::string> SetSpoolAside(const std::string& directory) {
  for (int number = 1;; ++number) {
    const std::string folder = FolderOf(directory) + kAside + std::to_string(number);
    const std::string aside = base::JoinPath(folder, base::BaseName(directory));
    if (base::LocalFileSystem().Exists(aside)) continue;
    TDBG_RETURN_IF_ERROR(base::LocalFileSystem().CreateDirectories(folder));
    if (::rename(directory.c_str(), aside.c_str()) != 0)
      return base::PathError(errno, "cannot move out of the way", directory);
    return aside;
  }
}

void RemoveSpool(const std::string& directory) {
  std::error_code error;
  std::filesystem::remove_all(directory, error);
  std::filesystem::remove(base::JoinPath(FolderOf(directory), kUrlFile), error);
  std::filesystem::remove(FolderOf(directory), error);  // if nothing else is in it
}

}  // namespace tdbg::cli
