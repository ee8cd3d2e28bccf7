#include "base/companion.h"

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

#include "base/file.h"
#include "base/process.h"

namespace tdbg::base {
namespace {

bool HoldsPackage(const std::filesystem::path& directory) {
  std::error_code error;
  return std::filesystem::is_directory(directory / "tdbg", error);
}

}  // namespace

std::string FindCompanion(const std::string& name) {
  std::vector<std::string> candidates;
  if (const char* home = ::getenv("TDBG_HOME"); home && *home) {
    candidates.push_back(JoinPath(home, name));
    candidates.push_back(JoinPath(JoinPath(home, "bin"), name));
  }
  const std::string self = SelfExecutable();
  if (const size_t slash = self.rfind('/'); slash != std::string::npos) {
    candidates.push_back(JoinPath(self.substr(0, slash), name));
  }
  for (const std::string& candidate : candidates) {
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return name;
}

std::string FindPythonHome() {
  const std::filesystem::path executable = SelfExecutable();
  const std::filesystem::path bin = executable.parent_path();
  if (bin.filename() == "bin" && bin.parent_path().filename() == "tdbg") {
    const std::filesystem::path site_packages = bin.parent_path().parent_path();
    if (HoldsPackage(site_packages)) return site_packages.string();
  }
  if (const char* home = ::getenv("TDBG_HOME"); home && *home) return home;
#ifdef TDBG_SOURCE_HOME
  if (HoldsPackage(TDBG_SOURCE_HOME)) return TDBG_SOURCE_HOME;
#endif
  return {};
}

}  // namespace tdbg::base
