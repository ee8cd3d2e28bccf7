#include "jobs/home.h"

#include <stdlib.h>

#include <filesystem>

#include "base/file.h"
#include "base/process.h"

namespace tdbg::jobs {
namespace {

bool HoldsPackage(const std::filesystem::path& directory) {
  std::error_code error;
  return std::filesystem::is_directory(directory / "tdbg", error);
}

}  // namespace

std::string FindHome() {
  const std::filesystem::path executable = base::SelfExecutable();
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

std::map<std::string, std::string> TrainingEnvironment(const std::string& run_directory, int64_t attempt,
                                                       const std::string& home) {
  std::map<std::string, std::string> environment = {{"TDBG_RUN", run_directory},
                                                    {"TDBG_ATTEMPT", std::to_string(attempt)}};
  if (home.empty()) return environment;
  environment["TDBG_HOME"] = home;
  std::string path = base::JoinPath(base::JoinPath(home, "tdbg"), "boot");
  const char* inherited = ::getenv("PYTHONPATH");
  // An empty element would mean the working directory: importable then, and not before.
  if (inherited && *inherited) path = path + ":" + inherited;
  environment["PYTHONPATH"] = path;
  return environment;
}

}  // namespace tdbg::jobs
