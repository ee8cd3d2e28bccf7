#include "service/describe.h"

#include <algorithm>

#include "base/clock.h"

namespace tdbg::service {
namespace {

// Members of the request that come back as they were given.
constexpr const char* kEchoed[] = {"HyperParameters",
                                   "AlgorithmSpecification",
                                   "RoleArn",
                                   "InputDataConfig",
                                   "OutputDataConfig",
                                   "ResourceConfig",
                                   "VpcConfig",
                                   "StoppingCondition",
                                   "EnableNetworkIsolation",
                                   "EnableInterContainerTrafficEncryption",
                                   "EnableManagedSpotTraining",
                                   "CheckpointConfig",
                                   "DebugHookConfig",
                                   "DebugRuleConfigurations",
                                   "TensorBoardOutputConfig",
                                   "ProfilerConfig",
                                   "ProfilerRuleConfigurations",
                                   "Environment",
                                   "RetryStrategy",
                                   "ExperimentConfig",
                                   "RemoteDebugConfig",
                                   "InfraCheckConfig"};

double Seconds(int64_t millis) { return static_cast<double>(millis) / 1000; }

int64_t Millis(const Json& detail, const char* member, int64_t otherwise) {
  const auto it = detail.find(member);
  return it != detail.end() && it->is_number_integer() ? it->get<int64_t>() : otherwise;
}

std::string TextOf(const Json& object, const char* member, const char* otherwise = "") {
  const auto it = object.find(member);
  return it != object.end() && it->is_string() ? it->get<std::string>() : otherwise;
}

int64_t Created(const JobDocument& job) { return job.created_wall_nanos / 1'000'000; }

// What the events say of a rule; in the first moments, nothing. A profiler's rule is not judged here and says
// so once the job is over: who waits for it must not wait for ever.
Json RuleIn(const Json& detail, const std::string& name, bool profiler) {
  if (profiler && HasEnded(detail))
    return {{"RuleEvaluationStatus", "NoIssuesFound"},
            {"StatusDetails", "not evaluated: this service judges debugger rules, no profiler rules"},
            {"LastModifiedTime", Millis(detail, "LastModifiedTime", 0)}};
  for (const Json& rule : detail.value("DebugRuleEvaluationStatuses", Json::array())) {
    if (TextOf(rule, "RuleConfigurationName") == name) return rule;
  }
  return Json::object();
}

Json RuleStatuses(const JobDocument& job, const Json& detail, bool profiler) {
  Json statuses = Json::array();
  for (const RuleJob& rule : job.rules) {
    if (rule.profiler != profiler) continue;
    const Json state = RuleIn(detail, rule.rule, rule.profiler);
    Json& status = statuses.emplace_back(
        Json{{"RuleConfigurationName", rule.rule},
             {"RuleEvaluationJobArn", job.processing_arn(rule)},
             {"RuleEvaluationStatus", TextOf(state, "RuleEvaluationStatus", "InProgress")}});
    if (const std::string details = TextOf(state, "StatusDetails"); !details.empty())
      status["StatusDetails"] = details;
    status["LastModifiedTime"] = Seconds(Millis(state, "LastModifiedTime", Created(job)));
  }
  return statuses;
}

Json Transitions(const JobDocument& job, const Json& detail) {
  Json transitions = Json::array();
  for (const Json& transition : detail.value("SecondaryStatusTransitions", Json::array())) {
    Json& item = transitions.emplace_back(Json{{"Status", TextOf(transition, "Status")},
                                               {"StartTime", Seconds(Millis(transition, "StartTime", 0))},
                                               {"StatusMessage", TextOf(transition, "StatusMessage")}});
    if (transition.contains("EndTime")) item["EndTime"] = Seconds(Millis(transition, "EndTime", 0));
  }
  if (transitions.empty())
    transitions.push_back({{"Status", "Starting"},
                           {"StartTime", Seconds(Created(job))},
                           {"StatusMessage", "Starting the training job"}});
  return transitions;
}

Json ConfigurationOf(const JobDocument& job, const RuleJob& rule) {
  const char* const list = rule.profiler ? "ProfilerRuleConfigurations" : "DebugRuleConfigurations";
  for (const Json& one : job.request.value(list, Json::array())) {
    if (TextOf(one, "RuleConfigurationName") == rule.rule) return one;
  }
  return Json::object();
}

// What a rule reads, as a program that looks for a job's tensors finds it; empty: the job has no place for
// it.
Json RuleInput(const JobDocument& job, const RuleJob& rule) {
  const char* const member = rule.profiler ? "ProfilerConfig" : "DebugHookConfig";
  const std::string base = TextOf(job.request.value(member, Json::object()), "S3OutputPath");
  if (base.empty()) return Json::object();
  Json place;
  place["S3Uri"] = UriBelow(base, job.name() + (rule.profiler ? "/profiler-output" : "/debug-output"));
  place["LocalPath"] =
      rule.profiler ? "/opt/ml/processing/input/profiler" : "/opt/ml/processing/input/tensors";
  place["S3DataType"] = "S3Prefix";
  place["S3InputMode"] = "File";
  place["S3DataDistributionType"] = "FullyReplicated";
  place["S3CompressionType"] = "None";
  Json input;
  input["InputName"] = rule.profiler ? "Profiler" : "Tensors";
  input["S3Input"] = place;
  return input;
}

}  // namespace

bool HasEnded(const Json& detail) {
  const std::string status = TextOf(detail, "TrainingJobStatus");
  return status == "Completed" || status == "Failed" || status == "Stopped";
}

std::string UriBelow(const std::string& uri, const std::string& below) {
  return uri + (uri.ends_with('/') ? "" : "/") + below;
}

bool IsModelPacked(const JobDocument& job) {
  return TextOf(job.request["OutputDataConfig"], "CompressionType") != "NONE";
}

std::string ModelUri(const JobDocument& job) {
  return UriBelow(job.request["OutputDataConfig"]["S3OutputPath"].get<std::string>(),
                  job.name() + (IsModelPacked(job) ? "/output/model.tar.gz" : "/output/model/"));
}

std::string RuleOutputUri(const JobDocument& job, const RuleJob& rule) {
  const std::string given = TextOf(ConfigurationOf(job, rule), "S3OutputPath");
  return UriBelow(given.empty() ? job.request["OutputDataConfig"]["S3OutputPath"].get<std::string>() : given,
                  job.name() + "/rule-output/" + rule.rule);
}

Json DescribeTrainingJob(const JobDocument& job, const Json& detail, const Json& metrics) {
  const Json& request = job.request;
  Json out = {{"TrainingJobName", job.name()},
              {"TrainingJobArn", job.arn()},
              {"ModelArtifacts", {{"S3ModelArtifacts", ModelUri(job)}}},
              {"TrainingJobStatus", TextOf(detail, "TrainingJobStatus", "InProgress")},
              {"SecondaryStatus", TextOf(detail, "SecondaryStatus", "Starting")}};
  if (const std::string reason = TextOf(detail, "FailureReason"); !reason.empty())
    out["FailureReason"] = reason;
  for (const char* const member : kEchoed) {
    if (request.contains(member)) out[member] = request[member];
  }
  // What clients read without looking whether it is there.
  Json& resources = out["ResourceConfig"];
  if (!resources.is_object()) resources = Json::object();
  const Json usual = {{"InstanceType", "ml.m5.xlarge"}, {"InstanceCount", 1}, {"VolumeSizeInGB", 30}};
  for (const auto& [member, value] : usual.items()) {
    if (!resources.contains(member)) resources[member] = value;
  }
  if (!out.contains("StoppingCondition")) out["StoppingCondition"] = {{"MaxRuntimeInSeconds", 86400}};
  out["CreationTime"] = Seconds(Created(job));
  out["LastModifiedTime"] = Seconds(Millis(detail, "LastModifiedTime", Created(job)));
  out["SecondaryStatusTransitions"] = Transitions(job, detail);
  const int64_t started = Millis(detail, "TrainingStartTime", 0);
  if (started > 0) {
    out["TrainingStartTime"] = Seconds(started);
    const int64_t now = base::SystemClock().WallNanos() / 1'000'000;
    const int64_t ended = Millis(detail, "TrainingEndTime", 0);
    if (ended > 0) out["TrainingEndTime"] = Seconds(ended);
    // At least one: clients divide by it.
    const int64_t seconds = std::max<int64_t>(1, ((ended > 0 ? ended : now) - started) / 1000);
    out["TrainingTimeInSeconds"] = seconds;
    out["BillableTimeInSeconds"] = seconds;
  }
  const Json debugging = RuleStatuses(job, detail, false), profiling = RuleStatuses(job, detail, true);
  if (!debugging.empty()) out["DebugRuleEvaluationStatuses"] = debugging;
  if (!profiling.empty()) out["ProfilerRuleEvaluationStatuses"] = profiling;
  for (Json metric : metrics) {
    metric["Timestamp"] = Seconds(Millis(metric, "Timestamp", 0));
    out["FinalMetricDataList"].push_back(metric);
  }
  out["ProfilingStatus"] = "Disabled";
  return out;
}

Json SummarizeTrainingJob(const JobDocument& job, const Json& detail) {
  Json out = {{"TrainingJobName", job.name()},
              {"TrainingJobArn", job.arn()},
              {"CreationTime", Seconds(Created(job))},
              {"LastModifiedTime", Seconds(Millis(detail, "LastModifiedTime", Created(job)))},
              {"TrainingJobStatus", TextOf(detail, "TrainingJobStatus", "InProgress")},
              {"SecondaryStatus", TextOf(detail, "SecondaryStatus", "Starting")}};
  if (const int64_t ended = Millis(detail, "TrainingEndTime", 0); ended > 0)
    out["TrainingEndTime"] = Seconds(ended);
  return out;
}

Json DescribeProcessingJob(const JobDocument& job, const RuleJob& rule, const Json& detail, bool summary) {
  const Json state = RuleIn(detail, rule.rule, rule.profiler);
  const std::string rule_status = TextOf(state, "RuleEvaluationStatus", "InProgress");
  const bool failed = rule_status == "Error";
  const bool completed = rule_status == "NoIssuesFound" || rule_status == "IssuesFound";
  const std::string status = failed ? "Failed" : completed ? "Completed" : rule_status;
  const double changed = Seconds(Millis(state, "LastModifiedTime", Created(job)));
  Json out = {{"ProcessingJobName", rule.processing},
              {"ProcessingJobArn", job.processing_arn(rule)},
              {"ProcessingJobStatus", status},
              {"CreationTime", Seconds(Created(job))},
              {"LastModifiedTime", changed}};
  if (status != "InProgress" && status != "Stopping") out["ProcessingEndTime"] = changed;
  const std::string details = TextOf(state, "StatusDetails");
  if (rule_status == "IssuesFound") out["ExitMessage"] = details;
  if (failed) out["FailureReason"] = details;
  if (summary) return out;

  const Json configuration = ConfigurationOf(job, rule);
  Json environment = configuration.value("RuleParameters", Json::object());
  environment["TRAINING_JOB_ARN"] = job.arn();
  environment["TRAINING_IMAGE"] = job.request["AlgorithmSpecification"]["TrainingImage"];
  environment["SAGEMAKER_START_TIMESTAMP_OF_RULE"] = std::to_string(Created(job) / 1000);
  out["ProcessingResources"] = {{"ClusterConfig",
                                 {{"InstanceCount", 1},
                                  {"InstanceType", TextOf(configuration, "InstanceType", "ml.m5.2xlarge")},
                                  {"VolumeSizeInGB", 30}}}};
  out["AppSpecification"] = {{"ImageUri", TextOf(configuration, "RuleEvaluatorImage")}};
  out["Environment"] = environment;
  if (const Json input = RuleInput(job, rule); !input.empty()) out["ProcessingInputs"] = Json::array({input});
  Json place;
  place["S3Uri"] = RuleOutputUri(job, rule);
  place["LocalPath"] = TextOf(configuration, "LocalPath", "/opt/ml/processing/output/rule");
  place["S3UploadMode"] = "Continuous";
  Json written;
  written["OutputName"] = "RuleOutput";
  written["S3Output"] = place;
  out["ProcessingOutputConfig"]["Outputs"] = Json::array({written});
  out["RoleArn"] = job.request["RoleArn"];
  out["TrainingJobArn"] = job.arn();
  out["StoppingCondition"] = {{"MaxRuntimeInSeconds", 86400}};
  return out;
}

}  // namespace tdbg::service
