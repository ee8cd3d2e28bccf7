#include "base/companion.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

#include "base/file.h"
#include "base/process.h"
#include "base/text.h"

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

std::string ReadToEnd(int fd) {
  std::string text;
  char bytes[4096];
  while (true) {
    const ssize_t got = ::read(fd, bytes, sizeof(bytes));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(bytes, static_cast<size_t>(got));
  }
}

std::optional<Result<std::string>> ParseAnswer(std::string_view line) {
  constexpr std::string_view kOk = "ok", kError = "error ";
  if (line == kOk) return Result<std::string>(std::string());
  if (line.starts_with("ok ")) return Result<std::string>(std::string(line.substr(3)));
  if (!line.starts_with(kError)) return std::nullopt;
  const size_t end = line.find(' ', kError.size());
  if (end == std::string_view::npos) return std::nullopt;
  const auto code = ParseInt(line.substr(kError.size(), end - kError.size()));
  if (!code || *code <= 0 || *code > static_cast<int>(Code::kInternal)) return std::nullopt;
  return Result<std::string>(Status(static_cast<Code>(*code), std::string(line.substr(end + 1))));
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
