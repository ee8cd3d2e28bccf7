#include "cli/aws_place.h"

#include "base/file.h"
#include "jobs/run_directory.h"
#include "jobs/state_directory.h"

namespace tdbg::cli {

Result<std::string> ServiceState(const std::string& given) {
  if (!given.empty()) return jobs::AbsolutePath(given);
  const std::string state = jobs::StateDirectory();
  if (state.empty()) return FailedPrecondition("no home directory to keep jobs in; name one with --state");
  return base::JoinPath(state, "service");
}

std::string EndpointsPath(const std::string& state) { return base::JoinPath(state, service::kServerFile); }
std::string ServerLockPath(const std::string& state) { return base::JoinPath(state, "server.lock"); }

std::map<std::string, std::string> ClientEnvironment(const service::Endpoints& endpoints,
                                                     const std::string& sdk_configuration) {
  std::map<std::string, std::string> environment = service::ClientEnvironment(endpoints);
  if (!sdk_configuration.empty()) environment["SAGEMAKER_USER_CONFIG_OVERRIDE"] = sdk_configuration;
  return environment;
}

}  // namespace tdbg::cli
