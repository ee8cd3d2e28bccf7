#include "metrics/metrics.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <string_view>

#include "trial/access.h"

namespace tdbg::metrics {
namespace {

constexpr size_t kMostSeries = 1000;
constexpr size_t kStepsBack = 64;

constexpr rules::RuleState kRuleStates[] = {rules::RuleState::kInProgress, rules::RuleState::kNoIssuesFound,
                                            rules::RuleState::kIssuesFound, rules::RuleState::kError,
                                            rules::RuleState::kStopped};

// In the order in which they are shown.
class Builder {
 public:
  explicit Builder(std::string run) : run_(std::move(run)) {}

  void Begin(const char* name, const char* help, bool counter = false) {
    metrics_.push_back({name, help, counter, {}});
  }
  void Add(double value, Labels labels = {}) {
    labels.insert(labels.begin(), {"run", run_});
    metrics_.back().samples.push_back({std::move(labels), value});
  }
  std::vector<Metric> Take() {
    std::erase_if(metrics_, [](const Metric& metric) { return metric.samples.empty(); });
    return std::move(metrics_);
  }

 private:
  const std::string run_;
  std::vector<Metric> metrics_;
};

const char* StateWord(RunState state) {
  switch (state) {
    case RunState::kWaiting:
      return "waiting";
    case RunState::kRunning:
      return "running";
    case RunState::kCrashed:
      return "crashed";
    case RunState::kEnded:
      break;
  }
  return "ended";
}

void AddValues(const TrialAccess& access, Builder& builder) {
  // What a script or an adaptor recorded as a number, by its name; and the losses, which may be tensors. A
  // worker of a later attempt takes its predecessor's place: of two samples with the same labels nobody takes
  // the file.
  std::map<std::pair<TensorIndex, std::string>, double> latest;
  const size_t end = access.steps().size();
  const size_t begin = end - std::min(end, kStepsBack);
  std::vector<TrialAccess::Scalar> scalars;
  for (size_t step = begin; step < end; ++step) access.ScalarsOf(step, &scalars);
  for (const TrialAccess::Scalar& scalar : scalars) {
    const std::pair key(scalar.tensor, access.workers()[scalar.worker].name);
    if (latest.size() < kMostSeries || latest.contains(key)) latest[key] = scalar.value;
  }
  builder.Begin("tdbg_value", "Latest value of a loss, metric, learning rate or other recorded number");
  if (auto losses = Selection::Make("losses", ""); losses.ok()) {
    losses->Update(access);
    for (const TensorIndex tensor :
         losses->tensors().subspan(0, std::min(losses->tensors().size(), kMostSeries))) {
      for (size_t back = 1; back <= end - begin; ++back) {
        const auto value = access.ScalarAt(tensor, end - back);
        if (!value) continue;
        builder.Add(*value, {{"name", access.tensor(tensor).name}, {"collection", "losses"}});
        break;
      }
    }
    std::erase_if(latest, [&](const auto& item) { return losses->contains(item.first.first); });
  }
  for (const auto& [key, value] : latest) {
    builder.Add(value, {{"name", access.tensor(key.first).name}, {"worker", key.second}});
  }
}

}  // namespace

std::vector<Metric> MetricsOf(const Trial& trial, const std::vector<rules::RuleStatus>& statuses) {
  const TrialAccess access(trial);
  Builder builder(trial.name());

  builder.Begin("tdbg_run_state", "1 for the state that the run is in, 0 for the others");
  const std::string_view state = StateWord(trial.state());
  for (const char* other : {"waiting", "running", "ended", "crashed"})
    builder.Add(state == other, {{"state", other}});

  builder.Begin("tdbg_steps_recorded", "Steps that the run holds");
  builder.Add(static_cast<double>(access.steps().size()));
  builder.Begin("tdbg_last_step", "Global step that was recorded last");
  if (!access.steps().empty()) builder.Add(static_cast<double>(access.steps().back().info.global_step));
  builder.Begin("tdbg_last_seen_step", "Global step that the training has passed, recorded or not");
  if (trial.last_seen_step() >= 0) builder.Add(static_cast<double>(trial.last_seen_step()));
  builder.Begin("tdbg_attempt", "Number of the latest attempt; 0 is the first");
  if (const auto attempts = trial.attempts(); !attempts.empty())
    builder.Add(static_cast<double>(attempts.back()));
  builder.Begin("tdbg_recorded_bytes", "Size of the run's data on disk");
  builder.Add(static_cast<double>(trial.bytes_on_disk()));

  builder.Begin("tdbg_worker_last_seen_timestamp_seconds",
                "When the worker passed its last step, seconds since 1970");
  const auto attempts = trial.attempts();
  for (const TrialAccess::Worker& worker : access.workers()) {
    if (attempts.empty() || worker.attempt != attempts.back() || worker.last_seen_wall_nanos == 0) continue;
    builder.Add(static_cast<double>(worker.last_seen_wall_nanos / 1'000'000) / 1e3,
                {{"worker", worker.name}});
  }
  builder.Begin("tdbg_worker_alive", "1 while the worker's process lives");
  for (const TrialAccess::Worker& worker : access.workers()) {
    if (!attempts.empty() && worker.attempt == attempts.back())
      builder.Add(worker.alive, {{"worker", worker.name}});
  }

  builder.Begin("tdbg_rule_status", "1 for the status that the rule has, 0 for the others");
  for (const rules::RuleStatus& status : statuses) {
    for (const rules::RuleState other : kRuleStates) {
      builder.Add(status.state == other, {{"name", status.name},
                                          {"rule", status.rule},
                                          {"status", std::string(rules::RuleStateName(other))}});
    }
  }
  builder.Begin("tdbg_rule_finding_step", "Global step of the rule's first finding");
  for (const rules::RuleStatus& status : statuses) {
    if (status.findings.empty()) continue;
    builder.Add(static_cast<double>(status.findings.front().global_step),
                {{"name", status.name}, {"rule", status.rule}});
  }
  builder.Begin("tdbg_rule_steps_judged_total", "Steps that the rule has judged", true);
  for (const rules::RuleStatus& status : statuses)
    builder.Add(static_cast<double>(status.steps_judged), {{"name", status.name}, {"rule", status.rule}});

  AddValues(access, builder);
  return builder.Take();
}

std::vector<Metric> Join(std::vector<std::vector<Metric>> runs) {
  std::vector<Metric> joined;
  for (std::vector<Metric>& run : runs) {
    for (Metric& metric : run) {
      const auto same = std::find_if(joined.begin(), joined.end(),
                                     [&](const Metric& other) { return other.name == metric.name; });
      if (same == joined.end()) {
        joined.push_back(std::move(metric));
      } else {
        std::move(metric.samples.begin(), metric.samples.end(), std::back_inserter(same->samples));
      }
    }
  }
  return joined;
}

}  // namespace tdbg::metrics
