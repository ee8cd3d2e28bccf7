#include "query/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "format/version.h"
#include "query/envelope.h"
#include "trial/coarse.h"
#include "trial/lookup.h"
#include "trial/mode_name.h"

namespace tdbg::query {
namespace {

constexpr size_t kMostStatistics = 4;
constexpr size_t kMostCharts = 24;

bool IsScalar(const std::vector<int64_t>& shape) {
  return std::ranges::all_of(shape, [](int64_t axis) { return axis == 1; });
}

/// What to chart first, if the run has it: losses, metrics, rates.
std::vector<std::pair<std::string, std::string>> ChartsOf(const Trial& trial) {
  std::vector<std::pair<std::string, std::string>> charts;
  const auto add = [&](const std::string& name, const char* group) {
    const bool known = std::ranges::any_of(charts, [&](const auto& chart) { return chart.first == name; });
    if (!known && charts.size() < kMostCharts) charts.emplace_back(name, group);
  };
  for (const char* collection : {"losses", "metrics"}) {
    if (const auto names = trial.tensor_names("", collection); names.ok()) {
      for (const std::string& name : *names) {
        const auto info = trial.tensor(name);
        if (info.ok() && IsScalar(info->shape)) add(name, collection);
      }
    }
  }
  if (const auto names = trial.tensor_names("^context/(lr/|grad_norm|loss_scale)", ""); names.ok()) {
    for (const std::string& name : *names) add(name, "context");
  }
  return charts;
}

}  // namespace

Result<std::unique_ptr<Run>> Run::Open(const std::string& path) {
  TDBG_ASSIGN_OR_RETURN(std::unique_ptr<Trial> trial, Trial::Open(path));
  std::unique_ptr<Run> run(new Run(std::move(trial)));
  TDBG_ASSIGN_OR_RETURN(const bool news, run->Refresh());
  (void)news;
  return run;
}

Result<bool> Run::Refresh() {
  TDBG_ASSIGN_OR_RETURN(bool news, trial_->Refresh());
  std::error_code error;
  const uint64_t bytes =
      std::filesystem::file_size(base::JoinPath(trial_->path(), format::kEventsFile), error);
  if (!error && bytes != events_bytes_) {
    events_bytes_ = bytes;
    news = true;
  }
  if (news) ++generation_;
  return news;
}

Json Run::News() const {
  const TrialAccess access(*trial_);
  const size_t complete = access.complete_count();
  return {{"generation", generation_},
          {"steps", complete},
          {"last_step", complete ? access.steps()[complete - 1].info.global_step : -1},
          {"over", over()}};
}

StatisticBlocks& Run::BlocksOf(const StatisticSpec& spec) {
  auto at = std::ranges::find_if(blocks_, [&](const auto& b) { return b->spec().id == spec.id; });
  if (at == blocks_.end()) {
    if (blocks_.size() == kMostStatistics) blocks_.erase(blocks_.begin());
    blocks_.push_back(std::make_unique<StatisticBlocks>(spec));
  } else {
    std::rotate(at, at + 1, blocks_.end());
  }
  blocks_.back()->Update(TrialAccess(*trial_));
  return *blocks_.back();
}

Result<Answer> Run::Ask(const Question& question) {
  using Handler = Result<Answer> (Run::*)(const Question&);
  static constexpr std::array<std::pair<std::string_view, Handler>, 9> kHandlers{{
      {"run", &Run::Overview},
      {"tensors", &Run::Tensors},
      {"matrix", &Run::Matrix},
      {"line", &Run::Line},
      {"histograms", &Run::Histograms},
      {"histogram", &Run::HistogramAt},
      {"values", &Run::Values},
      {"step", &Run::Step},
      {"workers", &Run::Workers},
  }};
  for (const auto& [name, handler] : kHandlers) {
    if (name == question.name) return (this->*handler)(question);
  }
  std::string names = "runs, compare, ratio";
  for (const auto& [name, handler] : kHandlers) names += fmt::format(", {}", name);
  return InvalidArgument(fmt::format("no question '{}'; there are: {}", question.name.substr(0, 40), names));
}

Result<Answer> Run::Overview(const Question& question) {
  TDBG_RETURN_IF_ERROR(question.CheckKeys({}));
  const TrialAccess access(*trial_);
  health_.Update(access);
  const auto steps = access.steps();
  const size_t complete = access.complete_count();
  const std::vector<rules::RuleStatus> statuses = judged_ ? *judged_ : StatusesOf(*trial_);
  const std::vector<watch::Origin> found = watch::OriginsOf(*trial_);
  const StepNames names = NamesFor(*trial_, statuses, found, health_);
  Json verdicts = VerdictsOf(statuses, names);
  Json incidents = IncidentsOf(statuses, found, names);
  Json origins = OriginsOf(found, names);
  Json out;
  out["name"] = trial_->name();
  out["path"] = trial_->path();
  out["state"] = StateOf(*trial_);
  out["running"] = trial_->state() == RunState::kRunning;
  out["generation"] = generation_;
  out["steps"] = complete;
  out["first_step"] = complete ? steps[0].info.global_step : -1;
  out["last_step"] = complete ? steps[complete - 1].info.global_step : -1;
  out["first_wall_nanos"] = complete ? steps[0].info.wall_nanos : 0;
  out["last_wall_nanos"] = complete ? steps[complete - 1].info.wall_nanos : 0;
  out["tensors"] = access.tensor_count();
  out["bytes"] = trial_->bytes_on_disk();
  out["attempts"] = trial_->attempts();
  phases_.Update(access);
  out["attempt_starts"] = phases_.Attempts();
  out["evaluations"] = phases_.Evaluations();
  out["world_size"] = trial_->world_size();
  Json workers = Json::array();
  for (const TrialAccess::Worker& worker : access.workers()) {
    workers.push_back({{"name", worker.name},
                       {"attempt", worker.attempt},
                       {"rank", worker.rank},
                       {"alive", worker.alive},
                       {"ended", worker.ended},
                       {"last_step", worker.last_step}});
  }
  out["workers"] = std::move(workers);
  Json ends = Json::array();
  for (const WorkerEnd& end : trial_->worker_ends()) {
    ends.push_back({{"worker", end.worker},
                    {"reason", end.reason},
                    {"message", end.message},
                    {"last_step", end.last_step}});
  }
  out["worker_ends"] = std::move(ends);
  Json dropped = Json::array();
  for (const DroppedInfo& drop : trial_->dropped()) {
    dropped.push_back({{"kind", drop.kind},
                       {"cause", drop.cause},
                       {"text", drop.text},
                       {"count", drop.count},
                       {"first_step", drop.first_step},
                       {"last_step", drop.last_step},
                       {"worker", drop.worker}});
  }
  out["dropped"] = std::move(dropped);
  out["coarse_steps"] = CoarseRows(*trial_).ThinnedSteps().steps;
  out["damage"] = trial_->damage();
  Json charts = Json::array();
  for (const auto& [name, group] : ChartsOf(*trial_)) charts.push_back({{"tensor", name}, {"group", group}});
  out["charts"] = std::move(charts);
  Json statistics = Json::array();
  for (const StatisticSpec& spec : MatrixStatistics())
    statistics.push_back({{"name", spec.name}, {"title", spec.title}});
  out["statistics"] = std::move(statistics);
  if (const auto& first = health_.first_nonfinite()) {
    out["first_nonfinite"] = {{"global_step", first->global_step},
                              {"tensor", access.tensor(first->tensor).name},
                              {"nan", first->nan},
                              {"steps", health_.nonfinite_steps()}};
  }
  out["sentence"] = SentenceOf(*trial_, health_, verdicts, incidents, origins, names);
  out["events"] = EventsOf(*trial_);
  out["verdicts"] = std::move(verdicts);
  out["incidents"] = std::move(incidents);
  out["origins"] = std::move(origins);
  return JsonAnswer(std::move(out));
}

std::string StampOf(const std::string& path) {
  std::error_code error;
  const auto changed = std::filesystem::last_write_time(path, error);  // an attempt is a directory in it
  const uint64_t events = std::filesystem::file_size(base::JoinPath(path, format::kEventsFile), error);
  return fmt::format("{} {}", changed.time_since_epoch().count(), events);
}

Json RunEntry(Run& run, const std::string& name) {
  Trial& trial = run.trial();
  const TrialAccess access(trial);
  Json out;
  const Json verdicts = VerdictsOf(StatusesOf(trial), StepNames());
  Json found = Json::array();
  size_t undecided = 0;
  for (const Json& verdict : verdicts) {
    if (verdict["status"] == "IssuesFound") found.push_back(verdict["name"]);
    undecided += verdict["status"] == "Error";
  }
  const size_t complete = access.complete_count();
  out["name"] = name;
  out["state"] = StateOf(trial);
  out["running"] = trial.state() == RunState::kRunning;
  out["steps"] = complete;
  out["last_step"] = complete ? access.steps()[complete - 1].info.global_step : -1;
  out["wall_nanos"] = trial.last_seen_wall_nanos();
  out["bytes"] = trial.bytes_on_disk();
  out["found"] = std::move(found);
  out["judged"] = !verdicts.empty();
  out["undecided"] = undecided;
  out["damaged"] = trial.damage().size();
  Json line = Json::array();
  const auto charts = ChartsOf(trial);
  if (!charts.empty()) {
    if (const auto series = trial.series(charts[0].first, "value"); series.ok()) {
      const Envelope envelope = EnvelopeOf(series->steps, series->values, 20);
      for (const double value : envelope.values) line.push_back(JsonNumber(value));
    }
  }
  out["loss"] = std::move(line);
  return out;
}

Result<Answer> Run::Step(const Question& question) {
  TDBG_RETURN_IF_ERROR(question.CheckKeys({"step"}));
  TDBG_ASSIGN_OR_RETURN(const int64_t global,
                        question.Integer("step", -1, -1, std::numeric_limits<int64_t>::max()));
  const TrialAccess access(*trial_);
  const auto at = access.FindStep(global);
  if (!at) return NotFound(fmt::format("nothing was kept at step {}", global));
  const TrialAccess::Step step = access.steps()[*at];
  Json out = {{"global_step", step.info.global_step},
              {"mode", ModeName(step.info.mode)},
              {"mode_step", step.info.mode_step},
              {"wall_nanos", step.info.wall_nanos},
              {"attempt", step.attempt},
              {"shed", step.shed},
              {"skipped", step.info.skipped},
              {"complete", step.info.complete}};
  out["workers"] = trial_->step_workers(global);
  out["missing_workers"] = trial_->missing_workers(global);
  std::vector<TrialAccess::Scalar> scalars;
  access.ScalarsOf(*at, &scalars);
  // Of a number that micro-steps have, too, the one that its line shows.
  std::map<std::pair<TensorIndex, WorkerIndex>, SubKey> chosen;
  for (const TrialAccess::Scalar& scalar : scalars) {
    const auto [best, is_first] = chosen.try_emplace({scalar.tensor, scalar.worker}, scalar.sub);
    if (!is_first && Preference(scalar.sub) > Preference(best->second)) best->second = scalar.sub;
  }
  Json list = Json::array();
  for (const TrialAccess::Scalar& scalar : scalars) {
    if (!(chosen[{scalar.tensor, scalar.worker}] == scalar.sub)) continue;
    list.push_back({{"name", access.tensor(scalar.tensor).name},
                    {"worker", access.workers()[scalar.worker].name},
                    {"value", JsonNumber(scalar.value)}});
  }
  out["scalars"] = std::move(list);
  return JsonAnswer(std::move(out));
}

}  // namespace tdbg::query
