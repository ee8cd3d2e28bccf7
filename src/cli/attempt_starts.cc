#include "cli/attempt_starts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "base/below.h"
#include "base/file.h"
#include "base/printable.h"
#include "base/text.h"
#include "format/json_fields.h"
#include "format/run_files.h"
#include "format/version.h"
#include "jobs/once_file.h"
#include "jobs/run_directory.h"
#include "tdbg/trial.h"
#include "trial/access.h"

namespace tdbg::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kEarlierSteps = "earlier_steps.json";

std::string FileOf(const std::string& run_directory, int64_t attempt) {
  return base::JoinPath(base::JoinPath(run_directory, std::to_string(attempt)), std::string(kEarlierSteps));
}

std::vector<format::WorkerInfo> WorkersOf(const std::string& run_directory, int64_t attempt) {
  std::vector<format::WorkerInfo> workers;
  for (const std::string& worker : jobs::ListWorkers(run_directory, attempt)) {
    const auto text = base::LocalFileSystem().ReadFile(base::JoinPath(worker, format::kWorkerFile), 1u << 20);
    if (!text.ok()) continue;
    if (auto info = format::WorkerInfo::FromJson(*text); info.ok()) workers.push_back(*std::move(info));
  }
  return workers;
}

// The one whose files say most about the attempt's start.
std::optional<format::WorkerInfo> TellingOf(const std::vector<format::WorkerInfo>& workers) {
  const auto last = std::max_element(workers.begin(), workers.end(), [](const auto& a, const auto& b) {
    return a.step_base.value_or(0) < b.step_base.value_or(0);
  });
  return last == workers.end() ? std::nullopt : std::optional(*last);
}

std::string_view ModeName(ModeKey mode) {
  switch (mode) {
    case ModeKey::kTrain:
      return "TRAIN";
    case ModeKey::kEval:
      return "EVAL";
    case ModeKey::kPredict:
      return "PREDICT";
    case ModeKey::kGlobal:
      break;
  }
  return "GLOBAL";
}

// Steps that an optimizer was asked for and did not count, as no parameter had a gradient: the training says
// how many there were so far, at the next step at which something was due.
std::set<int64_t> UncountedSteps(const TrialAccess& access) {
  std::set<int64_t> uncounted;
  std::map<int64_t, int64_t> told;  // by attempt
  for (const TrialAccess::WorkersContext& context : access.ContextsOf("optimizer_uncounted")) {
    const TrialAccess::Worker& worker = access.workers()[context.worker];
    const auto total = base::ParseInt(context.record->json);
    auto position = access.FindStep(context.record->global_step);
    if (worker.rank != 0 || !total || !position) continue;
    int64_t news = *total - std::exchange(told[worker.attempt], *total);
    for (size_t at = *position + 1; at-- > 0 && news > 0;) {
      const StepInfo step = access.steps()[at].info;
      if (step.mode == ModeKey::kTrain && uncounted.insert(step.global_step).second) --news;
    }
  }
  return uncounted;
}

}  // namespace

Status TellEarlierSteps(const std::string& run_directory, int64_t attempt) {
  if (base::LocalFileSystem().Exists(FileOf(run_directory, attempt))) return OkStatus();
  TDBG_ASSIGN_OR_RETURN(const std::unique_ptr<Trial> trial, Trial::Open(run_directory));
  TDBG_ASSIGN_OR_RETURN(const bool news, trial->Refresh());
  (void)news;
  const TrialAccess access(*trial);
  Json spans = Json::array();
  std::optional<int64_t> first_train;
  TrialAccess::Step last;
  int64_t count = 0;
  const auto close = [&] {
    if (count == 0) return;
    spans.push_back({ModeName(last.info.mode), last.info.global_step - count + 1,
                     last.info.mode_step - count + 1, count, last.info.skipped});
    count = 0;
  };
  int64_t first_attempt = -1, last_attempt = -1, unplaced_from = -1;
  const std::set<int64_t> uncounted = UncountedSteps(access);
  for (TrialAccess::Step step : access.steps()) {
    step.info.skipped |= uncounted.contains(step.info.global_step);
    if (first_attempt < 0) first_attempt = step.attempt;
    const bool begins = unplaced_from < 0 && std::exchange(last_attempt, step.attempt) != step.attempt;
    if (begins) {
      const auto worker = TellingOf(WorkersOf(run_directory, step.attempt));
      if (worker && worker->step_base_from == format::kBehind) unplaced_from = step.info.global_step;
    }
    const bool goes_on = count > 0 && step.info.global_step != unplaced_from &&
                         step.info.mode == last.info.mode && step.info.skipped == last.info.skipped &&
                         step.info.global_step == last.info.global_step + 1 &&
                         step.info.mode_step == last.info.mode_step + 1;
    if (!goes_on) close();
    if (!first_train && step.info.mode == ModeKey::kTrain) first_train = step.info.mode_step;
    last = step;
    ++count;
  }
  close();
  if (spans.empty()) return OkStatus();
  // Only the heartbeat knows of steps in which nothing was due.
  int64_t seen = last.info.global_step;
  for (const TrialAccess::Worker& worker : access.workers()) {
    if (worker.attempt == last.attempt) seen = std::max(seen, worker.last_seen_step);
  }
  Json json = {{"format", format::FormatVersionJson()},
               {"kind", "earlier_steps"},
               {"attempt", attempt},
               {"next_step", seen + 1}};
  if (const auto worker = TellingOf(WorkersOf(run_directory, first_attempt));
      worker && worker->optimizer_step)
    json["optimizer_began"] = *worker->optimizer_step - first_train.value_or(0);
  if (unplaced_from >= 0) json["unplaced_from"] = unplaced_from;
  json["spans"] = std::move(spans);
  // Where workers ask for it, each of them does: the first has looked before any of them recorded a step.
  const std::string path = FileOf(run_directory, attempt);
  TDBG_RETURN_IF_ERROR(base::FilesBelow(base::LocalFileSystem(), run_directory)
                           .CreateDirectories(base::JoinPath(run_directory, std::to_string(attempt))));
  return jobs::MakeOnce(run_directory, path, json.dump() + "\n").status();
}

std::vector<AttemptStart> AttemptStarts(const std::string& run_directory) {
  std::vector<AttemptStart> starts;
  bool first = true;
  for (const int64_t attempt : jobs::ListAttempts(run_directory)) {
    const std::vector<format::WorkerInfo> workers = WorkersOf(run_directory, attempt);
    const auto worker = TellingOf(workers);
    if (!worker) continue;
    AttemptStart start;
    start.attempt = attempt;
    start.step = worker->step_base.value_or(0);
    start.from = worker->step_base_from;
    for (const format::WorkerInfo& other : workers) {
      if (const int64_t step = other.step_base.value_or(0); step != start.step)
        start.others.push_back({other.worker, step, true});
      if (other.step_base_said) start.others.push_back({other.worker, *other.step_base_said, false});
    }
    if (std::exchange(first, false) && start.step == 0 && start.others.empty()) continue;
    const auto text = base::LocalFileSystem().ReadFile(FileOf(run_directory, attempt), 1u << 26);
    if (text.ok()) {
      int64_t next = 0;
      if (const auto json = format::ParseJsonObject(*text, kEarlierSteps);
          json.ok() && format::GetField(*json, "next_step", &next))
        start.replaced = next - start.step;
    }
    starts.push_back(std::move(start));
  }
  return starts;
}

std::vector<std::string> HostsOf(const std::string& run_directory, const std::vector<int64_t>& attempts) {
  std::vector<std::string> hosts;
  for (const int64_t attempt : attempts) {
    const std::vector<format::WorkerInfo> workers = WorkersOf(run_directory, attempt);
    hosts.push_back(workers.empty() ? std::string() : workers.front().host);
  }
  return hosts;
}

std::string StartWords(const AttemptStart& start) {
  std::string text = std::to_string(start.step);
  if (start.from == "script") {
    text += ", as the script says";
  } else if (start.from == "metadata.json") {
    text += ", as metadata.json beside the checkpoints says";
  } else if (start.from == "optimizer") {
    text += ", as the optimizer's state says";
  } else if (start.from == format::kBehind) {
    text += ", behind the steps of the attempts before it, since where it goes on is not stated";
  } else if (!start.from.empty()) {
    text += ", as the " + base::Printable(start.from) + " says";
  } else {
    text += ", since where it goes on is not stated";
  }
  if (start.replaced > 0)
    text += fmt::format("; {} trained again", base::Counted(static_cast<uint64_t>(start.replaced), "step"));
  if (start.replaced < 0)
    text +=
        fmt::format("; {} before it missing", base::Counted(static_cast<uint64_t>(-start.replaced), "step"));
  for (const AttemptStart::Other& other : start.others) {
    text += fmt::format(
        "; {} {} at step {}{}", base::Printable(other.worker),
        other.recorded ? "began" : "says that it begins", other.step,
        other.recorded ? ": its steps are not those of the others" : ", and was numbered as the others are");
  }
  return text;
}

}  // namespace tdbg::cli
