#include "cli/run_summary.h"

#include <fmt/format.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/black_boxes.h"
#include "cli/run_events.h"
#include "cli/run_path.h"
#include "jobs/run_directory.h"
#include "rules/details.h"
#include "trial/coarse.h"
#include "trial/mode_name.h"
#include "watch/evidence.h"
#include "watch/watcher.h"

namespace tdbg::cli {
namespace {

constexpr size_t kMaxOriginsShown = 4;
constexpr size_t kMaxFailuresShown = 8;  // one failing worker may take down hundreds

}  // namespace

Result<RunSummary> SummariseRun(Trial& trial, std::vector<rules::RuleStatus> statuses) {
  RunSummary report;
  report.path = trial.path();
  report.name = trial.name();
  report.state = trial.state();
  report.launcher_alive = jobs::LauncherAlive(report.path);
  report.attempts = trial.attempts();
  if (report.attempts.empty()) report.attempts = jobs::ListAttempts(report.path);
  report.hosts = HostsOf(report.path, report.attempts);
  report.workers = trial.workers();
  const std::vector<int64_t> steps = trial.steps();
  report.steps = static_cast<int64_t>(steps.size());
  report.train_steps = static_cast<int64_t>(trial.steps(ModeKey::kTrain).size());
  report.eval_steps = static_cast<int64_t>(trial.steps(ModeKey::kEval).size());
  if (!steps.empty()) {
    report.first_step = steps.front();
    report.last_step = steps.back();
  }
  report.last_seen_step = trial.last_seen_step();
  report.last_seen_wall_nanos = trial.last_seen_wall_nanos();
  if (const auto names = trial.tensor_names(); names.ok()) report.tensors = names->size();
  report.bytes = trial.bytes_on_disk();
  report.dropped = trial.dropped();
  report.overheads = OverheadsOf(TrialAccess(trial));
  report.empty_collections = EmptyCollections(trial, report.path);
  const CoarseRows::Thinned thinned = CoarseRows(trial).ThinnedSteps();
  report.coarse_steps = static_cast<int64_t>(thinned.steps);
  report.coarse_first = thinned.first;
  report.coarse_last = thinned.last;
  report.damage = trial.damage();
  report.ending = LastJobEnding(report.path);
  report.starts = AttemptStarts(report.path);
  report.checkpoints = CheckpointReturns(report.path);
  if (!report.attempts.empty()) report.exports = ReadExports(report.path, report.attempts.back());
  if (statuses.empty()) {
    auto read = watch::ReadShownStatuses(report.path);
    if (read.ok()) {
      statuses = std::move(*read);
    } else if (read.status().code() != Code::kNotFound) {
      return read.status();
    }
  }
  report.rules = std::move(statuses);
  report.incidents = rules::IncidentsOf(report.rules);
  report.origins = watch::OriginsOf(trial);
  watch::Explain(&report.incidents, report.origins);
  const bool failed = Failed(report) || (!report.ending && report.state == RunState::kCrashed);
  for (WorkerEnd& end : trial.worker_ends()) {
    if (end.reason == "exception" || (failed && end.reason.empty()))
      report.failures.push_back(std::move(end));
  }
  // A run that nobody watched has none; one whose events cannot be read has said so above.
  if (auto actions = watch::ReadActions(report.path); actions.ok()) report.actions = std::move(*actions);
  report.names = NamesFor(trial, report.rules, report.origins, report.actions);
  if (report.workers.empty()) {
    // `tdbg run` asks before it ends itself, and when its command has ended.
    const bool goes_on = IsAlive(report) && !(report.ending && !report.attempts.empty() &&
                                              report.ending->attempt == report.attempts.back());
    // If the run is damaged, something was captured: guessing why nothing was would mislead.
    report.why_nothing = report.damage.empty()
                             ? WhyNothingWasCaptured(report.path, report.attempts, goes_on)
                             : "what was written cannot be read: " + Printable(report.damage.front());
  }
  return report;
}

StepNames NamesFor(const Trial& trial, const std::vector<rules::RuleStatus>& statuses,
                   const std::vector<watch::Origin>& origins,
                   const std::vector<watch::ActionOutcome>& actions) {
  std::vector<int64_t> steps;
  for (const rules::RuleStatus& status : statuses) {
    for (const rules::Finding& finding : status.findings) steps.push_back(finding.global_step);
  }
  for (const watch::Origin& origin : origins) steps.push_back(origin.global_step);
  for (const watch::ActionOutcome& action : actions) steps.push_back(action.global_step);
  return StepNames(trial, steps);
}

bool IsAlive(const RunSummary& report) { return report.launcher_alive || report.state == RunState::kRunning; }

namespace {

// A signal by its name: 137 is an out-of-memory kill to those only who know the number by heart.
std::string ExitWords(int exit_code) {
  const char* const name = exit_code > 128 ? ::sigabbrev_np(exit_code - 128) : nullptr;
  return fmt::format("exit code {}", exit_code) + (name ? fmt::format(", SIG{}", name) : std::string());
}

}  // namespace

bool Failed(const RunSummary& report) {
  return report.ending && report.ending->stop == "none" && report.ending->exit_code != 0;
}

std::vector<std::pair<std::string, std::string>> FailureLines(const RunSummary& report) {
  std::vector<std::pair<std::string, std::string>> lines;
  for (const WorkerEnd& end : report.failures) {
    if (lines.size() == kMaxFailuresShown) {
      lines.emplace_back("", fmt::format("and {} more", report.failures.size() - kMaxFailuresShown));
      break;
    }
    std::string words =
        end.last_step < 0 ? "before its first step" : fmt::format("after step {}", end.last_step);
    words += end.reason.empty()    ? ": gone without a goodbye, as a killed process is"
             : end.message.empty() ? ": an exception"
                                   : ": " + Printable(end.message.substr(0, end.message.find('\n')));
    lines.emplace_back(Printable(end.worker), std::move(words));
  }
  return lines;
}

std::string StateWords(const RunSummary& report) {
  if (IsAlive(report)) return report.workers.empty() ? "started" : "running";
  if (report.ending && (report.attempts.empty() || report.ending->attempt == report.attempts.back())) {
    const JobEnding& ending = *report.ending;
    if (ending.stop == "requested") return "stopped by " + Printable(ending.stopped_by);
    if (ending.stop == "signal") return "interrupted";
    if (ending.exit_code != 0) return "failed (" + ExitWords(ending.exit_code) + ")";
    return "completed";
  }
  switch (report.state) {
    case RunState::kWaiting:
      return "not started";
    case RunState::kRunning:
      return "running";
    case RunState::kEnded:
      return "completed";
    case RunState::kCrashed:
      return "crashed";
  }
  return "unknown";
}

std::string MeasureWords(const rules::Finding& finding) {
  if (finding.measure.empty()) return finding.text.empty() ? "condition met" : Printable(finding.text);
  if (finding.comparison.empty()) return fmt::format("{} {:.6g}", Printable(finding.measure), finding.value);
  return fmt::format("{} {:.6g} {} {:.6g}", Printable(finding.measure), finding.value,
                     Printable(finding.comparison), finding.threshold);
}

std::string FindingWords(const rules::Finding& finding) {
  std::string words = finding.tensor.empty() ? "" : Printable(finding.tensor) + ": ";
  words += MeasureWords(finding);
  return words;
}

std::string CountOfDropped(const DroppedInfo& drop) {
  if (drop.kind == "raw") return base::Counted(drop.count, "raw tensor");
  if (drop.kind == "summary") return base::Counted(drop.count, "statistic");
  return base::Counted(drop.count, drop.kind);  // a histogram, a step
}

std::string DroppedWords(const DroppedInfo& drop) {
  // The last step of a job that its user stopped was not finished; nothing has crashed.
  std::string text = fmt::format("{} ({})", Printable(CountOfDropped(drop)),
                                 drop.cause == "crashed" ? "not finished" : Printable(drop.cause));
  if (drop.bytes > 0) text += ", " + base::FormatBytes(drop.bytes);
  if (drop.first_step >= 0) text += ", " + StepSpan(drop.first_step, drop.last_step);
  return text;
}

std::string DroppedLine(const DroppedInfo& drop) {
  return DroppedWords(drop) + fmt::format(" ({}){}{}", Printable(drop.worker), drop.text.empty() ? "" : ": ",
                                          Printable(drop.text));
}

std::vector<std::string> OverheadLines(const RunSummary& report) {
  std::vector<std::string> lines;
  const bool several = report.workers.size() > 1;
  for (const WorkersOverhead& one : report.overheads) {
    lines.push_back(Printable(fmt::format("since step {} {}{}", one.overhead.from_step, one.overhead.Words(),
                                          several ? " (" + one.worker + ")" : "")));
  }
  return lines;
}

namespace {

Json OverheadToJson(const WorkersOverhead& one) {
  Json json = Json::parse(one.overhead.ToJson());
  json["worker"] = one.worker;
  return json;
}

}  // namespace

Json DroppedToJson(const std::vector<DroppedInfo>& dropped) {
  Json list = Json::array();
  for (const DroppedInfo& drop : dropped) {
    list.push_back({{"worker", drop.worker},
                    {"cause", drop.cause},
                    {"kind", drop.kind},
                    {"text", drop.text},
                    {"count", drop.count},
                    {"bytes", drop.bytes},
                    {"first_step", drop.first_step},
                    {"last_step", drop.last_step}});
  }
  return list;
}

Colour ColourOf(rules::RuleState state) {
  switch (state) {
    case rules::RuleState::kIssuesFound:
      return Colour::kRed;
    case rules::RuleState::kNoIssuesFound:
      return Colour::kGreen;
    case rules::RuleState::kError:
      return Colour::kYellow;
    case rules::RuleState::kInProgress:
    case rules::RuleState::kStopped:
      break;
  }
  return Colour::kNone;
}

namespace {

void AddMode(const StepNames& names, int64_t global_step, Json* json) {
  const auto step = names.Find(global_step);
  if (!step) return;
  (*json)["mode"] = ModeName(step->mode);
  (*json)["mode_step"] = step->mode_step;
}

}  // namespace

Json FindingToJson(const rules::Finding& finding, const StepNames& names) {
  Json json;
  json["global_step"] = finding.global_step;
  AddMode(names, finding.global_step, &json);
  json["tensor"] = finding.tensor;
  json["worker"] = finding.worker;
  json["measure"] = finding.measure;
  json["value"] = JsonOf(finding.value);
  json["comparison"] = finding.comparison;
  json["threshold"] = JsonOf(finding.threshold);
  json["text"] = finding.text;
  if (!finding.detector.empty()) json["detector"] = finding.detector;
  if (finding.attempt >= 0) json["attempt"] = finding.attempt;
  watch::PutEvidence(finding, [](double value) { return Json(JsonOf(value)); }, &json);
  return json;
}

namespace {

Json RuleToJson(const rules::RuleStatus& status, const StepNames& names) {
  Json entry;
  entry["RuleConfigurationName"] = status.name;
  entry["RuleEvaluationStatus"] = rules::RuleStateName(status.state);
  entry["StatusDetails"] = status.details;
  entry["LastModifiedTime"] = JsonTime(status.last_modified_wall_nanos);
  entry["rule"] = status.rule;
  entry["steps_judged"] = status.steps_judged;
  entry["steps_incomplete"] = status.steps_incomplete;
  Json findings = Json::array();
  for (const rules::Finding& finding : status.findings) findings.push_back(FindingToJson(finding, names));
  entry["findings"] = std::move(findings);
  return entry;
}

}  // namespace

Json VerdictsToJson(const std::vector<rules::RuleStatus>& statuses, const StepNames& names) {
  const std::vector<int> causes = rules::CausesOf(statuses);
  Json list = Json::array();
  for (size_t i = 0; i < statuses.size(); ++i) {
    list.push_back(RuleToJson(statuses[i], names));
    if (causes[i] >= 0) list.back()["follows_from"] = statuses[static_cast<size_t>(causes[i])].name;
  }
  return list;
}

Json IncidentsToJson(const std::vector<rules::Incident>& incidents, const StepNames& names) {
  Json list = Json::array();
  const auto findings = [&](const std::vector<rules::Finding>& of) {
    Json json = Json::array();
    for (const rules::Finding& finding : of) json.push_back(FindingToJson(finding, names));
    return json;
  };
  for (const rules::Incident& incident : incidents) {
    Json json;
    rules::ForEachField(incident, [&](const char* name, const auto& value) { json[name] = value; });
    AddMode(names, incident.first_step, &json);
    json["evidence"] = findings(incident.evidence);
    json["consequences"] = findings(incident.consequences);
    list.push_back(std::move(json));
  }
  return list;
}

Json OriginsToJson(const std::vector<watch::Origin>& origins, const StepNames& names) {
  Json list = Json::array();
  for (const watch::Origin& origin : origins) {
    Json fields = Json::parse(watch::OriginFields(origin), nullptr, /*allow_exceptions=*/false);
    if (!fields.is_object()) continue;
    AddMode(names, origin.global_step, &fields);
    list.push_back(std::move(fields));
  }
  return list;
}

std::vector<std::string> OriginLines(const std::vector<watch::Origin>& origins, const StepNames& names) {
  bool several = false;
  for (const watch::Origin& origin : origins) several |= origin.worker != origins.front().worker;
  std::vector<std::string> lines;
  for (const watch::Origin& origin : origins) {
    if (lines.size() == kMaxOriginsShown) {
      lines.push_back(fmt::format("and {} more", origins.size() - kMaxOriginsShown));
      break;
    }
    lines.push_back(Printable(fmt::format("{}{}: {}", several ? origin.worker + ", " : std::string(),
                                          names.Of(origin.global_step), origin.sentence)));
    if (!origin.advice.empty()) lines.back() += "; " + Printable(origin.advice);
  }
  return lines;
}

Json SummaryToJson(const RunSummary& report) {
  Json json;
  json["run"] = LastingPlace(report.path);
  json["name"] = report.name;
  json["state"] = StateWords(report);
  json["alive"] = IsAlive(report);
  json["rules"] = VerdictsToJson(report.rules, report.names);
  json["incidents"] = IncidentsToJson(report.incidents, report.names);
  json["nan_origins"] = OriginsToJson(report.origins, report.names);
  json["black_boxes"] = BlackBoxesToJson(BlackBoxesOf(report.path));
  if (report.ending) {
    json["job"] = {{"attempt", report.ending->attempt},
                   {"exit_code", report.ending->exit_code},
                   {"stop", report.ending->stop},
                   {"stopped_by", report.ending->stopped_by},
                   {"ended", JsonTime(report.ending->wall_nanos)}};
  } else {
    json["job"] = nullptr;
  }
  Json actions = Json::array();
  for (const watch::ActionOutcome& action : report.actions) {
    Json entry = {{"rule", action.rule},
                  {"action", action.action},
                  {"target", action.target},
                  {"global_step", action.global_step},
                  {"attempt", action.attempt},
                  {"ok", action.status.ok()},
                  {"time", JsonTime(action.wall_nanos)}};
    if (!action.status.ok()) entry["error"] = action.status.message();
    if (!action.output.empty()) entry["output"] = action.output;
    actions.push_back(std::move(entry));
  }
  json["actions"] = std::move(actions);
  json["attempts"] = report.attempts;
  json["hosts"] = report.hosts;
  json["step_bases"] = Json::array();
  for (const AttemptStart& start : report.starts) {
    json["step_bases"].push_back({{"attempt", start.attempt},
                                  {"step", start.step},
                                  {"from", start.from.empty() ? Json() : Json(start.from)},
                                  {"replaced", std::max<int64_t>(0, start.replaced)},
                                  {"missing", std::max<int64_t>(0, -start.replaced)}});
    for (const AttemptStart::Other& other : start.others) {
      json["step_bases"].back()["others"].push_back(
          {{"worker", other.worker}, {"step", other.step}, {"recorded", other.recorded}});
    }
  }
  json["checkpoints"] = Json::array();
  for (const CheckpointReturn& back : report.checkpoints) json["checkpoints"].push_back(back.Fields());
  json["workers"] = report.workers;
  json["failures"] = Json::array();
  for (const WorkerEnd& end : report.failures) {
    json["failures"].push_back({{"worker", end.worker},
                                {"reason", end.reason.empty() ? Json() : Json(end.reason)},
                                {"message", end.message},
                                {"last_step", end.last_step}});
  }
  json["steps"] = {{"all", report.steps},       {"TRAIN", report.train_steps},
                   {"EVAL", report.eval_steps}, {"first", report.first_step},
                   {"last", report.last_step},  {"last_seen", report.last_seen_step}};
  json["last_seen_time"] = JsonTime(report.last_seen_wall_nanos);
  json["tensors"] = report.tensors;
  json["bytes"] = report.bytes;
  Json dropped = DroppedToJson(report.dropped);
  json["losses"] = dropped;  // the name until 0.1.0; gone in 0.3
  json["dropped"] = std::move(dropped);
  json["empty_collections"] = Json::array();
  for (const EmptyCollection& one : report.empty_collections)
    json["empty_collections"].push_back(
        {{"name", one.name}, {"patterns", one.patterns}, {"nearby", one.nearby}});
  json["overhead"] = Json::array();
  for (const WorkersOverhead& one : report.overheads) json["overhead"].push_back(OverheadToJson(one));
  json["coarse_steps"] = {
      {"all", report.coarse_steps}, {"first", report.coarse_first}, {"last", report.coarse_last}};
  json["damage"] = report.damage;
  Json exports = Json::array();
  for (const ExportOutcome& done : report.exports) {
    exports.push_back({{"to", done.to}, {"path", done.path}, {"ok", done.ok}, {"text", done.text}});
  }
  json["exports"] = std::move(exports);
  if (!report.why_nothing.empty()) json["nothing_captured"] = report.why_nothing;
  return json;
}

}  // namespace tdbg::cli
