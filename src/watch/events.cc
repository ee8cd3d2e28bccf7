#include "watch/events.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <unordered_map>

#include "base/clock.h"
#include "base/file.h"
#include "base/redact.h"
#include "format/events.h"
#include "format/version.h"
#include "rules/incidents.h"
#include "watch/evidence.h"
#include "watch/muted.h"

namespace tdbg::watch {
namespace {

using Json = nlohmann::ordered_json;  // as it is written
using Event = format::Json;           // as it is read

constexpr const char* kAsked[] = {"start", "step", "end"};  // by rules::TimeLimitReached::Asked; stored

constexpr rules::RuleState kStates[] = {rules::RuleState::kInProgress, rules::RuleState::kNoIssuesFound,
                                        rules::RuleState::kIssuesFound, rules::RuleState::kError,
                                        rules::RuleState::kStopped};

std::string Dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

// JSON has no NaN; a string is what everything else in a run uses for it.
Json Number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

double NumberOf(const Event& json) {
  if (json.is_number()) return json.get<double>();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (json == "Infinity") return kInfinity;
  if (json == "-Infinity") return -kInfinity;
  return std::numeric_limits<double>::quiet_NaN();
}

double NumberOf(const Event& json, const char* key) {
  const auto found = json.find(key);
  return found == json.end() ? 0 : NumberOf(*found);
}

int64_t IntOf(const Event& json, const char* key) {
  int64_t value = 0;
  format::GetField(json, key, &value);
  return value;
}

std::string TextOf(const Event& json, const char* key) {
  std::string text;
  format::GetField(json, key, &text);
  return text;
}

// As PutEvidence writes it; what is of another form, or longer, is left out.
void ReadHistory(const Event& item, rules::Finding* finding) {
  const auto history = item.find("history");
  if (history == item.end() || !history->is_object()) return;
  const auto steps = history->find("steps"), values = history->find("values");
  if (steps == history->end() || values == history->end() || !steps->is_array() || !values->is_array())
    return;
  if (steps->size() != values->size() || steps->size() > rules::kMostHistory) return;
  for (size_t i = 0; i < steps->size(); ++i) {
    if (!(*steps)[i].is_number_integer()) return finding->history.clear();
    finding->history.emplace_back((*steps)[i].get<int64_t>(), NumberOf((*values)[i]));
  }
  finding->history_of = TextOf(*history, "of");
}

rules::RuleStatus StatusOf(const Event& json) {
  rules::RuleStatus status;
  status.name = TextOf(json, "name");
  status.rule = TextOf(json, "rule");
  const std::string state = TextOf(json, "status");
  for (const rules::RuleState candidate : kStates) {
    if (state == rules::RuleStateName(candidate)) status.state = candidate;
  }
  status.details = TextOf(json, "details");
  status.last_modified_wall_nanos = IntOf(json, "wall_nanos");
  status.steps_judged = IntOf(json, "steps_judged");
  status.steps_incomplete = IntOf(json, "steps_incomplete");
  status.output = TextOf(json, "output");
  status.code = TextOf(json, "code");
  format::GetField(json, "nonfinite_since", &status.nonfinite_since);
  const auto findings = json.find("findings");
  if (findings == json.end() || !findings->is_array()) return status;
  for (const Event& item : *findings) {
    if (!item.is_object()) continue;
    rules::Finding finding;
    finding.global_step = IntOf(item, "global_step");
    finding.tensor = TextOf(item, "tensor");
    finding.worker = TextOf(item, "worker");
    finding.measure = TextOf(item, "measure");
    finding.value = NumberOf(item, "value");
    finding.comparison = TextOf(item, "comparison");
    finding.threshold = NumberOf(item, "threshold");
    finding.text = TextOf(item, "text");
    finding.detector = TextOf(item, "detector");
    finding.advice = TextOf(item, "advice");
    format::GetField(item, "attempt", &finding.attempt);
    ReadHistory(item, &finding);
    status.findings.push_back(std::move(finding));
  }
  return status;
}

rules::TimeLimitReached TimeLimitOf(const Event& json) {
  rules::TimeLimitReached reached;
  reached.rule = TextOf(json, "name");
  reached.code = TextOf(json, "code");
  const std::string asked = TextOf(json, "asked");
  for (size_t i = 0; i < std::size(kAsked); ++i) {
    if (asked == kAsked[i]) reached.asked = static_cast<rules::TimeLimitReached::Asked>(i);
  }
  reached.global_step = IntOf(json, "global_step");
  reached.seconds = NumberOf(json, "seconds");
  reached.details = TextOf(json, "details");
  return reached;
}

// Calls f(kind, object) for every whole line.
template <typename F>
Status ForEachEvent(const std::string& run_path, std::string_view word, F&& f) {
  const std::string path = base::JoinPath(run_path, format::kEventsFile);
  if (!base::LocalFileSystem().Exists(path)) {
    if (base::LocalFileSystem().Exists(run_path)) return OkStatus();
    return NotFound("no such run: " + run_path);
  }
  TDBG_ASSIGN_OR_RETURN(const std::string text, base::LocalFileSystem().ReadFile(path, uint64_t{1} << 30));
  format::ForEachEvent(text, word, f);
  return OkStatus();
}

}  // namespace

std::string EventLine(const std::string& kind, int64_t wall_nanos, const std::string& fields_json) {
  char time[32];
  Json head;
  head["kind"] = kind;
  head["wall_nanos"] = wall_nanos;
  head["time"] = base::FormatUtc(wall_nanos, time);
  std::string line = Dump(head);
  // Spliced as text, not parsed: we made the fields ourselves, and there can be many findings.
  if (fields_json.size() > 2 && fields_json.front() == '{') {
    line.pop_back();
    line += "," + fields_json.substr(1);
  }
  return line;
}

std::string NoticeFields(const rules::RuleStatus& status, int64_t global_step,
                         const std::vector<Origin>& origins, const std::string& run,
                         const std::string& step_name) {
  Json json = Json::parse(StatusFields(status, global_step, origins));
  json["run"] = run;
  json["step_name"] = step_name;
  return Dump(json);
}

std::string StatusFields(const rules::RuleStatus& status, int64_t global_step,
                         const std::vector<Origin>& origins) {
  Json json;
  json["name"] = status.name;
  json["rule"] = status.rule;
  json["status"] = rules::RuleStateName(status.state);
  json["global_step"] = global_step;
  json["details"] = status.details;
  json["steps_judged"] = status.steps_judged;
  json["steps_incomplete"] = status.steps_incomplete;
  Json findings = Json::array();
  for (const rules::Finding& finding : status.findings) {
    Json item;
    item["global_step"] = finding.global_step;
    item["tensor"] = finding.tensor;
    item["worker"] = finding.worker;
    item["measure"] = finding.measure;
    item["value"] = Number(finding.value);
    item["comparison"] = finding.comparison;
    item["threshold"] = Number(finding.threshold);
    if (!finding.text.empty()) item["text"] = finding.text;
    if (!finding.detector.empty()) item["detector"] = finding.detector;
    if (!finding.advice.empty()) item["advice"] = finding.advice;
    if (finding.attempt >= 0) item["attempt"] = finding.attempt;
    PutEvidence(finding, Number, &item);
    findings.push_back(std::move(item));
  }
  json["findings"] = std::move(findings);
  // For receivers who want no more than a sentence each.
  std::vector<rules::Incident> of_status = rules::IncidentsOf({status});
  Explain(&of_status, origins);
  Json incidents = Json::array();
  for (const rules::Incident& incident : of_status) {
    if (incident.detector.empty()) continue;
    incidents.push_back({{"id", incident.id},
                         {"title", incident.title},
                         {"sentence", incident.sentence},
                         {"first_step", incident.first_step},
                         {"tensor", incident.tensor},
                         {"worker", incident.worker},
                         {"confidence", incident.confidence},
                         {"advice", incident.advice}});
    if (incident.muted()) incidents.back()["because"] = incident.muted_because;
    incidents.back()["muted"] = incident.muted();
  }
  if (!incidents.empty()) json["incidents"] = std::move(incidents);
  if (status.nonfinite_since >= 0) json["nonfinite_since"] = status.nonfinite_since;
  if (!status.output.empty()) json["output"] = status.output;
  if (!status.code.empty()) json["code"] = status.code;
  return Dump(json);
}

std::string WorkerLostFields(const rules::LostWorker& worker) {
  Json json;
  json["attempt"] = worker.attempt;
  json["worker"] = worker.worker;
  json["from_step"] = worker.from_step;
  return Dump(json);
}

std::string StalledFields(const rules::Stall& stall) {
  Json json;
  json["attempt"] = stall.attempt;
  json["after_step"] = stall.after_step;
  json["seconds"] = stall.seconds;
  return Dump(json);
}

std::string TimeLimitFields(const rules::TimeLimitReached& reached) {
  Json json;
  json["name"] = reached.rule;
  json["asked"] = kAsked[static_cast<size_t>(reached.asked)];
  json["global_step"] = reached.global_step;
  json["seconds"] = reached.seconds;
  json["code"] = reached.code;
  json["details"] = reached.details;
  return Dump(json);
}

std::string ActionFields(const ActionOutcome& outcome) {
  Json json;
  json["name"] = outcome.rule;
  json["action"] = outcome.action;
  if (!outcome.target.empty()) json["target"] = outcome.target;
  json["global_step"] = outcome.global_step;
  json["attempt"] = outcome.attempt;
  json["ok"] = outcome.status.ok();
  if (!outcome.status.ok()) json["error"] = base::RedactText(outcome.status.message());
  if (!outcome.output.empty()) json["output"] = base::RedactText(outcome.output);
  json["millis"] = outcome.millis;
  return Dump(json);
}

std::string ErrorFields(const Status& status) {
  Json json;
  json["code"] = CodeName(status.code());
  json["error"] = status.message();
  return Dump(json);
}

namespace {

// The last of each name.
class Statuses {
 public:
  void Add(rules::RuleStatus status) {
    const auto [place, is_new] = places_.try_emplace(status.name, list.size());
    if (is_new) {
      list.push_back(std::move(status));
    } else {
      list[place->second] = std::move(status);
    }
  }
  std::vector<rules::RuleStatus> list;

 private:
  std::unordered_map<std::string, size_t> places_;
};

}  // namespace

Result<std::vector<rules::RuleStatus>> ReadStatuses(const std::string& run_path) {
  Statuses statuses;
  TDBG_RETURN_IF_ERROR(
      ForEachEvent(run_path, "\"rule_status\"", [&](const std::string& kind, const Event& json) {
        if (kind == "rule_status") statuses.Add(StatusOf(json));
      }));
  return std::move(statuses.list);
}

Result<std::vector<rules::RuleStatus>> ReadShownStatuses(const std::string& run_path) {
  Statuses statuses;
  bool goes_on = false;  // of a run without a launcher nobody says so
  TDBG_RETURN_IF_ERROR(ForEachEvent(run_path, "", [&](const std::string& kind, const Event& json) {
    if (kind == "rule_status") statuses.Add(StatusOf(json));
    if (kind == "job_started" || kind == "job_ended") goes_on = kind == "job_started";
  }));
  ApplyMutesOf(run_path, goes_on, &statuses.list);
  return std::move(statuses.list);
}

Result<std::vector<JudgedWhole>> ReadJudgedWhole(const std::string& run_path) {
  std::vector<JudgedWhole> judged;
  std::unordered_map<std::string, size_t> places;
  int64_t attempt = -1;
  TDBG_RETURN_IF_ERROR(ForEachEvent(run_path, "", [&](const std::string& kind, const Event& json) {
    if (kind == "job_started") attempt = IntOf(json, "attempt");
    if (kind != "rule_status" || attempt < 0) return;
    const rules::RuleStatus status = StatusOf(json);
    if (status.state != rules::RuleState::kNoIssuesFound || status.steps_incomplete > 0) return;
    const auto [place, is_new] = places.try_emplace(status.name, judged.size());
    if (is_new) judged.emplace_back();
    judged[place->second] = {status.name, status.code, IntOf(json, "global_step"), attempt};
  }));
  return judged;
}

Result<std::vector<ActionOutcome>> ReadActions(const std::string& run_path) {
  std::vector<ActionOutcome> actions;
  TDBG_RETURN_IF_ERROR(ForEachEvent(run_path, "\"action\"", [&](const std::string& kind, const Event& json) {
    if (kind != "action") return;
    ActionOutcome outcome;
    outcome.rule = TextOf(json, "name");
    outcome.action = TextOf(json, "action");
    outcome.target = TextOf(json, "target");
    outcome.output = TextOf(json, "output");
    outcome.global_step = IntOf(json, "global_step");
    outcome.attempt = IntOf(json, "attempt");
    outcome.millis = IntOf(json, "millis");
    outcome.wall_nanos = IntOf(json, "wall_nanos");
    const auto ok = json.find("ok");
    if (ok == json.end() || *ok != true) outcome.status = Unavailable(TextOf(json, "error"));
    actions.push_back(std::move(outcome));
  }));
  return actions;
}

Result<Decisions> ReadDecisions(const std::string& run_path) {
  // On the heap: gcc 12 takes the optional in it for uninitialized when it is moved from the stack.
  const auto decisions = std::make_unique<Decisions>();
  std::set<int64_t> stopped;
  std::unordered_map<std::string, size_t>
      over;  // of a rule, how many of the time limits were before it began
  TDBG_RETURN_IF_ERROR(ForEachEvent(run_path, "", [&](const std::string& kind, const Event& json) {
    if (kind == "worker_lost") {
      decisions->lost.push_back({IntOf(json, "attempt"), TextOf(json, "worker"), IntOf(json, "from_step")});
    } else if (kind == "stalled") {
      decisions->stalls.push_back(
          {IntOf(json, "attempt"), IntOf(json, "after_step"), NumberOf(json, "seconds")});
    } else if (kind == "rule_time_limit") {
      decisions->time_limits.push_back(TimeLimitOf(json));
    } else if (kind == "rule_status") {
      const std::string rule = TextOf(json, "rule");
      decisions->stalls_were_watched |= rule == "StalledTrainingRule" || rule == "Profile";
      // A watcher begins here; only the last watcher's verdicts count.
      if (StatusOf(json).state != rules::RuleState::kInProgress) return;
      over[TextOf(json, "name")] = decisions->time_limits.size();
    } else if (kind == "job_started") {
      decisions->end.reset();
    } else if (kind == "job_ended") {
      const std::string stop = TextOf(json, "stop");
      decisions->end_wall_nanos = IntOf(json, "wall_nanos");
      stopped.erase(IntOf(json, "attempt"));  // of several the last one counts
      if (!stop.empty() && stop != "none") {
        decisions->end = rules::JobEnd::kStopped;
        stopped.insert(IntOf(json, "attempt"));
      } else {
        decisions->end = IntOf(json, "exit_code") == 0 ? rules::JobEnd::kCompleted : rules::JobEnd::kFailed;
      }
    }
  }));
  decisions->stopped.assign(stopped.begin(), stopped.end());
  std::vector<rules::TimeLimitReached> limits;
  for (size_t i = 0; i < decisions->time_limits.size(); ++i) {
    const auto began = over.find(decisions->time_limits[i].rule);
    if (began == over.end() || i >= began->second) limits.push_back(std::move(decisions->time_limits[i]));
  }
  decisions->time_limits = std::move(limits);
  return std::move(*decisions);
}

}  // namespace tdbg::watch
