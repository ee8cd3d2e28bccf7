#include "cli/probe.h"

#include <fmt/format.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/posix.h"
#include "base/text.h"
#include "cli/run_path.h"

namespace tdbg::cli {
namespace {

// Versions from metadata: importing torch takes seconds and tells no more. A framework is asked for by what
// one imports, since several distributions bring the same one (tensorflow, tensorflow-cpu).
constexpr char kPythonProbe[] = R"(
import json, sys
from importlib import metadata
def version(name):
    try:
        return metadata.version(name)
    except Exception:
        return None
try:
    brought_by = metadata.packages_distributions()
except Exception:
    brought_by = {}
FRAMEWORKS = ("torch", "keras", "tensorflow", "mxnet", "xgboost", "lightgbm", "transformers", "accelerate", "lightning")
found = {name: version((brought_by.get(name) or [name])[0]) for name in FRAMEWORKS}
answer = {"executable": sys.executable, "version": sys.version.split()[0],
          "frameworks": {name: number for name, number in found.items() if number}}
def load(home):
    # As boot/sitecustomize.py does: what lies beside the package is not this Python's, and must not look so.
    from importlib.util import module_from_spec, spec_from_file_location
    spec = spec_from_file_location("tdbg", home + "/tdbg/__init__.py", submodule_search_locations=[home + "/tdbg"])
    sys.modules["tdbg"] = package = module_from_spec(spec)
    spec.loader.exec_module(package)
for name in ("_capture", "_trial"):
    try:
        if sys.argv[1] and "tdbg" not in sys.modules:
            load(sys.argv[1])
        __import__("tdbg." + name)
        answer[name] = "loads"
    except Exception as error:
        answer[name] = type(error).__name__ + ": " + str(error)
print("tdbg-probe " + json.dumps(answer))
)";

constexpr uint64_t kProbeBytes = 1u << 20;

}  // namespace

Result<Json> ProbePython(const std::string& python, const std::string& home) {
  const std::string command = "exec " + SingleQuoted(python) + " -c " + SingleQuoted(kPythonProbe) + " " +
                              SingleQuoted(home) + " 2>/dev/null";
  FILE* const pipe = ::popen(command.c_str(), "re");
  if (!pipe) return Unavailable("cannot start " + python);
  std::string output;
  char bytes[1024];
  while (const size_t got = ::fread(bytes, 1, sizeof(bytes), pipe)) output.append(bytes, got);
  const int status = ::pclose(pipe);
  const size_t begin = output.find("tdbg-probe ");
  if (begin == std::string::npos) {
    return status == 127 << 8 ? NotFound("no such command: " + python)
                              : Unavailable(python + " gave no answer");
  }
  Json answer =
      Json::parse(output.substr(begin + sizeof("tdbg-probe ") - 1), nullptr, /*allow_exceptions=*/false);
  if (!answer.is_object()) return Unavailable(python + " gave no answer");
  return answer;
}

Status ProbeMapping(const std::string& directory) {
  const std::string path = base::JoinPath(directory, fmt::format(".tdbg-probe-{}", ::getpid()));
  base::FileSystem& files = base::LocalFileSystem();
  auto mapped = files.CreateMapped(path, kProbeBytes);
  if (!mapped.ok()) return mapped.status();
  (*mapped)->bytes()[kProbeBytes - 1] = std::byte{1};
  mapped->reset();
  return files.Remove(path);
}

std::string FileSystemType(const std::string& path) {
  struct statfs info;
  if (::statfs(path.c_str(), &info) != 0) return "unknown";
  switch (static_cast<uint64_t>(info.f_type)) {
    case 0xEF53:
      return "ext4";
    case 0x58465342:
      return "xfs";
    case 0x9123683E:
      return "btrfs";
    case 0x01021994:
      return "tmpfs";
    case 0x794C7630:
      return "overlayfs";
    case 0x2FC12FC1:
      return "zfs";
    case 0xF2F52010:
      return "f2fs";
    case 0x6969:
      return "nfs";
    case 0xFF534D42:
      return "cifs";
    case 0xFE534D42:
      return "smb2";
    case 0x65735546:
      return "fuse";
    case 0x0BD00BD0:
      return "lustre";
    case 0x47504653:
      return "gpfs";
    case 0x00C36400:
      return "ceph";
    case 0x01021997:
      return "9p";
    default:
      return fmt::format("0x{:x}", static_cast<uint64_t>(info.f_type));
  }
}

bool IsLocalFileSystem(const std::string& type) {
  for (const std::string_view remote :
       {"nfs", "cifs", "smb2", "fuse", "lustre", "gpfs", "ceph", "9p", "unknown"}) {
    if (type == remote) return false;
  }
  return true;
}

std::string VectorInstructions() {
  const auto text = base::LocalFileSystem().ReadFile("/proc/cpuinfo");
  if (!text.ok()) return "unknown";
  // Widest first; the names are the kernel's, of x86 and of ARM.
  for (const char* flag : {"avx512f", "avx2", "sse4_1", "ssse3", "sve", "asimd"}) {
    for (const std::string_view end : {" ", "\n"}) {
      if (text->find(fmt::format(" {}{}", flag, end)) != std::string::npos) return flag;
    }
  }
  return "none that the statistics use";
}

int64_t InotifyWatches() {
  const base::UniqueFd fd(::inotify_init1(IN_CLOEXEC));
  if (!fd.ok()) return 0;
  const auto text = base::LocalFileSystem().ReadFile("/proc/sys/fs/inotify/max_user_watches", 64);
  if (!text.ok()) return 0;
  return base::ParseInt(base::Trim(*text)).value_or(0);
}

}  // namespace tdbg::cli
