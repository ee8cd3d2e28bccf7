// What the service takes and refuses, without a network and without a training.
#include "service/service.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "base/file.h"
#include "jobs/training_output.h"
#include "service/container.h"
#include "service/describe.h"
#include "service/entry.h"
#include "service/helpers.h"
#include "service/images.h"
#include "service/job_state.h"
#include "service/listener.h"
#include "service/metrics.h"
#include "service/requests.h"
#include "service/rule_settings.h"
#include "service/shape.h"

namespace tdbg::service {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

class ServiceTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "service-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
    ServiceOptions options;
    options.directory = directory_;
    ASSERT_TRUE(options.images.Add("pytorch-training:2=/bin/sh").ok());
    options.tend = [this](const std::string& job) {
      tended_.push_back(base::BaseName(job));
      return OkStatus();
    };
    service_ = std::make_unique<Service>(std::move(options));
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  Answer<Json> Ask(const std::string& operation, const Json& request) {
    return service_->Handle("SageMaker." + operation, request.dump());
  }
  /// "CODE: message" of an error; "ok" otherwise.
  std::string Said(const std::string& operation, const Json& request) {
    const auto answer = Ask(operation, request);
    return answer.ok() ? "ok" : answer.refusal().code + ": " + answer.refusal().message;
  }
  /// What is answered at once, below /2015-03-31/functions.
  Answer<Response> AskLambda(const std::string& method, const std::string& path, const Json& request) {
    std::optional<Answer<Response>> got;
    const std::string whole = "/2015-03-31/functions" + path, body = request.dump();
    service_->HandleLambda({method, whole, body}, [&](const Answer<Response>& answer) { got = answer; });
    EXPECT_TRUE(got.has_value()) << method << " " << path;
    return got ? *got : Answer<Response>(Refusal{"none", ""});
  }
  static Json Request(const std::string& name) {
    return {{"TrainingJobName", name},
            {"AlgorithmSpecification",
             {{"TrainingImage", "1.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.0-cpu"},
              {"TrainingInputMode", "File"}}},
            {"RoleArn", "arn:aws:iam::123456789012:role/r"},
            {"OutputDataConfig", {{"S3OutputPath", "s3://bucket/out/"}}}};
  }

  std::string directory_;
  std::vector<std::string> tended_;
  std::unique_ptr<Service> service_;
};

TEST_F(ServiceTest, AJobIsThereFromItsFirstMomentOnWithAStatusForEachRule) {
  Json request = Request("a");
  request["DebugRuleConfigurations"] = Json::array({{{"RuleConfigurationName", "Mine"},
                                                     {"RuleEvaluatorImage", "i"},
                                                     {"RuleParameters", {{"rule_to_invoke", "X"}}}}});
  request["DebugHookConfig"] = {{"S3OutputPath", "s3://bucket/debug"}};
  request["Tags"] = Json::array({{{"Key", "team"}, {"Value", "red"}}});
  const auto created = Ask("CreateTrainingJob", request);
  ASSERT_TRUE(created.ok()) << created.refusal().message;
  EXPECT_EQ((*created)["TrainingJobArn"], "arn:aws:sagemaker:us-east-1:123456789012:training-job/a");
  EXPECT_THAT(tended_, ElementsAre("a"));
  const auto job = Ask("DescribeTrainingJob", {{"TrainingJobName", "a"}});
  ASSERT_TRUE(job.ok());
  EXPECT_EQ((*job)["TrainingJobStatus"], "InProgress");
  EXPECT_EQ((*job)["SecondaryStatus"], "Starting");
  EXPECT_EQ((*job)["ModelArtifacts"]["S3ModelArtifacts"], "s3://bucket/out/a/output/model.tar.gz");
  EXPECT_EQ((*job)["ResourceConfig"]["InstanceCount"], 1);
  EXPECT_EQ((*job)["SecondaryStatusTransitions"][0]["StatusMessage"], "Starting the training job");
  ASSERT_EQ((*job)["DebugRuleEvaluationStatuses"].size(), 1u);
  const Json& rule = (*job)["DebugRuleEvaluationStatuses"][0];
  EXPECT_EQ(rule["RuleEvaluationStatus"], "InProgress");
  const std::string arn = rule["RuleEvaluationJobArn"];
  const std::string processing = arn.substr(arn.rfind('/') + 1);
  EXPECT_THAT(processing, StartsWith("a-Mine-"));
  const auto evaluation = Ask("DescribeProcessingJob", {{"ProcessingJobName", processing}});
  ASSERT_TRUE(evaluation.ok());
  EXPECT_EQ((*evaluation)["Environment"]["rule_to_invoke"], "X");
  const Json& input = (*evaluation)["ProcessingInputs"][0]["S3Input"];
  EXPECT_EQ(input["S3Uri"], "s3://bucket/debug/a/debug-output");
  EXPECT_EQ(input["LocalPath"], "/opt/ml/processing/input/tensors");
  const auto tags = Ask("ListTags", {{"ResourceArn", (*created)["TrainingJobArn"]}});
  ASSERT_TRUE(tags.ok());
  EXPECT_EQ((*tags)["Tags"][0]["Value"], "red");

  EXPECT_THAT(Said("CreateTrainingJob", request), StartsWith("ResourceInUse: "));
  EXPECT_EQ(tended_.size(), 1u);  // the second request started nothing
}

TEST_F(ServiceTest, AJobWhoseProcessCouldNotBeStartedIsThereAndTriedAgain) {
  ServiceOptions options;
  options.directory = directory_;
  ASSERT_TRUE(options.images.Add("pytorch-training:2=/bin/sh").ok());
  int tries = 0;
  options.tend = [&](const std::string&) { return ++tries == 1 ? Unavailable("no process") : OkStatus(); };
  Service service(std::move(options));
  const auto created = service.Handle("SageMaker.CreateTrainingJob", Request("a").dump());
  EXPECT_TRUE(created.ok()) << created.refusal().message;
  service.TendOrphans();
  EXPECT_EQ(tries, 2);
}

TEST_F(ServiceTest, EveryRefusalNamesTheFieldAndStartsNothing) {
  const auto changed = [](const char* pointer, Json value) {
    Json request = Request("a");
    request[Json::json_pointer(pointer)] = std::move(value);
    return request;
  };
  const std::pair<Json, const char*> table[] = {
      {changed("/TrainingJobName", "a b"), "Value 'a b' at 'trainingJobName'"},
      {changed("/TrainingJobName", "../../etc"), "at 'trainingJobName'"},
      {changed("/TrainingJobName", std::string(64, 'a')), "length less than or equal to 63"},
      {changed("/TrainingJobName", nullptr), "Value null at 'trainingJobName'"},
      {changed("/TrainingJobName", 7), "SerializationException: 7 at 'trainingJobName'"},
      {changed("/RoleArn", "short"), "at 'roleArn'"},
      {changed("/OutputDataConfig/S3OutputPath", "/tmp/out"), "at 'outputDataConfig.s3OutputPath'"},
      {changed("/OutputDataConfig/S3OutputPath", "s3://bucket/../other"),
       "at 'outputDataConfig.s3OutputPath'"},
      {changed("/AlgorithmSpecification/TrainingInputMode", "Pipe"),
       "trainingInputMode: Pipe is not offered"},
      {changed("/AlgorithmSpecification/TrainingInputMode", "Tape"),
       "enum value set: [Pipe, File, FastFile]"},
      {changed("/HyperParameters", {{"lr", 0.1}}), "0.1 at 'hyperParameters.lr'"},
      {changed("/CheckpointConfig", {{"S3Uri", "s3://bucket/c"}, {"LocalPath", "/etc"}}),
       "'checkpointConfig.localPath'"},
      {changed("/CheckpointConfig", {{"S3Uri", "s3://bucket/c"}, {"LocalPath", "/opt/ml/../../etc"}}),
       "'checkpointConfig.localPath'"},
      {changed("/DebugHookConfig", {{"S3OutputPath", "s3://bucket/d"},
                                    {"CollectionConfigurations", Json::array({{{"CollectionName", 1}}})}}),
       "'debugHookConfig.collectionConfigurations.1.member.collectionName'"},
      {changed("/StoppingCondition", {{"MaxRuntimeInSeconds", 0}}), "greater than or equal to 1"},
      {changed("/Environment", {{"A=B", "c"}}), "environment: "},
      {changed("/AlgorithmSpecification/MetricDefinitions",
               Json::array({{{"Name", "good"}, {"Regex", "a(b)"}}, {{"Name", "loss"}, {"Regex", "a("}}})),
       "algorithmSpecification.metricDefinitions: 'loss': "},
  };
  for (const auto& [request, what] : table) EXPECT_THAT(Said("CreateTrainingJob", request), HasSubstr(what));
  Json twice = Request("a");
  const Json rule = {{"RuleConfigurationName", "R"}, {"RuleEvaluatorImage", "i"}};
  twice["DebugRuleConfigurations"] = Json::array({rule, rule});
  EXPECT_THAT(Said("CreateTrainingJob", twice), HasSubstr("'R' is there twice"));
  Json spot = Request("a");
  spot["EnableManagedSpotTraining"] = true;
  spot["StoppingCondition"] = {{"MaxRuntimeInSeconds", 10}, {"MaxWaitTimeInSeconds", 5}};
  EXPECT_THAT(Said("CreateTrainingJob", spot), HasSubstr("maxWaitTimeInSeconds"));
  EXPECT_TRUE(tended_.empty());
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/jobs/a"));

  EXPECT_EQ(Said("DescribeTrainingJob", {{"TrainingJobName", "a"}}),
            "ValidationException: Requested resource not found.");
  EXPECT_THAT(Said("CreateEndpoint", Json::object()),
              StartsWith("UnknownOperationException: SageMaker.CreateEndpoint"));
  EXPECT_EQ(service_->Handle("SageMaker.ListTrainingJobs", "[1]").refusal().code, "SerializationException");
  EXPECT_EQ(service_->Handle("SageMaker.ListTrainingJobs", "{\"a\":").refusal().code,
            "SerializationException");
  EXPECT_EQ(service_->Handle("SageMaker.ListTrainingJobs", std::string(1 << 20, '[')).refusal().code,
            "SerializationException");
  EXPECT_TRUE(service_->Handle("SageMaker.ListTrainingJobs", "").ok());
}

TEST_F(ServiceTest, AnUnmappedImageIsAJobThatFailsAndNamesTheKey) {
  Json request = Request("a");
  request["AlgorithmSpecification"]["TrainingImage"] =
      "1.dkr.ecr.us-east-1.amazonaws.com/mxnet-training:1.9-cpu";
  ASSERT_EQ(Said("CreateTrainingJob", request), "ok");
  const auto job = ReadJob(directory_ + "/jobs/a");
  ASSERT_TRUE(job.ok());
  EXPECT_EQ(job->python, "");
  EXPECT_THAT(job->no_python, HasSubstr("add 'mxnet-training'"));
  EXPECT_EQ(SplitImage("host:5000/x/repo:1.2@sha256:ab").repository, "repo");
  EXPECT_EQ(SplitImage("host:5000/x/repo:1.2@sha256:ab").tag, "1.2");
}

TEST_F(ServiceTest, TheLastEventIsTheState) {
  ASSERT_EQ(Said("CreateTrainingJob", Request("a")), "ok");
  const JobPaths paths(directory_ + "/jobs/a");
  const auto job = ReadJob(paths.directory);
  ASSERT_TRUE(job.ok());
  JobProgress progress(*job, paths);
  progress.Move("InProgress", "Starting", "one");
  progress.Move("InProgress", "Training", "two");
  EXPECT_EQ((*Ask("DescribeTrainingJob", {{"TrainingJobName", "a"}}))["SecondaryStatus"], "Training");
  // Of a process that was killed in the middle of a line nothing but that line is lost; the next goes on from
  // there.
  ASSERT_TRUE(base::LocalFileSystem().AppendLine(paths.events, "{\"kind\":\"state_change\",\"ev").ok());
  JobProgress successor(*job, paths);
  ASSERT_EQ(Said("StopTrainingJob", {{"TrainingJobName", "a"}}), "ok");
  ASSERT_EQ(Said("StopTrainingJob", {{"TrainingJobName", "a"}}), "ok");
  successor.Move("Stopped", "Stopped", "three");
  const Json described = *Ask("DescribeTrainingJob", {{"TrainingJobName", "a"}});
  std::vector<std::string> phases;
  for (const Json& one : described["SecondaryStatusTransitions"])
    phases.push_back(one["Status"].get<std::string>());
  EXPECT_THAT(phases, ElementsAre("Starting", "Training", "Stopped"));
  EXPECT_GE(described["TrainingTimeInSeconds"].get<int64_t>(), 1);
  EXPECT_THAT(Said("StopTrainingJob", {{"TrainingJobName", "a"}}), HasSubstr("in status Stopped"));
}

TEST_F(ServiceTest, MetricsAreTheLastValuesOfTheLogOnceTheyAreWritten) {
  Json request = Request("a");
  request["AlgorithmSpecification"]["MetricDefinitions"] =
      Json::array({{{"Name", "loss"}, {"Regex", "loss: ([0-9.a-z]+)"}},
                   {{"Name", "tabbed"}, {"Regex", "#011auc=([0-9.]+)"}},
                   {{"Name", "never"}, {"Regex", "accuracy=([0-9.]+)"}}});
  ASSERT_EQ(Said("CreateTrainingJob", request), "ok");
  EXPECT_FALSE((*Ask("DescribeTrainingJob", {{"TrainingJobName", "a"}})).contains("FinalMetricDataList"));
  const JobPaths paths(directory_ + "/jobs/a");
  std::filesystem::create_directories(paths.run);
  for (int attempt = 0; attempt < 2; ++attempt) {
    auto log = jobs::OutputWriter::Open(paths.run, attempt, 1 << 20);
    ASSERT_TRUE(log.ok()) << log.status().message();
    log->Append(attempt == 0 ? "loss: 4\nx\tauc=0.5\n" : "loss: 3\nloss: 0.25\nloss: nan\n",
                jobs::OutputStream::kOut, (attempt + 1) * int64_t{1'500'000'000}, -1);
  }
  ASSERT_TRUE(WriteMetrics(paths, FinalMetrics(request, paths.run)).ok());
  const Json job = *Ask("DescribeTrainingJob", {{"TrainingJobName", "a"}});
  ASSERT_EQ(job["FinalMetricDataList"].size(), 2u) << job.dump();
  const Json loss = {{"MetricName", "loss"}, {"Value", 0.25}, {"Timestamp", 3.0}};
  EXPECT_EQ(job["FinalMetricDataList"][0], loss);
  EXPECT_EQ(job["FinalMetricDataList"][1]["MetricName"], "tabbed");
  EXPECT_EQ(job["FinalMetricDataList"][1]["Value"], 0.5);

  Json boosting = Request("b");
  boosting["AlgorithmSpecification"]["TrainingImage"] = "r/sagemaker-xgboost:1.7-1";
  auto log = jobs::OutputWriter::Open(paths.run, 2, 1 << 20);
  ASSERT_TRUE(log.ok());
  log->Append("[0]\ttrain-rmse:8.5\tvalidation-rmse:9\n[1]\ttrain-rmse:7.5\tvalidation-rmse:8\n",
              jobs::OutputStream::kOut, 1, -1);
  const Json rounds = FinalMetrics(boosting, paths.run);
  ASSERT_EQ(rounds.size(), 2u) << rounds.dump();
  EXPECT_EQ(rounds[0]["MetricName"], "train:rmse");
  EXPECT_EQ(rounds[1]["MetricName"], "validation:rmse");
  EXPECT_EQ(rounds[1]["Value"], 8);
}

TEST(ImagesTest, APackageIndexIsAUrlAFolderOrPips) {
  Images images;
  for (const char* const bad : {"", "index.test/simple", "wheels", "/no/such/folder", "/bin/sh"})
    EXPECT_FALSE(images.SetPackageIndex(bad).ok()) << bad;
  EXPECT_EQ(images.package_index(), "");
  for (const char* const good : {"https://index.test/simple", "file:///srv/simple", "/tmp", "pip"}) {
    EXPECT_TRUE(images.SetPackageIndex(good).ok()) << good;
    EXPECT_EQ(images.package_index(), good);
  }
}

TEST(ContainerTest, GpusAreThoseThatATrainingMayUse) {
  std::string name = testing::TempDir() + "dev-XXXXXX";
  ASSERT_NE(::mkdtemp(name.data()), nullptr);
  for (const char* const device : {"nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "null"})
    ASSERT_TRUE(base::LocalFileSystem().WriteFileAtomic(name + "/" + device, "").ok());
  EXPECT_EQ(CountGpus(name, nullptr), 2);
  EXPECT_EQ(CountGpus(name, "1"), 1);
  EXPECT_EQ(CountGpus(name, "0,1,2"), 2);
  EXPECT_EQ(CountGpus(name, "0,-1,1"), 1);
  EXPECT_EQ(CountGpus(name, ""), 0);
  EXPECT_EQ(CountGpus(name, "-1"), 0);
  EXPECT_EQ(CountGpus(name, "NoDevFiles"), 0);
  EXPECT_EQ(CountGpus(name, "0,9,1"), 1);
  EXPECT_EQ(CountGpus(name, "GPU-1,MIG-2"), 2);
  EXPECT_EQ(CountGpus(name + "/none", nullptr), 0);
  std::filesystem::remove_all(name);
}

TEST_F(ServiceTest, AnotherAttemptFindsTheDiskOfAnotherMachine) {
  Json request = Request("a");
  request["TensorBoardOutputConfig"] = {{"S3OutputPath", "s3://bucket/t"},
                                        {"LocalPath", "/opt/ml/output/tensorboard/"}};
  ASSERT_EQ(Said("CreateTrainingJob", request), "ok");
  const JobPaths paths(directory_ + "/jobs/a");
  const auto job = ReadJob(paths.directory);
  ASSERT_TRUE(job.ok());
  ASSERT_TRUE(LayOutContainer(*job, paths, paths.ml).ok());
  base::FileSystem& files = base::LocalFileSystem();
  const std::string outside = directory_ + "/outside";
  ASSERT_TRUE(files.CreateDirectories(outside).ok());
  ASSERT_TRUE(files.CreateDirectories(paths.ml + "/input/data/train").ok());
  ASSERT_TRUE(files.WriteFileAtomic(outside + "/precious", "").ok());
  const char* const stay[] = {"/input/data/train/a", "/output/tensorboard/t"};
  const char* const go[] = {"/model/m", "/output/data/o", "/output/failure", "/checkpoints/c", "/own"};
  for (const char* const name : stay) ASSERT_TRUE(files.WriteFileAtomic(paths.ml + name, "").ok());
  for (const char* const name : go) ASSERT_TRUE(files.WriteFileAtomic(paths.ml + name, "").ok());
  std::filesystem::create_directory_symlink(outside, paths.ml + "/output/link");

  const Status renewed = RenewDisk(*job, paths, paths.ml);
  EXPECT_TRUE(renewed.ok()) << renewed.message();
  for (const char* const name : stay) EXPECT_TRUE(files.Exists(paths.ml + name)) << name;
  for (const char* const name : go) EXPECT_FALSE(files.Exists(paths.ml + name)) << name;
  EXPECT_FALSE(files.Exists(paths.ml + "/output/link"));
  EXPECT_TRUE(files.Exists(outside + "/precious"));
  for (const char* const name :
       {"/model", "/checkpoints", "/output/data", "/input/config/resourceconfig.json"})
    EXPECT_TRUE(files.Exists(paths.ml + name)) << name;
}

TEST_F(ServiceTest, CheckpointsBesideTheScriptStayWhereTheCodeIsRenewed) {
  Json request = Request("a");
  request["CheckpointConfig"] = {{"S3Uri", "s3://bucket/c"}, {"LocalPath", "/opt/ml/code/checkpoints"}};
  request["HyperParameters"]["sagemaker_submit_directory"] = "s3://bucket/sourcedir.tar.gz";
  ASSERT_EQ(Said("CreateTrainingJob", request), "ok");
  const JobPaths paths(directory_ + "/jobs/a");
  auto job = ReadJob(paths.directory);
  ASSERT_TRUE(job.ok());
  job->request["CheckpointConfig"]["S3Uri"] = "file://" + directory_ + "/bucket/c";
  ASSERT_TRUE(LayOutContainer(*job, paths, paths.ml).ok());
  base::FileSystem& files = base::LocalFileSystem();
  for (const char* const name : {"/sent", "/jobs/a/source", "/jobs/a/ml/code/own", "/bucket"})
    ASSERT_TRUE(files.CreateDirectories(directory_ + name).ok());
  ASSERT_TRUE(files.WriteFileAtomic(directory_ + "/sent/train.py", "as sent").ok());
  ASSERT_TRUE(
      Pack(directory_ + "/sent", paths.directory + "/source/sourcedir.tar.gz", [] { return false; }).ok());
  ASSERT_TRUE(files.WriteFileAtomic(paths.ml + "/code/train.py", "changed").ok());
  ASSERT_TRUE(files.WriteFileAtomic(paths.ml + "/code/checkpoints/last.pt", "1").ok());

  const Status renewed = RenewDisk(*job, paths, paths.ml);
  EXPECT_TRUE(renewed.ok()) << renewed.message();
  EXPECT_TRUE(files.Exists(paths.ml + "/code/checkpoints/last.pt"));
  EXPECT_TRUE(files.Exists(directory_ + "/bucket/c/last.pt"));
  EXPECT_FALSE(files.Exists(paths.ml + "/code/own"));
  const auto script = files.ReadFile(paths.ml + "/code/train.py");
  ASSERT_TRUE(script.ok());
  EXPECT_EQ(*script, "as sent");
}

TEST_F(ServiceTest, ABucketKeepsFilesAndNoLinks) {
  base::FileSystem& files = base::LocalFileSystem();
  ASSERT_TRUE(files.CreateDirectories(directory_ + "/c/deep/empty").ok());
  ASSERT_TRUE(files.CreateDirectories(directory_ + "/c/full").ok());
  ASSERT_TRUE(files.WriteFileAtomic(directory_ + "/c/full/epoch-1.pt", "1").ok());
  ASSERT_TRUE(files.WriteFileAtomic(directory_ + "/c/half.tmp", "2").ok());
  std::filesystem::create_symlink("full/epoch-1.pt", directory_ + "/c/latest");
  std::filesystem::create_directory_symlink(directory_ + "/c", directory_ + "/linked");
  KeepWhatIsSent(directory_ + "/linked");  // leads to what is somebody else's
  EXPECT_TRUE(files.Exists(directory_ + "/c/half.tmp"));
  KeepWhatIsSent(directory_ + "/c");
  EXPECT_TRUE(files.Exists(directory_ + "/c/full/epoch-1.pt"));
  for (const char* const gone : {"/c/latest", "/c/half.tmp", "/c/deep"})
    EXPECT_FALSE(files.Exists(directory_ + gone)) << gone;
}

TEST_F(ServiceTest, ListsInPagesThatMeet) {
  for (const char* const name : {"b-1", "a-1", "c-1", "a-2"})
    ASSERT_EQ(Said("CreateTrainingJob", Request(name)), "ok");
  std::vector<std::string> names;
  Json request = {{"SortBy", "Name"}, {"MaxResults", 3}};
  for (int page = 0; page < 2; ++page) {
    const auto listed = Ask("ListTrainingJobs", request);
    ASSERT_TRUE(listed.ok());
    for (const Json& one : (*listed)["TrainingJobSummaries"])
      names.push_back(one["TrainingJobName"].get<std::string>());
    ASSERT_EQ(listed->contains("NextToken"), page == 0);
    if (page == 0) request["NextToken"] = (*listed)["NextToken"];
  }
  EXPECT_THAT(names, ElementsAre("a-1", "a-2", "b-1", "c-1"));
  const auto some =
      Ask("ListTrainingJobs", {{"NameContains", "A-"}, {"SortOrder", "Descending"}, {"SortBy", "Name"}});
  EXPECT_EQ((*some)["TrainingJobSummaries"][0]["TrainingJobName"], "a-2");
  EXPECT_EQ((*some)["TrainingJobSummaries"].size(), 2u);
  EXPECT_THAT(Said("ListTrainingJobs", {{"NextToken", "x"}}), HasSubstr("NextToken"));
}

TEST_F(ServiceTest, RulesOfEventsTakePatternsAndRefuseWhatIsNone) {
  const auto ask = [&](const char* operation, const Json& request) {
    return service_->Handle(std::string("AWSEvents.") + operation, request.dump());
  };
  EXPECT_EQ(ask("PutRule", {{"Name", "r"}, {"EventPattern", "{\"source\": \"x\"}"}}).refusal().code,
            "InvalidEventPatternException");
  EXPECT_EQ(ask("PutRule", {{"Name", "r"}, {"ScheduleExpression", "rate(1 day)"}}).refusal().code,
            "ValidationException");
  EXPECT_EQ(ask("PutRule", {{"Name", "../r"}, {"EventPattern", "{}"}}).refusal().code, "ValidationException");
  const auto put = ask("PutRule", {{"Name", "r"}, {"EventPattern", R"({"source": ["aws.sagemaker"]})"}});
  ASSERT_TRUE(put.ok()) << put.refusal().message;
  EXPECT_EQ((*put)["RuleArn"], "arn:aws:events:us-east-1:123456789012:rule/r");
  const std::string unknown = "arn:aws:lambda:us-east-1:123456789012:function:none";
  EXPECT_THAT(ask("PutTargets", {{"Rule", "r"}, {"Targets", Json::array({{{"Id", "1"}, {"Arn", unknown}}})}})
                  .refusal()
                  .message,
              HasSubstr("no function of this service"));
  EXPECT_EQ(
      (*ask("TestEventPattern", {{"EventPattern", R"({"a": [1]})"}, {"Event", R"({"a": 1})"}}))["Result"],
      true);
  EXPECT_EQ((*ask("ListRules", Json::object()))["Rules"].size(), 1u);
  EXPECT_TRUE(ask("DeleteRule", {{"Name", "r"}}).ok());
  EXPECT_EQ((*ask("ListRules", Json::object()))["Rules"].size(), 0u);
  for (const char* const name : {"..", "a%2Fb", "a/b/c", ""}) {
    EXPECT_FALSE(AskLambda("POST", "", {{"FunctionName", name}, {"Runtime", "python3.11"}}).ok()) << name;
  }
  EXPECT_EQ(AskLambda("GET", "/none", Json()).refusal().code, "ResourceNotFoundException");
}

TEST(ContainerTest, ArgumentsAreThoseOfTheTrainingToolkit) {
  nlohmann::json parameters;
  for (const auto& [name, text] : std::map<std::string, std::string>{{"lr", "\"10.00\""},
                                                                     {"epochs", "10"},
                                                                     {"rate", "1e-05"},
                                                                     {"one", "1.0"},
                                                                     {"b", "true"},
                                                                     {"none", "null"},
                                                                     {"list", "[1, \"x\"]"},
                                                                     {"map", "{\"k\": 1, \"a\": \"z\"}"},
                                                                     {"raw", "plain text"},
                                                                     {"sagemaker_program", "\"train.py\""}})
    parameters[name] = HyperParameter(text);
  EXPECT_THAT(ScriptArguments(parameters),
              ElementsAre("-b", "True", "--epochs", "10", "--list", "[1, 'x']", "--lr", "10.00", "--map",
                          "a=z,k=1", "--none", "", "--one", "1.0", "--rate", "1e-05", "--raw", "plain text"));
}

TEST(RuleSettingsTest, ActionsComeWithEscapedQuotesOrWithout) {
  const auto both = ActionsOf(
      R"([{\"name\": \"stoptraining\", \"training_job_prefix\": \"x\"}, {\"name\": \"email\", \"endpoint\": \"a@b.org\"}])");
  ASSERT_TRUE(both.ok()) << both.status().message();
  EXPECT_THAT(*both, ElementsAre("stop", "email:a@b.org"));
  EXPECT_THAT(*ActionsOf(R"({"name": "sms", "endpoint": "+1234"})"), ElementsAre("sms:+1234"));
  for (const char* const bad : {"", "[", "7", R"([{"name": "reboot"}])", R"([{"name": "email"}])"})
    EXPECT_FALSE(ActionsOf(bad).ok()) << bad;
  const auto entry =
      RuleEntry({{"RuleConfigurationName", "Mine"},
                 {"RuleParameters", {{"rule_to_invoke", "VanishingGradient"}, {"threshold", "1e-9"}}}});
  ASSERT_TRUE(entry.ok());
  EXPECT_EQ((*entry)["rule"], "VanishingGradient");
  EXPECT_EQ((*entry)["parameters"]["threshold"], "1e-9");
}

// A job's processes outlive the server that started them, and must not keep its port.
TEST(ListenerTest, NoChildInheritsTheSocket) {
  const auto listener = Listener::Listen({});
  ASSERT_TRUE(listener.ok()) << listener.status().ToString();
  int found = 0;
  for (int fd = 3; fd < 1024; ++fd) {
    sockaddr_in address = {};
    socklen_t size = sizeof(address);
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
        address.sin_family != AF_INET || ntohs(address.sin_port) != (*listener)->port())
      continue;
    ++found;
    EXPECT_EQ(::fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  }
  EXPECT_EQ(found, 1);
}

TEST(ListenerTest, ARequestThatIsTooLongIsAnsweredOnceItIsSent) {
  ListenerOptions options;
  options.access_keys = {"KEY"};
  const auto listener = Listener::Listen(std::move(options));
  ASSERT_TRUE(listener.ok()) << listener.status().ToString();
  std::thread serving([&] { (*listener)->Serve(); });
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval patience{60, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons((*listener)->port());
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  constexpr size_t kBytes = 100u << 20, kPiece = 1u << 20;
  const std::string head =
      "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: AWS4-HMAC-SHA256 Credential=KEY/a\r\n"
      "X-Amz-Target: SageMaker.ListTrainingJobs\r\nContent-Length: " +
      std::to_string(kBytes) + "\r\n\r\n";
  EXPECT_EQ(::send(fd, head.data(), head.size(), MSG_NOSIGNAL), static_cast<ssize_t>(head.size()));
  const std::string piece(kPiece, ' ');
  size_t sent = 0;
  while (sent < kBytes) {
    const ssize_t put = ::send(fd, piece.data(), piece.size(), MSG_NOSIGNAL);
    if (put <= 0) break;
    sent += static_cast<size_t>(put);
  }
  EXPECT_GE(sent, kBytes) << "the connection was cut off";
  std::string answer(4096, '\0');
  const ssize_t got = ::recv(fd, answer.data(), answer.size(), 0);
  EXPECT_GT(got, 0);
  EXPECT_THAT(answer, HasSubstr("RequestEntityTooLargeException"));
  ::close(fd);
  (*listener)->Stop();
  serving.join();
}

}  // namespace
}  // namespace tdbg::service
