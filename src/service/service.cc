#include "service/service.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"
#include "base/file.h"
#include "base/stable_sort.h"
#include "events/change.h"
#include "service/describe.h"
#include "service/logs.h"
#include "service/metrics.h"
#include "service/requests.h"

namespace tdbg::service {
namespace {

constexpr size_t kDefaultResults = 10;

Refusal NoSuchJob() { return Invalid("Requested resource not found."); }

Refusal ReadFailed(const Status& status) { return {"InternalFailure", status.message()}; }

std::string Lower(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return text;
}

/// The filters, order and pages that all listings have. `items` are summaries.
class Page {
 public:
  Page(const Json& request, const char* name, const char* status, const char* list)
      : request_(request), name_(name), status_(status), list_(list) {}

  Answer<Json> Of(std::vector<Json> items) const {
    std::erase_if(items, [&](const Json& item) { return !Wanted(item); });
    const std::string by = request_.value("SortBy", "CreationTime");
    const std::string key = by == "Name" ? name_ : by == "Status" ? status_ : "CreationTime";
    base::StableSort(&items, [&](const Json& a, const Json& b) { return a.at(key) < b.at(key); });
    if (request_.value("SortOrder", "Ascending") == "Descending") std::ranges::reverse(items);
    size_t begin = 0;
    if (const std::string token = request_.value("NextToken", ""); !token.empty()) {
      const auto at = std::ranges::find_if(items, [&](const Json& item) { return item[name_] == token; });
      if (at == items.end()) return Invalid("Invalid NextToken: it is none that this service gave");
      begin = static_cast<size_t>(at - items.begin());
    }
    const size_t most = request_.value("MaxResults", kDefaultResults);
    Json out;
    Json& list = out[list_] = Json::array();
    for (size_t i = begin; i < items.size() && list.size() < most; ++i) list.push_back(items[i]);
    if (begin + most < items.size()) out["NextToken"] = items[begin + most][name_];
    return out;
  }

 private:
  bool Wanted(const Json& item) const {
    const auto within = [&](const char* after, const char* before, double at) {
      return (!request_.contains(after) || at > request_[after].get<double>()) &&
             (!request_.contains(before) || at < request_[before].get<double>());
    };
    if (request_.contains("StatusEquals") && item.at(status_) != request_["StatusEquals"]) return false;
    const std::string part = Lower(request_.value("NameContains", ""));
    if (Lower(item.at(name_)).find(part) == std::string::npos) return false;
    return within("CreationTimeAfter", "CreationTimeBefore", item.at("CreationTime")) &&
           within("LastModifiedTimeAfter", "LastModifiedTimeBefore", item.at("LastModifiedTime"));
  }

  const Json& request_;
  const char *name_, *status_, *list_;
};

}  // namespace

Answer<Json> Service::Handle(const std::string& target, std::string_view body) {
  const ShapePtr shape = RequestShape(target);
  if (!shape)
    return Refusal{"UnknownOperationException",
                   fmt::format("{} is not offered by this service (docs/sagemaker.md lists what is)",
                               target.substr(0, 128))};
  Answer<Json> parsed = ParseBody(body);
  if (!parsed.ok()) return parsed.refusal();
  if (const auto bad = Check(*parsed, *shape)) return *bad;
  const Json request = Known(*parsed, *shape);
  const std::string operation = target.substr(target.find('.') + 1);
  if (target.starts_with("AWSEvents.")) return events_.AnswerEvents(operation, request);
  if (target.starts_with("Logs_")) return AnswerLogs(jobs_, operation, request);
  if (operation == "CreateTrainingJob") return Create(request);
  if (operation == "ListTrainingJobs") return List(request);
  if (operation == "ListProcessingJobs") return ListProcessing(request);
  if (operation == "DescribeProcessingJob" || operation == "StopProcessingJob")
    return Processing(request, operation == "StopProcessingJob");
  if (operation.ends_with("Tags")) return Tags(operation, request);

  const std::string name = request["TrainingJobName"];
  const JobPaths paths = jobs_.Paths(name);
  if (!jobs_.Exists(name)) return NoSuchJob();
  if (operation == "StopTrainingJob") return Stop(paths);
  if (operation == "DeleteTrainingJob") return Delete(paths);
  if (operation == "UpdateTrainingJob") return Update(request);
  const auto job = ReadJob(paths.directory);
  if (!job.ok()) return ReadFailed(job.status());
  return DescribeTrainingJob(*job, LastDetail(paths), ReadMetrics(paths));
}

Answer<Json> Service::Create(const Json& request) {
  if (auto bad = CheckTrainingJob(request)) return *bad;
  JobDocument job;
  job.request = request;
  job.region = options_.region;
  job.account = options_.account;
  job.endpoint = options_.endpoint;
  job.created_wall_nanos = base::SystemClock().WallNanos();
  const Images::Found image = options_.images.Find(request["AlgorithmSpecification"]["TrainingImage"]);
  job.python = image.python;
  job.no_python = image.why_not;
  const std::string name = job.name();
  for (const bool profiler : {false, true}) {
    const char* const list = profiler ? "ProfilerRuleConfigurations" : "DebugRuleConfigurations";
    for (const Json& rule : request.value(list, Json::array())) {
      const std::string of = rule["RuleConfigurationName"];
      job.rules.push_back(
          {of, fmt::format("{}-{}-{}", name.substr(0, 26), of.substr(0, 26), events::NewUuid().substr(0, 8)),
           profiler});
    }
  }
  const Status created = jobs_.Create(job);
  if (created.code() == Code::kAlreadyExists)
    return Refusal{"ResourceInUse",
                   fmt::format("Training job names must be unique within an AWS account and region, "
                               "and a training job with this name already exists ({})",
                               job.arn())};
  if (!created.ok()) return ReadFailed(created);
  // It is there, whatever becomes of this: TendOrphans tries again, and a client that was told otherwise
  // would find the name taken.
  (void)options_.tend(jobs_.Paths(name).directory);
  return Json{{"TrainingJobArn", job.arn()}};
}

Answer<Json> Service::List(const Json& request) const {
  std::vector<Json> items;
  for (const std::string& name : jobs_.Names()) {
    const JobPaths paths = jobs_.Paths(name);
    if (const auto job = ReadJob(paths.directory); job.ok())
      items.push_back(SummarizeTrainingJob(*job, LastDetail(paths)));
  }
  return Page(request, "TrainingJobName", "TrainingJobStatus", "TrainingJobSummaries").Of(std::move(items));
}

Answer<Json> Service::ListProcessing(const Json& request) const {
  std::vector<Json> items;
  for (const std::string& name : jobs_.Names()) {
    const JobPaths paths = jobs_.Paths(name);
    const auto job = ReadJob(paths.directory);
    if (!job.ok()) continue;
    const Json detail = LastDetail(paths);
    for (const RuleJob& rule : job->rules) items.push_back(DescribeProcessingJob(*job, rule, detail, true));
  }
  return Page(request, "ProcessingJobName", "ProcessingJobStatus", "ProcessingJobSummaries")
      .Of(std::move(items));
}

Answer<Json> Service::Stop(const JobPaths& paths) {
  const Json detail = LastDetail(paths);
  if (HasEnded(detail))
    return Invalid(fmt::format("The request was rejected because the training job is in status {}.",
                               detail["TrainingJobStatus"].get<std::string>()));
  // A file, and not a signal: whoever looks after the job may just be starting, or be started again.
  if (!base::LocalFileSystem().Exists(paths.stop)) {
    if (const Status asked = base::LocalFileSystem().WriteFileAtomic(paths.stop, "StopTrainingJob\n");
        !asked.ok())
      return ReadFailed(asked);
  }
  return Json::object();
}

// With its run; what is in a bucket stays.
Answer<Json> Service::Delete(const JobPaths& paths) {
  const auto tending = base::LocalFileSystem().Lock(paths.lock);
  if (!tending.ok() || !HasEnded(LastDetail(paths)))
    return Invalid(
        "The request was rejected because the training job has not ended: StopTrainingJob stops it.");
  if (const Status gone = jobs_.Delete(base::BaseName(paths.directory)); !gone.ok()) return ReadFailed(gone);
  return Json::object();
}

Answer<Json> Service::Processing(const Json& request, bool stop) {
  const std::string wanted = Lower(request["ProcessingJobName"]);
  for (const std::string& name : jobs_.Names()) {
    const JobPaths paths = jobs_.Paths(name);
    const auto job = ReadJob(paths.directory);
    if (!job.ok()) continue;
    for (const RuleJob& rule : job->rules) {
      if (Lower(rule.processing) != wanted) continue;
      const Json told = DescribeProcessingJob(*job, rule, LastDetail(paths), false);
      return stop ? StopRule(*job, rule, paths, told) : Answer<Json>(told);
    }
  }
  return NoSuchJob();
}

Answer<Json> Service::StopRule(const JobDocument& job, const RuleJob& rule, const JobPaths& paths,
                               const Json& told) {
  const std::string status = told.at("ProcessingJobStatus");
  if (status == "Stopping") return Json::object();
  if (status != "InProgress")
    return Invalid(
        fmt::format("The request was rejected because the processing job is in status {}.", status));
  for (const Json& one : job.request.value("DebugRuleConfigurations", Json::array())) {
    if (one["RuleConfigurationName"] == rule.rule && one.contains("RuleParameters") &&
        one["RuleParameters"].contains("action_json"))
      return Invalid(
          "a rule with actions is judged, and acts, for as long as its training job runs: StopTrainingJob "
          "stops the job");
  }
  if (const Status asked = base::LocalFileSystem().AppendLine(paths.stop_rules, rule.rule); !asked.ok())
    return ReadFailed(asked);
  return Json::object();
}

Answer<Json> Service::Update(const Json& request) const {
  const auto job = ReadJob(jobs_.Paths(request["TrainingJobName"]).directory);
  if (!job.ok()) return ReadFailed(job.status());
  return Json{{"TrainingJobArn", job->arn()}};
}

Answer<Json> Service::Tags(const std::string& operation, const Json& request) const {
  const std::string arn = request["ResourceArn"];
  const std::string name = arn.substr(arn.rfind('/') + 1);
  if (arn.find(":training-job/") == std::string::npos || !IsJobName(name) || !jobs_.Exists(name))
    return Refusal{"ResourceNotFound", "no training job has this ARN: " + arn};
  Json tags = jobs_.Tags(name);
  const auto without = [&](const std::string& key) {
    Json kept = Json::array();
    for (const Json& tag : tags) {
      if (tag.at("Key") != key) kept.push_back(tag);
    }
    tags = kept;
  };
  if (operation == "ListTags") return Json{{"Tags", tags}};
  if (operation == "DeleteTags") {
    for (const Json& key : request["TagKeys"]) without(key);
  } else {
    for (const Json& tag : request["Tags"]) {
      without(tag["Key"]);
      tags.push_back(tag);
    }
    if (tags.size() > 50) return Refusal{"ResourceLimitExceeded", "tags: at most 50 for each resource"};
  }
  if (const Status kept = jobs_.SetTags(name, tags); !kept.ok()) return ReadFailed(kept);
  return operation == "AddTags" ? Json{{"Tags", tags}} : Json::object();
}

void Service::TendOrphans() {
  for (const std::string& name : jobs_.Names()) {
    const JobPaths paths = jobs_.Paths(name);
    if (!ReadJob(paths.directory).ok() || base::LocalFileSystem().IsLocked(paths.lock) ||
        HasEnded(LastDetail(paths)))
      continue;
    (void)options_.tend(paths.directory);
  }
}

}  // namespace tdbg::service
