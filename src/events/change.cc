#include "events/change.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/clock.h"

namespace tdbg::events {
namespace {

using Json = nlohmann::ordered_json;

// Every event holds them all: those of a thousand attempts would make a run's events larger than the run.
constexpr size_t kMostTransitions = 100;

std::string Arn(const JobState& job, const std::string& what, const std::string& name) {
  return fmt::format("arn:aws:sagemaker:{}:{}:{}/{}", job.region, job.account, what, name);
}

int64_t Millis(int64_t wall_nanos) { return wall_nanos / 1'000'000; }

std::string Seconds(int64_t wall_nanos) {
  char buffer[32];
  const std::string text = base::FormatUtc(wall_nanos, buffer);
  return text.substr(0, 19) + "Z";
}

Json DetailOf(const JobState& job, const Change& change, int64_t wall_nanos) {
  Json detail;
  detail["TrainingJobName"] = job.name;
  detail["TrainingJobArn"] = Arn(job, "training-job", job.name);
  detail["TrainingJobStatus"] = job.status;
  detail["SecondaryStatus"] = job.phase;
  if (!job.failure_reason.empty()) detail["FailureReason"] = job.failure_reason;
  detail["CreationTime"] = Millis(job.created_wall_nanos);
  if (job.training_wall_nanos > 0) detail["TrainingStartTime"] = Millis(job.training_wall_nanos);
  if (job.ended_wall_nanos > 0) detail["TrainingEndTime"] = Millis(job.ended_wall_nanos);
  detail["LastModifiedTime"] = Millis(wall_nanos);
  Json& transitions = detail["SecondaryStatusTransitions"] = Json::array();
  for (const JobTransition& transition : job.transitions) {
    Json& item = transitions.emplace_back(Json{{"Status", transition.status},
                                               {"StartTime", Millis(transition.began_wall_nanos)},
                                               {"StatusMessage", transition.message}});
    if (transition.ended_wall_nanos > 0) item["EndTime"] = Millis(transition.ended_wall_nanos);
  }
  Json& rules = detail["DebugRuleEvaluationStatuses"] = Json::array();
  for (const RuleState& rule : job.rules) {
    rules.push_back({{"RuleConfigurationName", rule.name},
                     {"RuleEvaluationJobArn",
                      Arn(job, "processing-job",
                          rule.processing_job.empty() ? job.name + "-" + rule.name : rule.processing_job)},
                     {"RuleEvaluationStatus", rule.status},
                     {"StatusDetails", rule.details},
                     {"LastModifiedTime", Millis(rule.changed_wall_nanos)}});
  }
  if (!job.more_detail.empty()) detail.update(Json::parse(job.more_detail));
  Json& ours = detail["tdbg"] = {{"run", job.run}, {"attempt", job.attempt}, {"change", "job"}};
  if (change.rule != nullptr) {
    ours["change"] = "rule";
    ours["name"] = change.rule->name;
    ours["rule"] = change.rule->rule;
    ours["status"] = change.rule->status;
    ours["details"] = change.rule->details;
    ours["global_step"] = change.global_step;
  }
  return detail;
}

}  // namespace

std::string NewUuid() {
  std::array<unsigned char, 16> bytes{};
  size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t got = ::getrandom(bytes.data() + have, bytes.size() - have, 0);
    if (got > 0) have += static_cast<size_t>(got);
  }
  bytes[6] = static_cast<unsigned char>((bytes[6] & 0x0f) | 0x40);
  bytes[8] = static_cast<unsigned char>((bytes[8] & 0x3f) | 0x80);
  std::string text;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", bytes[i]);
  }
  return text;
}

std::string EventJson(const JobState& job, const Change& change, const std::string& id, int64_t wall_nanos) {
  const Json event = {{"version", "0"},
                      {"id", id},
                      {"detail-type", "SageMaker Training Job State Change"},
                      {"source", "aws.sagemaker"},
                      {"account", job.account},
                      {"time", Seconds(wall_nanos)},
                      {"region", job.region},
                      {"resources", Json::array({Arn(job, "training-job", job.name)})},
                      {"detail", DetailOf(job, change, wall_nanos)}};
  return event.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void ChangeJournal::Tell(const Change& change, int64_t wall_nanos) {
  write_(kStateChange, wall_nanos, "{\"event\":" + EventJson(job_, change, NewUuid(), wall_nanos) + "}");
}

void ChangeJournal::SetAttempt(int64_t attempt) {
  const std::lock_guard lock(mutex_);
  job_.attempt = attempt;
}

void ChangeJournal::JobMoved(const std::string& status, const std::string& phase, const std::string& message,
                             const std::string& failure_reason) {
  const std::lock_guard lock(mutex_);
  const int64_t now = base::SystemClock().WallNanos();
  const bool ended = status == "Completed" || status == "Failed" || status == "Stopped";
  if (!job_.transitions.empty()) {
    const JobTransition& last = job_.transitions.back();
    if (job_.status == status && last.status == phase && last.message == message) return;
    job_.transitions.back().ended_wall_nanos = now;
  }
  job_.status = status;
  job_.phase = phase;
  job_.failure_reason = failure_reason;
  if (job_.created_wall_nanos == 0) job_.created_wall_nanos = now;
  if (phase == "Training" && job_.training_wall_nanos == 0) job_.training_wall_nanos = now;
  job_.ended_wall_nanos = ended ? now : 0;
  // The first one says when the job began.
  if (job_.transitions.size() >= kMostTransitions) job_.transitions.erase(job_.transitions.begin() + 1);
  job_.transitions.push_back({phase, message, now, ended ? now : 0});
  Tell({}, now);
}

void ChangeJournal::RuleMoved(const RuleState& rule, int64_t global_step) {
  const std::lock_guard lock(mutex_);
  auto same = std::find_if(job_.rules.begin(), job_.rules.end(),
                           [&](const RuleState& other) { return other.name == rule.name; });
  if (same == job_.rules.end()) {
    same = job_.rules.insert(job_.rules.end(), rule);
  } else if (same->status == rule.status && same->details == rule.details) {
    return;
  } else {
    *same = rule;
  }
  Tell({&*same, global_step}, base::SystemClock().WallNanos());
}

std::string ChangeJournal::job_status() const {
  const std::lock_guard lock(mutex_);
  return job_.status;
}

}  // namespace tdbg::events
