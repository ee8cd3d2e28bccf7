#include "service/container.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "base/companion.h"
#include "base/file.h"
#include "base/process.h"
#include "base/text.h"
#include "service/describe.h"
#include "service/images.h"
#include "service/requests.h"

namespace tdbg::service {
namespace {

using nlohmann::json;

constexpr const char* kMl = "/opt/ml";

// What the toolkit keeps for itself and no script gets.
bool IsReserved(const std::string& name) {
  return name.starts_with("sagemaker_") || name == "default_user_module_name" ||
         name == "_tuning_objective_metric";
}

// Sorted keys, as compact as the toolkit's; json, and not ordered_json, sorts.
std::string Compact(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

std::string Upper(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  return text;
}

std::string Quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\\' || c == '\'') out += '\\';
    out += c;
  }
  return out + "'";
}

std::string PythonRepr(const json& value) {
  if (value.is_string()) return Quoted(value.get<std::string>());
  if (value.is_null()) return "None";
  if (value.is_array() || value.is_object()) {
    std::string out;
    for (const auto& [key, item] : value.items()) {
      if (!out.empty()) out += ", ";
      out += value.is_object() ? Quoted(key) + ": " + PythonRepr(item) : PythonRepr(item);
    }
    return value.is_array() ? "[" + out + "]" : "{" + out + "}";
  }
  return PythonText(value);
}

std::string AtRoot(const std::string& root, const std::string& container_path) {
  return root + container_path.substr(std::string_view(kMl).size());
}

Status Write(const std::string& directory, const char* name, const Json& value) {
  return base::LocalFileSystem().WriteFileAtomic(base::JoinPath(directory, name),
                                                 value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

json Decoded(const Json& request) {
  json decoded = json::object();
  const Json parameters = request.value("HyperParameters", Json::object());
  for (const auto& [name, value] : parameters.items())
    decoded[name] = HyperParameter(value.get<std::string>());
  return decoded;
}

std::string TextParameter(const json& parameters, const char* name) {
  const auto it = parameters.find(name);
  return it == parameters.end() ? std::string() : PythonText(*it);
}

std::vector<std::string> Channels(const Json& request) {
  std::vector<std::string> names;
  for (const Json& channel : request.value("InputDataConfig", Json::array()))
    names.push_back(channel["ChannelName"].get<std::string>());
  std::ranges::sort(names);
  return names;
}

json ResourceConfig(const Json& request) {
  const std::string type =
      request.value("/ResourceConfig/InstanceType"_json_pointer, std::string("ml.m5.xlarge"));
  return {{"current_host", "algo-1"},
          {"current_instance_type", type},
          {"current_group_name", "homogeneousCluster"},
          {"hosts", {"algo-1"}},
          {"instance_groups", json::array({{{"instance_group_name", "homogeneousCluster"},
                                            {"instance_type", type},
                                            {"hosts", {"algo-1"}}}})},
          {"network_interface_name", "eth0"}};
}

json InputConfig(const Json& request) {
  json channels = json::object();
  for (const Json& channel : request.value("InputDataConfig", Json::array())) {
    json& one = channels[channel["ChannelName"].get<std::string>()];
    one = {{"TrainingInputMode", "File"},
           {"S3DistributionType", "FullyReplicated"},
           {"RecordWrapperType", "None"}};
    if (channel.contains("ContentType")) one["ContentType"] = channel["ContentType"].get<std::string>();
  }
  return channels;
}

void AddScriptVariables(const JobDocument& job, const std::string& root, const json& parameters,
                        const std::string& program, const std::vector<std::string>& arguments,
                        std::map<std::string, std::string>* environment) {
  json script = json::object(), framework = json::object();
  for (const auto& [name, value] : parameters.items()) (IsReserved(name) ? framework : script)[name] = value;
  const std::string module = program.substr(0, program.rfind('.'));
  const std::string level = parameters.contains("sagemaker_container_log_level")
                                ? PythonText(parameters["sagemaker_container_log_level"])
                                : "20";
  const json resources = ResourceConfig(job.request), inputs = InputConfig(job.request);
  const std::vector<std::string> channels = Channels(job.request);
  const unsigned cpus = std::max(1u, std::thread::hardware_concurrency());
  const int gpus = CountGpus("/dev", ::getenv("CUDA_VISIBLE_DEVICES"));
  auto& set = *environment;
  set["SM_HOSTS"] = Compact(resources["hosts"]);
  set["SM_NETWORK_INTERFACE_NAME"] = "eth0";
  set["SM_HPS"] = Compact(script);
  for (const auto& [name, value] : script.items())
    set["SM_HP_" + Upper(name)] = value.is_array() || value.is_object() ? Compact(value) : PythonText(value);
  set["SM_USER_ENTRY_POINT"] = program;
  set["SM_USER_ARGS"] = Compact(arguments);
  set["SM_FRAMEWORK_PARAMS"] = Compact(framework);
  set["SM_FRAMEWORK_MODULE"] = "";
  set["SM_RESOURCE_CONFIG"] = Compact(resources);
  set["SM_INPUT_DATA_CONFIG"] = Compact(inputs);
  set["SM_INPUT_DIR"] = root + "/input";
  set["SM_INPUT_CONFIG_DIR"] = root + "/input/config";
  set["SM_OUTPUT_DIR"] = root + "/output";
  set["SM_OUTPUT_DATA_DIR"] = root + "/output/data";
  set["SM_OUTPUT_INTERMEDIATE_DIR"] = root + "/output/intermediate";
  set["SM_MODEL_DIR"] = root + "/model";
  set["SM_MODULE_DIR"] = parameters.contains("sagemaker_submit_directory")
                             ? PythonText(parameters["sagemaker_submit_directory"])
                             : root + "/code";
  set["SM_MODULE_NAME"] = module;
  set["SM_CHANNELS"] = Compact(channels);
  json folders = json::object();
  for (const std::string& channel : channels) {
    folders[channel] = root + "/input/data/" + channel;
    set["SM_CHANNEL_" + Upper(channel)] = root + "/input/data/" + channel;
  }
  set["SM_CURRENT_HOST"] = "algo-1";
  set["SM_CURRENT_INSTANCE_TYPE"] = resources["current_instance_type"].get<std::string>();
  set["SM_CURRENT_INSTANCE_GROUP"] = "homogeneousCluster";
  set["SM_NUM_CPUS"] = std::to_string(cpus);
  set["SM_NUM_GPUS"] = std::to_string(gpus);
  set["SM_NUM_NEURONS"] = "0";
  set["SM_LOG_LEVEL"] = level;
  set["SM_TRAINING_ENV"] = Compact({{"channel_input_dirs", folders},
                                    {"current_host", "algo-1"},
                                    {"hosts", resources["hosts"]},
                                    {"hyperparameters", script},
                                    {"input_config_dir", root + "/input/config"},
                                    {"input_data_config", inputs},
                                    {"input_dir", root + "/input"},
                                    {"job_name", job.name()},
                                    {"log_level", level},
                                    {"model_dir", root + "/model"},
                                    {"module_name", module},
                                    {"num_cpus", cpus},
                                    {"num_gpus", gpus},
                                    {"output_data_dir", root + "/output/data"},
                                    {"output_dir", root + "/output"},
                                    {"resource_config", resources},
                                    {"user_entry_point", program}});
  set["SAGEMAKER_JOB_NAME"] = job.name();
  set["SAGEMAKER_REGION"] = job.region;
  set["CURRENT_HOST"] = "algo-1";
}

}  // namespace

std::string AlgorithmOf(const Json& request) {
  const Json& algorithm = request["AlgorithmSpecification"];
  const json parameters = Decoded(request);
  if (algorithm.contains("ContainerEntrypoint") || !TextParameter(parameters, "sagemaker_program").empty())
    return {};
  const std::string repository = SplitImage(algorithm["TrainingImage"]).repository;
  return repository == "sagemaker-xgboost" || repository == "xgboost" ? "xgboost" : std::string();
}

int CountGpus(const std::string& devices, const char* visible) {
  int there = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(devices, error)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("nvidia") && base::ParseInt(std::string_view(name).substr(6))) ++there;
  }
  if (visible == nullptr) return there;
  // As CUDA reads it: what comes after an entry that is none does not count.
  int named = 0;
  for (const std::string& one : base::SplitList(visible)) {
    const auto index = base::ParseInt(one);
    if (index ? *index < 0 || *index >= there : !one.starts_with("GPU-") && !one.starts_with("MIG-")) break;
    ++named;
  }
  return std::min(there, named);
}

std::string HostPath(const JobPaths& paths, const std::string& container_path) {
  return AtRoot(paths.ml, container_path);
}

std::string PythonText(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (value.is_null()) return "";
  if (value.is_number_float()) {
    std::string text = fmt::format("{}", value.get<double>());
    if (text.find_first_of(".en") == std::string::npos) text += ".0";
    return text;
  }
  if (value.is_number()) return value.dump();
  return PythonRepr(value);
}

std::vector<std::string> ScriptArguments(const json& hyperparameters) {
  std::vector<std::string> arguments;
  for (const auto& [name, value] : hyperparameters.items()) {
    if (IsReserved(name)) continue;
    arguments.push_back((name.size() == 1 ? "-" : "--") + name);
    if (value.is_object()) {
      std::string text;
      for (const auto& [key, item] : value.items())
        text += (text.empty() ? "" : ",") + key + "=" + PythonText(item);
      arguments.push_back(text);
    } else {
      arguments.push_back(PythonText(value));
    }
  }
  return arguments;
}

Result<Container> ReadContainer(const JobPaths& paths) {
  TDBG_ASSIGN_OR_RETURN(const std::string text, base::LocalFileSystem().ReadFile(paths.container));
  const json value = json::parse(text, nullptr, false);
  Container container;
  try {
    value.at("command").get_to(container.command);
    value.at("directory").get_to(container.directory);
    value.at("environment").get_to(container.environment);
    value.at("ml").get_to(container.ml);
    value.at("private_root").get_to(container.private_root);
    container.notice = value.value("notice", "");
  } catch (const json::exception& wrong) {
    return DataLoss(paths.container + ": " + wrong.what());
  }
  return container;
}

Status WriteContainer(const JobPaths& paths, const Container& container) {
  return Write(paths.directory, "container.json",
               {{"command", container.command},
                {"directory", container.directory},
                {"environment", container.environment},
                {"ml", container.ml},
                {"private_root", container.private_root},
                {"notice", container.notice}});
}

Status LayOutContainer(const JobDocument& job, const JobPaths& paths, const std::string& root) {
  base::FileSystem& files = base::LocalFileSystem();
  for (const char* const below :
       {"/input/config", "/input/data", "/code", "/model", "/output/data", "/output/intermediate",
        "/output/tensors", "/output/tensorboard", "/checkpoints"})
    TDBG_RETURN_IF_ERROR(files.CreateDirectories(paths.ml + below));
  const Json& request = job.request;
  const std::string config = paths.ml + "/input/config", name = job.name();
  TDBG_RETURN_IF_ERROR(
      Write(config, "hyperparameters.json", request.value("HyperParameters", Json::object())));
  TDBG_RETURN_IF_ERROR(Write(config, "inputdataconfig.json", Json(InputConfig(request))));
  TDBG_RETURN_IF_ERROR(Write(config, "resourceconfig.json", Json(ResourceConfig(request))));
  TDBG_RETURN_IF_ERROR(Write(config, "profilerconfig.json", {{"DisableProfiler", true}}));
  Json whole = request;
  whole["TrainingJobArn"] = job.arn();
  if (request.contains("DebugHookConfig")) {
    Json hook = request["DebugHookConfig"];
    hook["S3OutputPath"] = UriBelow(hook["S3OutputPath"], name + "/debug-output");
    hook["LocalPath"] = AtRoot(root, hook.value("LocalPath", "/opt/ml/output/tensors"));
    for (const char* const member : {"HookParameters", "CollectionConfigurations"}) {
      if (!hook.contains(member)) hook[member] = nullptr;
    }
    TDBG_RETURN_IF_ERROR(Write(config, "debughookconfig.json", hook));
    whole["DebugHookConfig"] = hook;
  }
  if (request.contains("TensorBoardOutputConfig")) {
    Json board = request["TensorBoardOutputConfig"];
    board["S3OutputPath"] = UriBelow(board["S3OutputPath"], name + "/tensorboard-output");
    board["LocalPath"] = AtRoot(root, board.value("LocalPath", "/opt/ml/output/tensorboard/"));
    TDBG_RETURN_IF_ERROR(Write(config, "tensorboardoutputconfig.json", board));
  }
  if (request.contains("CheckpointConfig")) {
    const std::string local = request["CheckpointConfig"].value("LocalPath", "/opt/ml/checkpoints");
    TDBG_RETURN_IF_ERROR(files.CreateDirectories(HostPath(paths, local)));
    TDBG_RETURN_IF_ERROR(Write(config, "checkpointconfig.json", {{"LocalPath", AtRoot(root, local)}}));
  }
  return Write(config, "trainingjobconfig.json", whole);
}

Result<Container> PlanContainer(const JobDocument& job, const JobPaths& paths, const std::string& root) {
  Container container;
  container.ml = paths.ml;
  container.private_root = root == kMl;
  const json parameters = Decoded(job.request);
  std::string program = TextParameter(parameters, "sagemaker_program");
  while (program.starts_with('/')) program.erase(0, 1);
  const std::string code = root + "/code";
  auto& environment = container.environment;
  environment = {{"TRAINING_JOB_NAME", job.name()}, {"TRAINING_JOB_ARN", job.arn()},
                 {"AWS_REGION", job.region},        {"AWS_DEFAULT_REGION", job.region},
                 {"SAGEMAKER_BASE_DIR", root},      {"PYTHONUNBUFFERED", "1"}};
  // `python` of a shell script, or of ContainerEntrypoint, is the image's as well.
  if (const std::string bin = std::filesystem::path(job.python).parent_path().string(); !bin.empty()) {
    const char* const path = ::getenv("PATH");
    environment["PATH"] = bin + (path != nullptr && *path ? std::string(":") + path : std::string());
  }
  const Json& algorithm = job.request["AlgorithmSpecification"];
  if (algorithm.contains("ContainerEntrypoint")) {
    container.directory = code;
    for (const char* const part : {"ContainerEntrypoint", "ContainerArguments"}) {
      for (const Json& word : algorithm.value(part, Json::array()))
        container.command.push_back(word.get<std::string>());
    }
    AddScriptVariables(job, root, parameters, program, {}, &environment);
  } else if (!program.empty()) {
    if (!IsContainerPath("/opt/ml/code/" + program))
      return InvalidArgument("sagemaker_program leads out of the code: " + program);
    if (!base::LocalFileSystem().Exists(paths.ml + "/code/" + program))
      return InvalidArgument(
          fmt::format("sagemaker_program '{}' is not in sagemaker_submit_directory", program));
    container.directory = code;
    const std::vector<std::string> arguments = ScriptArguments(parameters);
    if (program.ends_with(".py"))
      container.command = {job.python, program};
    else if (program.ends_with(".sh"))
      container.command = {"/bin/sh", program};
    else
      return InvalidArgument(fmt::format("sagemaker_program '{}' is no *.py and no *.sh", program));
    container.command.insert(container.command.end(), arguments.begin(), arguments.end());
    AddScriptVariables(job, root, parameters, program, arguments, &environment);
  } else if (const std::string algorithm_name = AlgorithmOf(job.request); !algorithm_name.empty()) {
    const std::string home = base::FindPythonHome();
    if (home.empty())
      return Unavailable(
          "InternalServerError: tdbg's Python package, which has the algorithm, cannot be found; set "
          "TDBG_HOME");
    container.directory = code;
    container.command = {job.python,
                         base::JoinPath(home, "tdbg/container/" + algorithm_name + "_algorithm.py"), root};
    AddScriptVariables(job, root, parameters, program, {}, &environment);
  } else {
    return InvalidArgument(
        "nothing to start: the request has neither the hyperparameters sagemaker_program and "
        "sagemaker_submit_directory (script mode) nor algorithmSpecification.containerEntrypoint, and its "
        "image is none of the built-in algorithm that is offered here (XGBoost)");
  }
  // What smdebug's hooks look for, where it is not where they look.
  const std::string config = root + "/input/config";
  for (const auto& [variable, file] : std::map<std::string, std::string>{
           {"SMDEBUG_CONFIG_FILE_PATH", config + "/debughookconfig.json"},
           {"TENSORBOARD_CONFIG_FILE_PATH", config + "/tensorboardoutputconfig.json"},
           {"CHECKPOINT_CONFIG_FILE_PATH", config + "/checkpointconfig.json"}}) {
    if (!container.private_root) environment[variable] = file;
  }
  if (!job.request.contains("DebugHookConfig")) environment["USE_SMDEBUG"] = "0";
  const Json variables = job.request.value("Environment", Json::object());
  for (const auto& [name, value] : variables.items()) environment[name] = value.get<std::string>();
  return container;
}

}  // namespace tdbg::service
