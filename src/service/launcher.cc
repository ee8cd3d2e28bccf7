#include "service/launcher.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/file.h"
#include "base/process.h"
#include "base/redact.h"
#include "service/container.h"

namespace tdbg::service {

std::vector<std::string> LauncherCommand(const JobDocument& job, const JobPaths& paths) {
  const Json& request = job.request;
  const std::string self = base::SelfExecutable();
  std::vector<std::string> command = {self,    "run",    "--detach", "--quiet", "--no-handlers",
                                      "--dir", paths.run};
  const auto add = [&](std::initializer_list<std::string> words) { command.insert(command.end(), words); };
  if (request.contains("DebugHookConfig")) {
    add({"--config", paths.ml + "/input/config/debughookconfig.json"});
    add({"--format", "smdebug:" + paths.debug_output});
  }
  if (request.contains("TensorBoardOutputConfig")) {
    const std::string local =
        request["TensorBoardOutputConfig"].value("LocalPath", "/opt/ml/output/tensorboard");
    add({"--tensorboard", HostPath(paths, local)});
  }
  if (request.contains("CheckpointConfig"))
    add({"--checkpoint-dir",
         HostPath(paths, request["CheckpointConfig"].value("LocalPath", "/opt/ml/checkpoints"))});
  const Json stopping = request.value("StoppingCondition", Json::object());
  if (stopping.contains("MaxRuntimeInSeconds"))
    add({"--max-runtime", fmt::format("{}s", stopping["MaxRuntimeInSeconds"].get<int64_t>())});
  if (request.contains("RetryStrategy"))
    add({"--max-restarts", std::to_string(request["RetryStrategy"]["MaximumRetryAttempts"].get<int64_t>())});
  else if (request.value("EnableManagedSpotTraining", false))
    add({"--max-restarts", "1000", "--restart-on", "preempted"});
  add({"--", self, "serve", "--enter", paths.directory, "--"});
  const auto container = ReadContainer(paths);
  if (container.ok()) command.insert(command.end(), container->command.begin(), container->command.end());
  return command;
}

std::map<std::string, std::string> LauncherEnvironment(const JobDocument& job, const JobPaths& paths) {
  std::map<std::string, std::string> environment = {
      {"TDBG_CONFIG", base::JoinPath(paths.directory, "rules.json")}, {"AWS_REGION", job.region}};
  if (!job.request.contains("DebugHookConfig")) environment.emplace("USE_SMDEBUG", "0");
  // A job's own variables are set once it has entered its container. The secrets among them are told to the
  // launcher, too, since its log masks what it knows.
  const Json variables = job.request.value("Environment", Json::object());
  for (const auto& [name, value] : variables.items()) {
    if (base::NamesASecret(name)) environment[name] = value.get<std::string>();
  }
  return environment;
}

}  // namespace tdbg::service
