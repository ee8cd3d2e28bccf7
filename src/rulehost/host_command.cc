#include "rulehost/host_command.h"

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

#include "base/companion.h"
#include "base/durations.h"
#include "base/file.h"

namespace tdbg::rulehost {
namespace {

// <prefix>/lib/python3.11/site-packages is home: <prefix>/bin/python3 is the interpreter that it was made
// for.
std::string InterpreterOf(const std::filesystem::path& home) {
  const std::filesystem::path prefix = home.parent_path().parent_path().parent_path();
  for (const char* name : {"python3", "python"}) {
    const std::filesystem::path candidate = prefix / "bin" / name;
    if (home.filename() == "site-packages" && ::access(candidate.c_str(), X_OK) == 0)
      return candidate.string();
  }
  return {};
}

}  // namespace

std::string PythonInterpreter() {
  if (const char* python = ::getenv("TDBG_PYTHON"); python && *python) return python;
  const std::string of_home = InterpreterOf(base::FindPythonHome());
  return of_home.empty() ? "python3" : of_home;
}

Result<HostOptions> HostFor(const plan::RuleConfig& config) {
  HostOptions options;
  options.start_millis =
      base::MillisOfSeconds(config.limit_start_seconds.value_or(options.start_millis / 1000));
  options.answer_millis = base::MillisOfSeconds(config.limit_seconds.value_or(options.answer_millis / 1000));
  options.memory_bytes = config.limit_memory.value_or(options.memory_bytes);
#ifdef __SANITIZE_ADDRESS__
  options.memory_bytes = 0;  // the sanitizer's shadow is terabytes of private memory that nobody touches
#endif
  // One thread: a rule runs beside a training, whose cores it must not fight for.
  for (const char* name : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"}) {
    if (!::getenv(name)) options.environment[name] = "1";
  }
  if (config.file.ends_with(".so")) {
    options.command = {base::FindCompanion("tdbg-rule-host")};
    return options;
  }
  const std::string home = base::FindPythonHome();
  if (home.empty()) {
    return InvalidArgument(
        "a rule in Python needs tdbg's Python package, which cannot be found; set TDBG_HOME to the directory "
        "that "
        "holds it, or install the wheel");
  }
  // -P and no PYTHONPATH of a training's: what the rule imports is its own business (host.py adds its
  // folder).
  options.command = {PythonInterpreter(), "-u", base::JoinPath(home, "tdbg/rules/host.py")};
  options.environment["TDBG_HOME"] = home;
  options.environment["PYTHONFAULTHANDLER"] = "1";
  return options;
}

}  // namespace tdbg::rulehost
