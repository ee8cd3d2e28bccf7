// What a training container of SageMaker finds: files below /opt/ml, variables, the command.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "service/job_files.h"
#include "tdbg/status.h"

namespace tdbg::service {

/// container.json: what is started once everything lies where it belongs.
struct Container {
  std::vector<std::string> command;
  std::string directory;
  std::map<std::string, std::string> environment;
  std::string ml;            ///< the directory that is /opt/ml
  bool private_root = true;  ///< false: it is not, and everything says its own path instead
  std::string notice;        ///< the first line of the training's log; empty: none
};
Result<Container> ReadContainer(const JobPaths& paths);
Status WriteContainer(const JobPaths& paths, const Container& container);

/// The built-in algorithm that a request trains with, by its image: "xgboost"; empty: a script, a command, or
/// nothing.
std::string AlgorithmOf(const Json& request);

/// Writes input/config and makes the directories. \param root  "/opt/ml", or JobPaths::ml where nothing can
/// be mounted there: what the training is told.
Status LayOutContainer(const JobDocument& job, const JobPaths& paths, const std::string& root);
/// The script and its arguments as the training toolkit would start it, or the built-in algorithm. \pre
/// LayOutContainer, the code is unpacked
/// \error kInvalidArgument  nothing to start: for FailureReason
Result<Container> PlanContainer(const JobDocument& job, const JobPaths& paths, const std::string& root);

/// How many GPUs a training is told of, which uses none otherwise. \param devices  /dev \param visible
/// CUDA_VISIBLE_DEVICES, or null
int CountGpus(const std::string& devices, const char* visible);

/// A path of the request (below /opt/ml) on this machine.
std::string HostPath(const JobPaths& paths, const std::string& container_path);

/// Script mode's arguments: keys in order, "--key value", as the training toolkit writes them.
std::vector<std::string> ScriptArguments(const nlohmann::json& hyperparameters);
/// As Python's str() writes a value.
std::string PythonText(const nlohmann::json& value);

}  // namespace tdbg::service
