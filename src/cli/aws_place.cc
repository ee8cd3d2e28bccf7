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

std::string EndpointsPath(const std::string& state) { return base::JoinPath(state, "server.json"); }
std::string ServerLockPath(const std::string& state) { return base::JoinPath(state, "server.lock"); }

std::map<std::string, std::string> ClientEnvironment(const service::Endpoints& endpoints,
                                                     const std::string& sdk_configuration) {
  std::map<std::string, std::string> environment = {
      {"AWS_ACCESS_KEY_ID", endpoints.access_key},
      {"AWS_SECRET_ACCESS_KEY", endpoints.secret_key},
      {"AWS_REGION", endpoints.region},
      {"AWS_DEFAULT_REGION", endpoints.region},
      {"AWS_EC2_METADATA_DISABLED", "true"},
      {"AWS_ENDPOINT_URL_SAGEMAKER", endpoints.service},
      {"AWS_ENDPOINT_URL_CLOUDWATCH_LOGS", endpoints.service},
      {"AWS_ENDPOINT_URL_EVENTBRIDGE", endpoints.service},
      {"AWS_ENDPOINT_URL_LAMBDA", endpoints.service},
      {"SAGEMAKER_SUPPRESS_V2_WARNING", "1"},
  };
  if (!endpoints.session_token.empty()) environment["AWS_SESSION_TOKEN"] = endpoints.session_token;
  if (!endpoints.s3.empty()) {
    for (const char* const name : {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL_STS", "AWS_ENDPOINT_URL_IAM"})
      environment[name] = endpoints.s3;
  }
  if (!sdk_configuration.empty()) environment["SAGEMAKER_USER_CONFIG_OVERRIDE"] = sdk_configuration;
  return environment;
}

}  // namespace tdbg::cli
