#include "service/requests.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "service/metrics.h"

namespace tdbg::service {
namespace {

constexpr const char* kNamePattern = "satisfy regular expression pattern: ^[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}";
constexpr const char* kS3Pattern =
    "satisfy regular expression pattern: ^s3://([^/]+)/?(.*)$, without components '.' and '..'";
constexpr const char* kPathPattern = "be a path below /opt/ml, without components '.' and '..'";

bool HasOddComponent(std::string_view path) {
  while (!path.empty()) {
    const size_t slash = path.find('/');
    const std::string_view component = path.substr(0, slash);
    if (component == "." || component == "..") return true;
    path.remove_prefix(slash == std::string_view::npos ? path.size() : slash + 1);
  }
  return false;
}

bool IsRuleName(std::string_view text) {
  return !text.empty() && text.size() <= 256 && text[0] != '.' && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  });
}

bool IsChannelName(std::string_view text) { return IsRuleName(text) && text.size() <= 64; }

bool IsVariable(std::string_view text) { return text.find('=') == std::string_view::npos && !text.empty(); }

ShapePtr EventName() {
  return TextThat(IsChannelName, "satisfy regular expression pattern: [\\.\\-_A-Za-z0-9]+", 1, 64);
}
ShapePtr JobName() { return TextThat(IsJobName, kNamePattern, 1, 63); }
ShapePtr S3Uri() { return TextThat(IsS3Uri, kS3Pattern, 0, 1024); }
ShapePtr ContainerPath() { return TextThat(IsContainerPath, kPathPattern, 0, 4096); }
ShapePtr Tags() {
  return ListOf(Structure({{"Key", Text(1, 128), true}, {"Value", Text(0, 256), true}}), 0, 50);
}

ShapePtr Rules() {
  return ListOf(Structure({
                    {"RuleConfigurationName",
                     TextThat(IsRuleName,
                              "consist of letters, digits, '.', '_' and '-', and not begin with '.'", 1, 256),
                     true},
                    {"RuleEvaluatorImage", Text(0, 255), true},
                    {"LocalPath", Text(0, 4096)},
                    {"S3OutputPath", S3Uri()},
                    {"InstanceType", Text()},
                    {"VolumeSizeInGB", Integer(0, 1 << 20)},
                    {"RuleParameters", MapOf(Text(), 100)},
                }),
                0, 20);
}

ShapePtr Hook() {
  return Structure({
      {"LocalPath", ContainerPath()},
      {"S3OutputPath", S3Uri(), true},
      {"HookParameters", MapOf(Text(), 20)},
      {"CollectionConfigurations",
       ListOf(Structure({{"CollectionName", Text(1, 256)}, {"CollectionParameters", MapOf(Text(), 20)}}), 0,
              20)},
  });
}

ShapePtr Channels() {
  return ListOf(
      Structure({
          {"ChannelName",
           TextThat(IsChannelName, "satisfy regular expression pattern: [A-Za-z0-9\\.\\-_]+", 1, 64), true},
          {"DataSource",
           Structure(
               {{"S3DataSource",
                 Structure(
                     {{"S3DataType", OneOf({"ManifestFile", "S3Prefix", "AugmentedManifestFile"}), true},
                      {"S3Uri", S3Uri(), true},
                      {"S3DataDistributionType", OneOf({"FullyReplicated", "ShardedByS3Key"})}})}}),
           true},
          {"ContentType", Text(0, 256)},
          {"CompressionType", OneOf({"None", "Gzip"})},
          {"RecordWrapperType", OneOf({"None", "RecordIO"})},
          {"InputMode", OneOf({"Pipe", "File", "FastFile"})},
      }),
      0, 20);
}

ShapePtr CreateTrainingJob() {
  return Structure({
      {"TrainingJobName", JobName(), true},
      {"HyperParameters", MapOf(Text(0, 2500), 100)},
      {"AlgorithmSpecification",
       Structure({{"TrainingImage", Text(0, 255)},
                  {"AlgorithmName", Text(1, 170)},
                  {"TrainingInputMode", OneOf({"Pipe", "File", "FastFile"}), true},
                  {"MetricDefinitions",
                   ListOf(Structure({{"Name", Text(1, 255), true}, {"Regex", Text(1, 500), true}}), 0, 40)},
                  {"EnableSageMakerMetricsTimeSeries", Truth()},
                  {"ContainerEntrypoint", ListOf(Text(0, 256), 1, 100)},
                  {"ContainerArguments", ListOf(Text(0, 256), 1, 100)}}),
       true},
      {"RoleArn", Text(20, 2048), true},
      {"InputDataConfig", Channels()},
      {"OutputDataConfig",
       Structure({{"KmsKeyId", Text(0, 2048)},
                  {"S3OutputPath", S3Uri(), true},
                  {"CompressionType", OneOf({"GZIP", "NONE"})}}),
       true},
      {"ResourceConfig", Structure({{"InstanceType", Text()},
                                    {"InstanceCount", Integer(0, 1 << 20)},
                                    {"VolumeSizeInGB", Integer(0, 1 << 20)},
                                    {"VolumeKmsKeyId", Text(0, 2048)},
                                    {"KeepAlivePeriodInSeconds", Integer(0, 3600)}})},
      {"StoppingCondition", Structure({{"MaxRuntimeInSeconds", Integer(1, 1 << 30)},
                                       {"MaxWaitTimeInSeconds", Integer(1, 1 << 30)},
                                       {"MaxPendingTimeInSeconds", Integer(0, 1 << 30)}})},
      {"VpcConfig",
       Structure({{"SecurityGroupIds", ListOf(Text(), 1, 5)}, {"Subnets", ListOf(Text(), 1, 16)}})},
      {"EnableNetworkIsolation", Truth()},
      {"EnableInterContainerTrafficEncryption", Truth()},
      {"EnableManagedSpotTraining", Truth()},
      {"CheckpointConfig", Structure({{"S3Uri", S3Uri(), true}, {"LocalPath", ContainerPath()}})},
      {"DebugHookConfig", Hook()},
      {"DebugRuleConfigurations", Rules()},
      {"TensorBoardOutputConfig",
       Structure({{"LocalPath", ContainerPath()}, {"S3OutputPath", S3Uri(), true}})},
      {"ProfilerConfig", Structure({{"S3OutputPath", S3Uri()},
                                    {"DisableProfiler", Truth()},
                                    {"ProfilingIntervalInMilliseconds", Integer(0, 1 << 30)},
                                    {"ProfilingParameters", MapOf(Text(), 20)}})},
      {"ProfilerRuleConfigurations", Rules()},
      {"Environment", MapOf(Text(0, 512), 100)},
      {"RetryStrategy", Structure({{"MaximumRetryAttempts", Integer(1, 30), true}})},
      {"ExperimentConfig", Structure({{"ExperimentName", Text(1, 120)},
                                      {"TrialName", Text(1, 120)},
                                      {"TrialComponentDisplayName", Text(1, 120)},
                                      {"RunName", Text(1, 120)}})},
      {"RemoteDebugConfig", Structure({{"EnableRemoteDebug", Truth()}})},
      {"InfraCheckConfig", Structure({{"EnableInfraCheck", Truth()}})},
      {"Tags", Tags()},
  });
}

ShapePtr Listing(const char* what) {
  return Structure({
      {"NextToken", Text(0, 8192)},
      {"MaxResults", Integer(1, 100)},
      {"CreationTimeAfter", Number()},
      {"CreationTimeBefore", Number()},
      {"LastModifiedTimeAfter", Number()},
      {"LastModifiedTimeBefore", Number()},
      {"NameContains", Text(0, 63)},
      {"StatusEquals", OneOf({"InProgress", "Completed", "Failed", "Stopping", "Stopped"})},
      {"SortBy", OneOf({"Name", "CreationTime", "Status"})},
      {"SortOrder", OneOf({"Ascending", "Descending"})},
      {what, Text()},
  });
}

const std::map<std::string, ShapePtr>& Shapes() {
  static const auto* const shapes = new std::map<std::string, ShapePtr>{
      {"SageMaker.CreateTrainingJob", CreateTrainingJob()},
      {"SageMaker.DescribeTrainingJob", Structure({{"TrainingJobName", JobName(), true}})},
      {"SageMaker.StopTrainingJob", Structure({{"TrainingJobName", JobName(), true}})},
      {"SageMaker.DeleteTrainingJob", Structure({{"TrainingJobName", JobName(), true}})},
      {"SageMaker.ListTrainingJobs", Listing("WarmPoolStatusEquals")},
      {"SageMaker.UpdateTrainingJob", Structure({{"TrainingJobName", JobName(), true},
                                                 {"ProfilerConfig", Structure({})},
                                                 {"ProfilerRuleConfigurations", Rules()}})},
      {"SageMaker.AddTags", Structure({{"ResourceArn", Text(0, 256), true}, {"Tags", Tags(), true}})},
      {"SageMaker.ListTags", Structure({{"ResourceArn", Text(0, 256), true},
                                        {"NextToken", Text(0, 8192)},
                                        {"MaxResults", Integer(50, 1 << 30)}})},
      {"SageMaker.DeleteTags",
       Structure({{"ResourceArn", Text(0, 256), true}, {"TagKeys", ListOf(Text(1, 128), 1, 50), true}})},
      {"SageMaker.DescribeProcessingJob", Structure({{"ProcessingJobName", JobName(), true}})},
      {"SageMaker.StopProcessingJob", Structure({{"ProcessingJobName", JobName(), true}})},
      {"SageMaker.ListProcessingJobs", Listing("-")},
      {"AWSEvents.PutRule", Structure({{"Name", EventName(), true},
                                       {"EventPattern", Text(0, 4096)},
                                       {"ScheduleExpression", Text(0, 256)},
                                       {"State", OneOf({"ENABLED", "DISABLED"})},
                                       {"Description", Text(0, 512)}})},
      {"AWSEvents.PutTargets",
       Structure({{"Rule", EventName(), true},
                  {"Targets",
                   ListOf(Structure({{"Id", EventName(), true},
                                     {"Arn", Text(1, 1600), true},
                                     {"Input", Text(0, 8192)},
                                     {"InputPath", Text(0, 256)},
                                     {"InputTransformer", Structure({{"InputTemplate", Text(1, 8192)}})}}),
                          1, 100),
                   true}})},
      {"AWSEvents.RemoveTargets",
       Structure({{"Rule", EventName(), true}, {"Ids", ListOf(EventName(), 1, 100), true}})},
      {"AWSEvents.ListRules", Structure({{"NamePrefix", Text(1, 64)}})},
      {"AWSEvents.ListTargetsByRule", Structure({{"Rule", EventName(), true}})},
      {"AWSEvents.ListRuleNamesByTarget", Structure({{"TargetArn", Text(1, 1600), true}})},
      {"AWSEvents.DescribeRule", Structure({{"Name", EventName(), true}})},
      {"AWSEvents.EnableRule", Structure({{"Name", EventName(), true}})},
      {"AWSEvents.DisableRule", Structure({{"Name", EventName(), true}})},
      {"AWSEvents.DeleteRule", Structure({{"Name", EventName(), true}})},
      {"AWSEvents.TestEventPattern", Structure({{"EventPattern", Text(), true}, {"Event", Text(), true}})},
      {"Logs_20140328.DescribeLogGroups", Structure({{"logGroupNamePrefix", Text(1, 512)}})},
      {"Logs_20140328.DescribeLogStreams", Structure({{"logGroupName", Text(1, 512), true},
                                                      {"logStreamNamePrefix", Text(1, 512)},
                                                      {"orderBy", OneOf({"LogStreamName", "LastEventTime"})},
                                                      {"descending", Truth()},
                                                      {"limit", Integer(1, 50)}})},
      {"Logs_20140328.GetLogEvents", Structure({{"logGroupName", Text(1, 512), true},
                                                {"logStreamName", Text(1, 512), true},
                                                {"startTime", Integer(0, INT64_MAX)},
                                                {"endTime", Integer(0, INT64_MAX)},
                                                {"nextToken", Text(1)},
                                                {"limit", Integer(1, 10000)},
                                                {"startFromHead", Truth()}})},
  };
  return *shapes;
}

}  // namespace

bool IsJobName(std::string_view text) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  if (text.empty() || text.size() > 63 || !plain(text.front()) || !plain(text.back())) return false;
  return std::ranges::all_of(text, [&](char c) { return plain(c) || c == '-'; });
}

bool IsS3Uri(std::string_view text) {
  if (!text.starts_with("s3://") || !base::IsValidName(text)) return false;
  text.remove_prefix(5);
  const size_t slash = text.find('/');
  const std::string_view bucket = text.substr(0, slash);
  const bool named =
      bucket.size() >= 3 && bucket.size() <= 63 && std::ranges::all_of(bucket, [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
      });
  return named && !HasOddComponent(text);
}

bool IsContainerPath(std::string_view text) {
  return text.starts_with("/opt/ml/") && base::IsValidName(text) && !HasOddComponent(text);
}

nlohmann::json HyperParameter(const std::string& value) {
  nlohmann::json parsed = nlohmann::json::parse(value, nullptr, false);
  return parsed.is_discarded() ? nlohmann::json(value) : parsed;
}

ShapePtr RequestShape(const std::string& target) {
  const auto it = Shapes().find(target);
  return it == Shapes().end() ? nullptr : it->second;
}

std::optional<Refusal> CheckTrainingJob(const Json& request) {
  const Json& algorithm = request.at("AlgorithmSpecification");
  if (!algorithm.contains("TrainingImage"))
    return Invalid(
        "algorithmSpecification.trainingImage: it is needed here; algorithms of the marketplace "
        "(algorithmName) are not offered");
  if (algorithm.at("TrainingInputMode") == "Pipe")
    return Invalid(
        "algorithmSpecification.trainingInputMode: Pipe is not offered here; File and FastFile are");
  if (const std::string bad = BadMetricDefinition(request); !bad.empty())
    return Invalid("algorithmSpecification.metricDefinitions: " + bad);
  const Json variables = request.value("Environment", Json::object());
  for (const auto& [name, unused] : variables.items()) {
    if (!IsVariable(name))
      return Invalid("environment: a variable's name is not empty and holds no '=': '" + name + "'");
  }
  const Json stopping = request.value("StoppingCondition", Json::object());
  if (request.value("EnableManagedSpotTraining", false) && stopping.contains("MaxWaitTimeInSeconds") &&
      stopping.contains("MaxRuntimeInSeconds") &&
      stopping["MaxWaitTimeInSeconds"].get<int64_t>() < stopping["MaxRuntimeInSeconds"].get<int64_t>())
    return Invalid(
        "Invalid MaxWaitTimeInSeconds. It must be greater than or equal to MaxRuntimeInSeconds "
        "(stoppingCondition.maxWaitTimeInSeconds)");
  for (const char* list : {"DebugRuleConfigurations", "ProfilerRuleConfigurations"}) {
    std::set<std::string> names;
    for (const Json& rule : request.value(list, Json::array())) {
      if (!names.insert(rule.at("RuleConfigurationName").get<std::string>()).second)
        return Invalid("RuleConfigurationName must be unique: '" +
                       rule["RuleConfigurationName"].get<std::string>() + "' is there twice (" + list + ")");
    }
  }
  std::set<std::string> channels;
  for (const Json& channel : request.value("InputDataConfig", Json::array())) {
    const std::string name = channel.at("ChannelName");
    if (!channels.insert(name).second)
      return Invalid("inputDataConfig: channel '" + name + "' is there twice");
    if (!channel.at("DataSource").contains("S3DataSource"))
      return Invalid("inputDataConfig: channel '" + name +
                     "': dataSource.s3DataSource is the only source offered");
    if (channel["DataSource"]["S3DataSource"]["S3DataType"] != "S3Prefix")
      return Invalid("inputDataConfig: channel '" + name + "': s3DataType S3Prefix is the only one offered");
    if (channel.value("InputMode", "File") == "Pipe")
      return Invalid("inputDataConfig: channel '" + name +
                     "': Pipe is not offered here; File and FastFile are");
  }
  return std::nullopt;
}

}  // namespace tdbg::service
