#include "jobs/home.h"

#include <stdlib.h>

#include "base/file.h"

namespace tdbg::jobs {
std::map<std::string, std::string> TrainingEnvironment(const std::string& run_directory, int64_t attempt,
                                                       const std::string& home) {
  std::map<std::string, std::string> environment = {{"TDBG_RUN", run_directory},
                                                    {"TDBG_ATTEMPT", std::to_string(attempt)}};
  if (home.empty()) return environment;
  environment["TDBG_HOME"] = home;
  std::string path = base::JoinPath(base::JoinPath(home, "tdbg"), "boot");
  const char* inherited = ::getenv("PYTHONPATH");
  // An empty element of the path would add the working directory, which the user did not ask for.
  if (inherited && *inherited) path = path + ":" + inherited;
  environment["PYTHONPATH"] = path;
  return environment;
}

}  // namespace tdbg::jobs
