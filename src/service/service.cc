#include "service/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "events/change.h"
#include "service/describe.h"
#include "service/job_state.h"
#include "service/logs.h"
#include "service/metrics.h"
#include "service/requests.h"

namespace tdbg::service {
namespace {

constexpr size_t kDefaultResults = 10;
constexpr const char* kPending = "Pending";  // SageMaker's word for a job that waits for a machine

Refusal NoSuchJob() { return Invalid("Requested resource not found."); }

Refusal ReadFailed(const Status& status) { return {"InternalFailure", status.message()}; }

std::string Lower(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return text;
}

/// The filters, order and pages that all listings have. Costs a look at each item, and a sort of the page
/// alone.
class Page {
 public:
  /// \param list  what the answer calls the items
  Page(const Json& request, const char* list)
      : request_(request),
        list_(list),
        by_(request.value("SortBy", "CreationTime")),
        part_(Lower(request.value("NameContains", ""))),
        status_(request.value("StatusEquals", "")),
        descending_(request.value("SortOrder", "Ascending") == "Descending") {}

  Answer<Json> Of(const std::vector<const Summary*>& items) const {
    std::vector<Ranked> ranked;
    ranked.reserve(items.size());
    const std::vector<Bound> bounds = Bounds();
    for (const Summary* const item : items) {
      if (Wanted(*item, bounds)) ranked.push_back(RankOf(*item, ranked.size()));
    }
    const auto before = [this](const Ranked& a, const Ranked& b) {
      return descending_ ? b.key() < a.key() : a.key() < b.key();
    };
    size_t first = 0;
    if (const std::string token = request_.value("NextToken", ""); !token.empty()) {
      const auto at =
          std::ranges::find_if(ranked, [&](const Ranked& one) { return one.item->name == token; });
      if (at == ranked.end()) return Invalid("Invalid NextToken: it is none that this service gave");
      first = static_cast<size_t>(
          std::ranges::count_if(ranked, [&, there = *at](const Ranked& one) { return before(one, there); }));
    }
    const size_t end = std::min(ranked.size(), first + request_.value("MaxResults", kDefaultResults));
    // The first one of the next page, too, which is its token.
    const size_t sorted = std::min(ranked.size(), end + 1);
    const auto at = [&](size_t i) { return ranked.begin() + static_cast<std::ptrdiff_t>(i); };
    if (first > 0) std::nth_element(at(0), at(first), ranked.end(), before);
    std::partial_sort(at(first), at(sorted), ranked.end(), before);
    Json out;
    Json& list = out[list_] = Json::array();
    for (size_t i = first; i < end; ++i) list.push_back(ranked[i].item->document);
    if (end < ranked.size()) out["NextToken"] = ranked[end].item->name;
    return out;
  }

 private:
  /// What an item is ordered by; of those that are equal by that, the one that was there before.
  struct Ranked {
    double number;
    std::string_view text;
    size_t place;
    const Summary* item;
    std::tuple<double, std::string_view, size_t> key() const { return {number, text, place}; }
  };
  struct Bound {
    double Summary::* of;
    double limit;
    bool after;
  };

  Ranked RankOf(const Summary& item, size_t place) const {
    const bool by_text = by_ != "CreationTime";
    const std::string_view text = by_ == "Name" ? item.name : item.status;
    return {by_text ? 0 : item.created, by_text ? text : std::string_view(), place, &item};
  }
  std::vector<Bound> Bounds() const {
    std::vector<Bound> bounds;
    for (const auto& [member, of, after] : {std::tuple("CreationTimeAfter", &Summary::created, true),
                                            {"CreationTimeBefore", &Summary::created, false},
                                            {"LastModifiedTimeAfter", &Summary::modified, true},
                                            {"LastModifiedTimeBefore", &Summary::modified, false}}) {
      if (request_.contains(member)) bounds.push_back({of, request_[member].get<double>(), after});
    }
    return bounds;
  }
  bool Wanted(const Summary& item, const std::vector<Bound>& bounds) const {
    if (!status_.empty() && item.status != status_) return false;
    if (!part_.empty() && Lower(item.name).find(part_) == std::string::npos) return false;
    return std::ranges::all_of(bounds, [&](const Bound& bound) {
      return bound.after ? item.*bound.of > bound.limit : item.*bound.of < bound.limit;
    });
  }

  const Json& request_;
  const char* list_;
  std::string by_, part_, status_;
  bool descending_;
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
  if (target.starts_with("Logs_")) return AnswerLogs(jobs_, index_.Look(), operation, request);
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
  index_.Forget(name);
  StartWaiting(UnfinishedJobs());
  return Json{{"TrainingJobArn", job.arn()}};
}

Answer<Json> Service::List(const Json& request) {
  std::vector<const Summary*> items;
  for (const auto& [name, job] : index_.Look()) {
    if (job.readable) items.push_back(&job.training);
  }
  return Page(request, "TrainingJobSummaries").Of(items);
}

Answer<Json> Service::ListProcessing(const Json& request) {
  std::vector<const Summary*> items;
  for (const auto& [name, job] : index_.Look()) {
    for (const IndexedRule& rule : job.rules) items.push_back(&rule.summary);
  }
  return Page(request, "ProcessingJobSummaries").Of(items);
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
  StartWaiting(UnfinishedJobs());  // it may be one of those: it is then ended at once
  return Json::object();
}

// With its run; what is in a bucket stays.
Answer<Json> Service::Delete(const JobPaths& paths) {
  const auto tending = base::LocalFileSystem().Lock(paths.lock);
  if (!tending.ok() || !HasEnded(LastDetail(paths)))
    return Invalid(
        "The request was rejected because the training job has not ended: StopTrainingJob stops it.");
  const std::string name = base::BaseName(paths.directory);
  index_.Forget(name);
  if (const Status gone = jobs_.Delete(name); !gone.ok()) return ReadFailed(gone);
  return Json::object();
}

Answer<Json> Service::Processing(const Json& request, bool stop) {
  const std::string wanted = Lower(request["ProcessingJobName"]);
  for (const auto& [name, indexed] : index_.Look()) {
    for (const auto& [rule, summary] : indexed.rules) {
      if (rule.processing.size() != wanted.size() || Lower(rule.processing) != wanted) continue;
      const JobPaths paths = jobs_.Paths(name);
      const auto job = ReadJob(paths.directory);
      if (!job.ok()) return ReadFailed(job.status());
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

Service::Unfinished Service::UnfinishedJobs() {
  Unfinished jobs;
  const std::map<std::string, IndexedJob>& all = index_.Look();
  for (const std::string& name : index_.unfinished()) {
    const IndexedJob& job = all.at(name);
    if (!job.readable) continue;
    // Those that an earlier version has started have no such file.
    const bool moved = !job.phase.empty() && job.phase != kPending;
    if (moved || base::LocalFileSystem().Exists(jobs_.Paths(name).started))
      jobs.started.push_back(name);
    else
      jobs.waiting.push_back({job.created_wall_nanos, name, !job.phase.empty()});
  }
  std::ranges::sort(jobs.waiting);
  return jobs;
}

void Service::StartWaiting(const Unfinished& jobs) {
  size_t room = options_.max_jobs - std::min(options_.max_jobs, jobs.started.size());
  for (const auto& [created, name, told] : jobs.waiting) {
    const JobPaths paths = jobs_.Paths(name);
    // One that is to be stopped trains nothing.
    const bool stopped = base::LocalFileSystem().Exists(paths.stop);
    if (room == 0 && !stopped) {
      if (!told) TellItWaits(paths);
      continue;
    }
    // Before it is started, so that whoever comes after this server counts it, too.
    if (!base::LocalFileSystem().WriteFileAtomic(paths.started, "").ok()) continue;
    if (!stopped) --room;
    // Whatever becomes of this: TendOrphans tries again, and a client that was told otherwise would find the
    // name taken.
    (void)options_.tend(paths.directory);
  }
}

void Service::TellItWaits(const JobPaths& paths) {
  const auto job = ReadJob(paths.directory);
  if (!job.ok()) return;
  JobProgress(*job, paths)
      .Move("InProgress", kPending,
            fmt::format("Waiting for its turn: this service runs {} at a time",
                        base::Counted(options_.max_jobs, "job")));
}

void Service::TendOrphans() {
  const Unfinished jobs = UnfinishedJobs();
  for (const std::string& name : jobs.started) {
    const JobPaths paths = jobs_.Paths(name);
    if (!base::LocalFileSystem().IsLocked(paths.lock)) (void)options_.tend(paths.directory);
  }
  StartWaiting(jobs);
}

}  // namespace tdbg::service
