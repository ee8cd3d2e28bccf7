#include "service/job_state.h"

#include <algorithm>

#include "base/clock.h"
#include "base/file.h"
#include "service/describe.h"

namespace tdbg::service {
namespace {

// Members of the request that an event tells, as EventBridge's do.
constexpr const char* kTold[] = {
    "HyperParameters",  "AlgorithmSpecification", "RoleArn",           "InputDataConfig",
    "OutputDataConfig", "ResourceConfig",         "StoppingCondition", "VpcConfig"};
constexpr size_t kMostDetails = 1024;

int64_t NanosOf(const Json& object, const char* member) {
  return object.value(member, int64_t{0}) * 1'000'000;
}

events::JobState StateOf(const JobDocument& job, const JobPaths& paths) {
  events::JobState state;
  state.name = job.name();
  state.run = paths.run;
  state.account = job.account;
  state.region = job.region;
  state.created_wall_nanos = job.created_wall_nanos;
  Json more = Json::object();
  for (const char* const member : kTold) {
    if (job.request.contains(member)) more[member] = job.request[member];
  }
  more["ModelArtifacts"] = {{"S3ModelArtifacts", ModelUri(job)}};
  Json& tags = more["Tags"] = Json::object();
  for (const Json& tag : job.request.value("Tags", Json::array()))
    tags[tag["Key"].get<std::string>()] = tag["Value"];
  state.more_detail = more.dump(-1, ' ', false, Json::error_handler_t::replace);
  for (const RuleJob& rule : job.rules) {
    if (!rule.profiler)
      state.rules.push_back({rule.rule, "", "InProgress", "", job.created_wall_nanos, rule.processing});
  }
  const Json detail = LastDetail(paths);
  if (!detail.contains("TrainingJobStatus")) return state;
  state.status = detail.value("TrainingJobStatus", "");
  state.phase = detail.value("SecondaryStatus", "");
  state.training_wall_nanos = NanosOf(detail, "TrainingStartTime");
  state.ended_wall_nanos = NanosOf(detail, "TrainingEndTime");
  for (const Json& one : detail.value("SecondaryStatusTransitions", Json::array()))
    state.transitions.push_back({one.value("Status", ""), one.value("StatusMessage", ""),
                                 NanosOf(one, "StartTime"), NanosOf(one, "EndTime")});
  for (events::RuleState& rule : state.rules) {
    for (const Json& told : detail.value("DebugRuleEvaluationStatuses", Json::array())) {
      if (told.value("RuleConfigurationName", "") != rule.name) continue;
      rule.status = told.value("RuleEvaluationStatus", "InProgress");
      rule.details = told.value("StatusDetails", "");
      rule.changed_wall_nanos = NanosOf(told, "LastModifiedTime");
    }
  }
  return state;
}

}  // namespace

JobProgress::JobProgress(const JobDocument& job, const JobPaths& paths) : job_(&job) {
  events::JobState state = StateOf(job, paths);
  for (const events::RuleState& rule : state.rules) rules_[rule.name] = rule.status;
  const std::string path = paths.events;
  journal_ = std::make_unique<events::ChangeJournal>(std::move(state), [path](const std::string& kind,
                                                                              int64_t wall_nanos,
                                                                              const std::string& fields) {
    char time[32];
    std::string line =
        Json{{"kind", kind}, {"wall_nanos", wall_nanos}, {"time", base::FormatUtc(wall_nanos, time)}}.dump();
    line.back() = ',';
    (void)base::LocalFileSystem().AppendLine(path, line + fields.substr(1));
  });
}

void JobProgress::Move(const std::string& status, const std::string& phase, const std::string& message,
                       const std::string& failure_reason) {
  journal_->JobMoved(status, phase, message, failure_reason.substr(0, kMostDetails));
}

void JobProgress::MoveRule(const std::string& name, const std::string& rule_class, const std::string& status,
                           const std::string& details, int64_t step) {
  const auto rule = std::ranges::find(job_->rules, name, &RuleJob::rule);
  if (rule == job_->rules.end()) return;
  rules_[name] = status;
  journal_->RuleMoved({name, rule_class, status, details.substr(0, kMostDetails),
                       base::SystemClock().WallNanos(), rule->processing},
                      step);
}

std::vector<std::string> JobProgress::OpenRules() const {
  std::vector<std::string> open;
  for (const auto& [name, status] : rules_) {
    if (status == "InProgress") open.push_back(name);
  }
  return open;
}

}  // namespace tdbg::service
