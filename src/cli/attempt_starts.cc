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

// The attempt's worker whose files say most about its start.
std::optional<format::WorkerInfo> WorkerOf(const std::string& run_directory, int64_t attempt) {
  std::optional<format::WorkerInfo> found;
  for (const std::string& worker : jobs::ListWorkers(run_directory, attempt)) {
    const auto text = base::LocalFileSystem().ReadFile(base::JoinPath(worker, format::kWorkerFile), 1u << 20);
    if (!text.ok()) continue;
    const auto info = format::WorkerInfo::FromJson(*text);
    if (!info.ok()) continue;
    if (!found || info->step_base.value_or(0) > found->step_base.value_or(0)) found = *info;
  }
  return found;
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
      const auto worker = WorkerOf(run_directory, step.attempt);
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
  if (const auto worker = WorkerOf(run_directory, first_attempt); worker && worker->optimizer_step)
    json["optimizer_began"] = *worker->optimizer_step - first_train.value_or(0);
  if (unplaced_from >= 0) json["unplaced_from"] = unplaced_from;
  json["spans"] = std::move(spans);
  return base::FilesBelow(base::LocalFileSystem(), run_directory)
      .WriteFileAtomic(FileOf(run_directory, attempt), json.dump() + "\n");
}

std::vector<AttemptStart> AttemptStarts(const std::string& run_directory) {
  std::vector<AttemptStart> starts;
  bool first = true;
  for (const int64_t attempt : jobs::ListAttempts(run_directory)) {
    const auto worker = WorkerOf(run_directory, attempt);
    if (!worker) continue;
    AttemptStart start;
    start.attempt = attempt;
    start.step = worker->step_base.value_or(0);
    start.from = worker->step_base_from;
    if (std::exchange(first, false) && start.step == 0) continue;
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
  return text;
}

}  // namespace tdbg::cli
