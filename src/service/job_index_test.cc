// What lists say is what the folders say, whatever has happened to them; and who waits for whom.
#include "service/job_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/file.h"
#include "service/describe.h"
#include "service/job_state.h"
#include "service/service.h"

namespace tdbg::service {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

class JobsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "jobs-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
    std::filesystem::create_directories(directory_ + "/jobs");
    Restart(SIZE_MAX);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  /// Another server, after a kill of this one.
  void Restart(size_t max_jobs) {
    ServiceOptions options;
    options.directory = directory_;
    options.max_jobs = max_jobs;
    ASSERT_TRUE(options.images.Add("train=/bin/sh").ok());
    options.tend = [this](const std::string& job) {
      tended_.push_back(base::BaseName(job));
      return OkStatus();
    };
    service_ = std::make_unique<Service>(std::move(options));
  }
  Answer<Json> Ask(const std::string& operation, const Json& request) {
    const bool logs = operation == "DescribeLogStreams";
    return service_->Handle((logs ? "Logs_20140328." : "SageMaker.") + operation, request.dump());
  }
  /// "CODE: message" of an error; "ok" otherwise.
  std::string Said(const std::string& operation, const Json& request) {
    const auto answer = Ask(operation, request);
    return answer.ok() ? "ok" : answer.refusal().code + ": " + answer.refusal().message;
  }
  std::string Create(const std::string& name, int rules = 0) {
    Json request = {{"TrainingJobName", name},
                    {"AlgorithmSpecification", {{"TrainingImage", "train:1"}, {"TrainingInputMode", "File"}}},
                    {"RoleArn", "arn:aws:iam::123456789012:role/r"},
                    {"OutputDataConfig", {{"S3OutputPath", "s3://bucket/out/"}}}};
    for (int i = 0; i < rules; ++i)
      request["DebugRuleConfigurations"].push_back(
          {{"RuleConfigurationName", "Rule" + std::to_string(i)}, {"RuleEvaluatorImage", "i"}});
    return Said("CreateTrainingJob", request);
  }
  /// As whoever looks after the job does.
  void Move(const std::string& name, const std::string& status, const std::string& phase,
            const std::string& rule_status = "") {
    const auto job = ReadJob(jobs().Paths(name).directory);
    ASSERT_TRUE(job.ok());
    JobProgress progress(*job, jobs().Paths(name));
    if (!rule_status.empty() && !job->rules.empty())
      progress.MoveRule(job->rules.back().rule, "Class", rule_status, "details", 3);
    progress.Move(status, phase, phase, status == "Failed" ? "why" : "");
  }
  std::string Phase(const std::string& name) {
    const auto job = Ask("DescribeTrainingJob", {{"TrainingJobName", name}});
    return job.ok() ? (*job)["SecondaryStatus"].get<std::string>() : job.refusal().message;
  }
  void SetTimeOfJobs(std::filesystem::file_time_type time) {
    std::filesystem::last_write_time(directory_ + "/jobs", time);
  }
  JobDirectory jobs() const { return JobDirectory(directory_ + "/jobs"); }

  std::string directory_;
  std::vector<std::string> tended_;
  std::unique_ptr<Service> service_;
};

/// All items of a list, page by page.
Json AllOf(Service* service, const std::string& operation, const char* list, Json request) {
  Json items = Json::array();
  for (;;) {
    const auto page = service->Handle("SageMaker." + operation, request.dump());
    EXPECT_TRUE(page.ok()) << page.refusal().message;
    if (!page.ok()) return items;
    EXPECT_LE((*page)[list].size(), request.value("MaxResults", size_t{10}));
    for (const Json& item : (*page)[list]) items.push_back(item);
    if (!page->contains("NextToken")) return items;
    request["NextToken"] = (*page)["NextToken"];
  }
}

/// What the folders say, without an index.
struct Folders {
  Json training = Json::array(), processing = Json::array(), streams = Json::array();
};

Folders ReadFolders(const JobDirectory& jobs) {
  Folders folders;
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(jobs.root()))
    if (entry.path().filename().string()[0] != '.') names.push_back(entry.path().filename());
  std::ranges::sort(names);
  for (const std::string& name : names) {
    const JobPaths paths = jobs.Paths(name);
    const auto job = ReadJob(paths.directory);
    if (!job.ok()) continue;
    const Json detail = LastDetail(paths);
    folders.training.push_back(SummarizeTrainingJob(*job, detail));
    for (const RuleJob& rule : job->rules)
      folders.processing.push_back(DescribeProcessingJob(*job, rule, detail, true));
    if (std::filesystem::exists(paths.run + "/logs"))
      folders.streams.push_back(name + "/algo-1-" + std::to_string(job->created_wall_nanos / 1'000'000'000));
  }
  std::sort(folders.streams.begin(), folders.streams.end());
  return folders;
}

/// The request's filters and order, said once more and as plainly as can be.
Json Expected(const Json& items, const Json& request, const std::string& kind) {
  const std::string name = kind + "JobName", status = kind + "JobStatus";
  std::vector<Json> wanted;
  for (const Json& item : items) {
    const std::string text = item[name];
    if (request.contains("StatusEquals") && item[status] != request["StatusEquals"]) continue;
    if (request.contains("NameContains") &&
        text.find(request["NameContains"].get<std::string>()) == std::string::npos)
      continue;
    const double created = item["CreationTime"], modified = item["LastModifiedTime"];
    if (request.contains("CreationTimeAfter") && created <= request["CreationTimeAfter"].get<double>())
      continue;
    if (request.contains("CreationTimeBefore") && created >= request["CreationTimeBefore"].get<double>())
      continue;
    if (request.contains("LastModifiedTimeAfter") &&
        modified <= request["LastModifiedTimeAfter"].get<double>())
      continue;
    wanted.push_back(item);
  }
  const std::string by = request["SortBy"];
  const std::string key = by == "Name" ? name : by == "Status" ? status : by;
  for (size_t i = 1; i < wanted.size(); ++i)  // equal ones stay in their order
    for (size_t j = i; j > 0 && wanted[j].at(key) < wanted[j - 1].at(key); --j)
      std::swap(wanted[j], wanted[j - 1]);
  if (request["SortOrder"] == "Descending") std::ranges::reverse(wanted);
  return wanted;
}

class RandomJobs : public JobsTest {
 protected:
  template <typename T>
  T Any(const std::vector<T>& of) {
    return of[chance_() % of.size()];
  }

  void DoSomething() {
    const std::string name = Any<std::string>({"a", "a-b", "b", "b-1", "c", "d"});
    const bool there = jobs().Exists(name), ended = there && HasEnded(LastDetail(jobs().Paths(name)));
    switch (chance_() % 10) {
      case 0:
      case 1:
      case 2:
        EXPECT_EQ(Create(name, static_cast<int>(chance_() % 3)) == "ok", !there);
        break;
      case 3:
      case 4:
        if (there && !ended) {
          std::filesystem::create_directories(jobs().Paths(name).run + "/logs");
          Move(name, "InProgress", "Training", Any<std::string>({"", "IssuesFound", "Error"}));
        }
        break;
      case 5:
      case 6:
        if (there && !ended) {
          const std::string status = Any<std::string>({"Completed", "Failed", "Stopped"});
          Move(name, status, status, Any<std::string>({"", "NoIssuesFound", "Stopped"}));
        }
        break;
      case 7:
        EXPECT_EQ(Said("DeleteTrainingJob", {{"TrainingJobName", name}}) == "ok", ended);
        break;
      case 8:
        (void)Said("StopTrainingJob", {{"TrainingJobName", name}});
        break;
      default:
        if (chance_() % 2)
          Restart(1 + chance_() % 3);
        else
          std::filesystem::remove_all(jobs().Paths(name).directory);  // by hand, beside the server
    }
  }

  Json SomeRequest(const Json& items, bool training) {
    Json request = {{"SortBy", Any<std::string>({"Name", "Status", "CreationTime"})},
                    {"SortOrder", Any<std::string>({"Ascending", "Descending"})},
                    {"MaxResults", 1 + chance_() % 4}};
    if (chance_() % 3 == 0) request["NameContains"] = Any<std::string>({"a", "b-", "1"});
    if (chance_() % 3 == 0)
      request["StatusEquals"] = Any<std::string>({"InProgress", "Completed", "Failed", "Stopped"});
    if (!items.empty()) {
      const Json& one = items[chance_() % items.size()];
      if (chance_() % 4 == 0) request["CreationTimeAfter"] = one["CreationTime"];
      if (chance_() % 4 == 0) request["CreationTimeBefore"] = one["CreationTime"];
      if (training && chance_() % 4 == 0) request["LastModifiedTimeAfter"] = one["LastModifiedTime"];
    }
    return request;
  }

  void Compare() {
    const Folders folders = ReadFolders(jobs());
    for (const bool training : {true, false}) {
      const std::string kind = training ? "Training" : "Processing";
      const Json& items = training ? folders.training : folders.processing;
      const Json request = SomeRequest(items, training);
      EXPECT_EQ(
          AllOf(service_.get(), "List" + kind + "Jobs", (kind + "JobSummaries").c_str(), request).dump(1),
          Expected(items, request, kind).dump(1))
          << request.dump();
    }
    Json streams = Json::array();
    const auto told = Ask("DescribeLogStreams", {{"logGroupName", "/aws/sagemaker/TrainingJobs"}});
    ASSERT_TRUE(told.ok());
    for (const Json& stream : (*told)["logStreams"]) streams.push_back(stream["logStreamName"]);
    EXPECT_EQ(streams, folders.streams);
  }

  std::mt19937 chance_;
  int past_ = 0;
};

TEST_F(RandomJobs, ListsSayWhatTheFoldersSayWhateverHasHappened) {
  for (unsigned seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    chance_.seed(seed);
    for (int i = 0; i < 60 && !HasFailure(); ++i) {
      for (unsigned changes = 1 + chance_() % 3; changes > 0; --changes) DoSomething();
      // As if jobs had come and gone long ago: what has changed since then is not seen at the directory.
      if (chance_() % 2)
        SetTimeOfJobs(std::filesystem::file_time_type::clock::now() - std::chrono::hours(10'000 - ++past_));
      Compare();
    }
    std::filesystem::remove_all(directory_ + "/jobs");
    std::filesystem::create_directories(directory_ + "/jobs");
  }
}

// The kernel's clock has ticks of some milliseconds, within which a directory changes and keeps its time.
TEST_F(JobsTest, ASecondChangeWithinOneTickIsSeen) {
  const JobDirectory jobs(directory_ + "/jobs");
  JobIndex index(jobs);
  const auto time = std::filesystem::file_time_type::clock::now() + std::chrono::hours(1);
  ASSERT_EQ(Create("a"), "ok");
  SetTimeOfJobs(time);
  ASSERT_EQ(index.Look().size(), 1u);
  ASSERT_EQ(Create("b"), "ok");
  SetTimeOfJobs(time);
  EXPECT_EQ(index.Look().size(), 2u);
}

TEST_F(JobsTest, AListThatCannotBeReadNowIsTheLastOne) {
  const JobDirectory jobs(directory_ + "/jobs");
  JobIndex index(jobs);
  ASSERT_EQ(Create("a"), "ok");
  ASSERT_EQ(index.Look().size(), 1u);
  std::filesystem::rename(directory_ + "/jobs", directory_ + "/away");
  EXPECT_EQ(index.Look().size(), 1u);
  std::filesystem::rename(directory_ + "/away", directory_ + "/jobs");
  EXPECT_EQ(index.Look().size(), 1u);
}

TEST_F(JobsTest, TheLastStreamsAreTheLastOfAll) {
  for (const char* const name : {"a", "b", "c"}) {
    ASSERT_EQ(Create(name), "ok");
    std::filesystem::create_directories(jobs().Paths(name).run + "/logs");
  }
  const auto told =
      Ask("DescribeLogStreams",
          {{"logGroupName", "/aws/sagemaker/TrainingJobs"}, {"descending", true}, {"limit", 2}});
  ASSERT_TRUE(told.ok());
  ASSERT_EQ((*told)["logStreams"].size(), 2u);
  EXPECT_THAT((*told)["logStreams"][0]["logStreamName"].get<std::string>(), StartsWith("c/"));
  EXPECT_THAT((*told)["logStreams"][1]["logStreamName"].get<std::string>(), StartsWith("b/"));
}

TEST_F(JobsTest, MoreThanItsNumberWaitInTheOrderOfTheirCreation) {
  Restart(2);
  for (const char* const name : {"z", "y", "x", "w"}) ASSERT_EQ(Create(name), "ok");
  EXPECT_THAT(tended_, ElementsAre("z", "y"));
  EXPECT_EQ(Phase("z"), "Starting");
  EXPECT_EQ(Phase("x"), "Pending");
  const auto job = Ask("DescribeTrainingJob", {{"TrainingJobName", "x"}});
  EXPECT_EQ((*job)["TrainingJobStatus"], "InProgress");
  EXPECT_THAT((*job)["SecondaryStatusTransitions"].back()["StatusMessage"].get<std::string>(),
              HasSubstr("2 jobs at a time"));
  EXPECT_THAT(Said("DeleteTrainingJob", {{"TrainingJobName", "x"}}), StartsWith("ValidationException"));

  Move("z", "Completed", "Completed");
  tended_.clear();
  service_->TendOrphans();
  EXPECT_THAT(tended_, ElementsAre("y", "x"));  // y: nobody holds its lock in this test
  tended_.clear();
  Move("y", "Failed", "Failed");
  EXPECT_EQ(Create("v"), "ok");  // overtakes nobody
  EXPECT_THAT(tended_, ElementsAre("w"));
}

TEST_F(JobsTest, AServerThatComesAfterAKilledOneCountsWhatThatOneHasStarted) {
  Restart(1);
  for (const char* const name : {"b", "a"}) ASSERT_EQ(Create(name), "ok");
  EXPECT_THAT(tended_, ElementsAre("b"));
  tended_.clear();
  // The first one has not said anything yet, as where its server was killed a moment ago.
  Restart(1);
  service_->TendOrphans();
  EXPECT_THAT(tended_, ElementsAre("b"));
  tended_.clear();
  Restart(2);
  service_->TendOrphans();
  EXPECT_THAT(tended_, ElementsAre("b", "a"));
}

TEST_F(JobsTest, WhatAnEarlierVersionHasStartedCountsToo) {
  Restart(1);
  for (const char* const name : {"a", "b"}) ASSERT_EQ(Create(name), "ok");
  Move("a", "InProgress", "Training");
  std::filesystem::remove(jobs().Paths("a").started);
  Restart(1);
  tended_.clear();
  service_->TendOrphans();
  EXPECT_THAT(tended_, ElementsAre("a"));
  EXPECT_EQ(Phase("b"), "Pending");
}

TEST_F(JobsTest, AJobThatWaitsCanBeStoppedAndDeleted) {
  Restart(1);
  for (const char* const name : {"a", "b", "c"}) ASSERT_EQ(Create(name), "ok");
  tended_.clear();
  EXPECT_EQ(Said("StopTrainingJob", {{"TrainingJobName", "b"}}), "ok");
  EXPECT_THAT(tended_, ElementsAre("b"));  // it is ended, though there is no room
  Move("b", "Stopped", "Stopped");
  EXPECT_EQ(Said("DeleteTrainingJob", {{"TrainingJobName", "b"}}), "ok");
  tended_.clear();
  service_->TendOrphans();
  EXPECT_THAT(tended_, ElementsAre("a"));
  EXPECT_EQ(Phase("c"), "Pending");
  Move("a", "Completed", "Completed");
  tended_.clear();
  service_->TendOrphans();
  EXPECT_THAT(tended_, ElementsAre("c"));
  tended_.clear();
  EXPECT_EQ(Said("StopTrainingJob", {{"TrainingJobName", "a"}}).substr(0, 19), "ValidationException");
  EXPECT_THAT(tended_, IsEmpty());
}

}  // namespace
}  // namespace tdbg::service
