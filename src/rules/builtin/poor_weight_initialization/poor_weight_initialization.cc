// A training that cannot start well: layers of different scale, gradients without spread, a loss that stays.
// README.md beside this file.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "base/text.h"
#include "rules/interval_means.h"
#include "rules/kept_values.h"
#include "rules/loss_values.h"
#include "rules/parameter_specs.h"
#include "rules/rule.h"
#include "rules/selector.h"
#include "rules/state_values.h"
#include "rules/step_context.h"

namespace tdbg::rules {
namespace {

constexpr char kDefaultInputs[] = ".*relu_input|.*ReLU_input";

struct Limits {
  double variance_ratio = 10;
  double range = 0.001;
  int64_t patience = 5;
  int64_t steps = 10;
  Interval interval;
};

struct Extremes {
  double low = 0, high = 0;
  TensorIndex lowest = 0, highest = 0;
};

struct FollowedLoss {
  IntervalMeans means;
  std::optional<double> now;
  std::optional<IntervalEnd> first;
  double lowest = 0;  // of the ends after the first
  int64_t ends = 0;
};

// numpy.percentile of sorted values.
double Percentile(const std::vector<double>& sorted, double q) {
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (at - static_cast<double>(below));
}

class PoorWeightInitialization : public Rule {
 public:
  PoorWeightInitialization(StateValues inputs, Selector gradients, Selector losses, const Limits& limits)
      : inputs_(std::move(inputs)),
        gradients_(std::move(gradients)),
        losses_(std::move(losses)),
        limits_(limits) {}

  plan::Need Needs() const override {
    plan::Need need = inputs_.inspected().Need();
    need.collections.push_back("gradients");
    need.collections.push_back("losses");
    if (limits_.range > 0) {
      // Gradients too small for a histogram are judged by their values, which cost next to nothing.
      need.raw_collections = {"gradients"};
      need.raw_max_elements = 255;
      need.raw_schedule.emplace().end = limits_.steps;
      need.raw_schedule->interval = 1;
    }
    return need;
  }

  Result<Judged> Invoke(const StepContext& step, std::vector<Finding>* findings) override {
    gaps_are_losses_ |= step.statistics_incomplete();
    bool captured = false, incomplete = step.statistics_incomplete();
    if (captured_ < limits_.steps) {
      captured = CompareVariances(step, findings);
      captured |= JudgeRanges(step, &incomplete, findings);
      captured_ += captured;
    }
    const bool judged = JudgeLosses(step, findings) || captured;
    if (!findings->empty()) return Judged::kJudged;
    if (incomplete) return Judged::kIncomplete;
    return judged ? Judged::kJudged : Judged::kNotDue;
  }

  std::string WouldHaveNeeded() const override {
    return fmt::format(
        "statistics of activation inputs {}, histograms of the gradients (values of those of fewer than 256 "
        "elements), or losses over {} of {}",
        inputs_.inspected().Describe(), base::Counted(limits_.patience + 1, "interval"),
        base::Counted(limits_.interval.steps, "step"));
  }

 private:
  bool CompareVariances(const StepContext& step, std::vector<Finding>* findings) {
    // Layers see the same data within one worker and one micro-step.
    std::map<std::pair<WorkerIndex, uint16_t>, Extremes> extremes;
    inputs_.ForEach(
        step, [&](TensorIndex tensor, WorkerIndex worker, const store::SummaryBatch& batch, uint32_t i) {
          if (batch.count[i] == 0) return;
          if ((batch.nan_count[i] | batch.pos_inf_count[i] | batch.neg_inf_count[i]) != 0) return;
          const double variance = batch.variance[i];
          const auto [at, first] =
              extremes.try_emplace({worker, batch.sub[i]}, Extremes{variance, variance, tensor, tensor});
          Extremes& seen = at->second;
          if (variance < seen.low) seen.low = variance, seen.lowest = tensor;
          if (variance > seen.high) seen.high = variance, seen.highest = tensor;
        });
    for (const auto& [key, seen] : extremes) {
      const double ratio = seen.high / seen.low;  // all zero: NaN, which is above nothing
      if (!(ratio > limits_.variance_ratio)) continue;
      Finding finding = At(step, seen.highest, key.first);
      finding.measure = "variance_ratio";
      finding.value = ratio;
      finding.comparison = ">";
      finding.threshold = limits_.variance_ratio;
      finding.text =
          fmt::format("variance {:g}, {:g} of {}", seen.high, seen.low, step.tensor(seen.lowest).name);
      findings->push_back(std::move(finding));
    }
    return !extremes.empty();
  }

  bool JudgeRanges(const StepContext& step, bool* incomplete, std::vector<Finding>* findings) {
    bool captured = false;
    if (step.skipped() || limits_.range == 0) return false;  // nothing is below 0: no reason to read
    gradients_.Update(step);
    step.ForEachRow([&](const StepContext::Row& row) {
      if (!gradients_.contains(row.tensor) || row.sub != SubKey{}) return;
      // One element has no spread, and what is not finite is ExplodingTensor's business.
      if (row.count() < 2 || row.nonfinite_count() != 0) return;
      captured = true;
      const std::optional<double> range = Range(step, row);
      if (!range) {
        *incomplete = true;
      } else if (*range < limits_.range) {
        Finding finding = At(step, row.tensor, row.worker);
        finding.measure = "p95_minus_p5";
        finding.value = *range;
        finding.comparison = "<";
        finding.threshold = limits_.range;
        findings->push_back(std::move(finding));
      }
    });
    return captured;
  }

  // Exact where the raw value was kept, else by the histogram; nothing where there is neither.
  static std::optional<double> Range(const StepContext& step, const StepContext::Row& row) {
    if (row.has_histogram()) {
      const auto histogram = step.HistogramOf(row);
      if (!histogram.ok()) return std::nullopt;
      const Summary summary = row.summary();
      return Quantile(summary, *histogram, 0.95) - Quantile(summary, *histogram, 0.05);
    }
    const auto value = step.Raw(row.tensor, row.worker);
    if (!value.ok()) return std::nullopt;
    std::vector<double> elements(ElementCount(*value));
    if (elements.empty() || !LoadElements(*value, 0, elements)) return std::nullopt;
    std::sort(elements.begin(), elements.end());
    return Percentile(elements, 0.95) - Percentile(elements, 0.05);
  }

  // Once per loss: at the end of its first patience + 1 intervals.
  bool JudgeLosses(const StepContext& step, std::vector<Finding>* findings) {
    if (step.mode() == ModeKey::kEval || step.mode() == ModeKey::kPredict) return false;
    for (const LossValue& loss : losses_.Read(step)) followed_[{loss.tensor, loss.worker}].now = loss.value;
    const int64_t position = step.mode() == ModeKey::kGlobal ? step.global_step() : step.mode_step();
    bool judged = false;
    for (auto& [key, followed] : followed_) {
      const std::optional<double> value = followed.now;
      followed.now.reset();
      if (followed.ends > limits_.patience) continue;
      for (const IntervalEnd& end :
           followed.means.Take(position, step.global_step(), value, limits_.interval, gaps_are_losses_)) {
        if (followed.ends > limits_.patience) break;
        auto finding = Take(step, end, key, &followed);
        judged |= finding.has_value() || followed.ends > limits_.patience;
        if (!finding) continue;
        findings->push_back(*std::move(finding));
        break;
      }
    }
    return judged;
  }

  std::optional<Finding> Take(const StepContext& step, const IntervalEnd& end,
                              const std::pair<TensorIndex, WorkerIndex>& key, FollowedLoss* followed) const {
    Finding finding = At(step, key.first, key.second);
    ++followed->ends;
    if (!std::isfinite(end.mean)) {
      finding.measure = "nonfinite_count";
      finding.value = 1;
      finding.comparison = ">";
      finding.threshold = 0;
      finding.text = fmt::format("{}", end.mean);
      return finding;
    }
    if (!followed->first) {
      followed->first = end;
      followed->lowest = std::numeric_limits<double>::infinity();
      return std::nullopt;
    }
    followed->lowest = std::min(followed->lowest, end.mean);
    if (followed->ends <= limits_.patience || followed->lowest < followed->first->mean) return std::nullopt;
    finding.measure = "intervals_without_decrease";
    finding.value = static_cast<double>(limits_.patience);
    finding.comparison = ">=";
    finding.threshold = static_cast<double>(limits_.patience);
    finding.text = fmt::format("{:g} at step {}, at best {:g} since", followed->first->mean,
                               followed->first->global_step, followed->lowest);
    return finding;
  }

  static Finding At(const StepContext& step, TensorIndex tensor, WorkerIndex worker) {
    Finding finding;
    finding.global_step = step.global_step();
    finding.tensor = step.tensor(tensor).name;
    finding.worker = step.worker_name(worker);
    return finding;
  }

  StateValues inputs_;
  Selector gradients_;
  LossReader losses_;
  Limits limits_;
  int64_t captured_ = 0;  // steps with activation inputs or gradients
  std::map<std::pair<TensorIndex, WorkerIndex>, FollowedLoss> followed_;
  bool gaps_are_losses_ = false;
};

}  // namespace

void RegisterPoorWeightInitialization(RuleRegistry* registry) {
  RuleInfo info;
  info.class_name = "PoorWeightInitialization";
  info.snake_name = "poor_weight_initialization";
  info.scope = "deep learning";
  info.summary =
      "In its first steps a training shows layers of different scale, flat gradients, or no decrease.";
  ParameterSpec inputs;
  inputs.name = "activation_inputs_regex";
  inputs.type = "regex list";
  inputs.default_value = kDefaultInputs;
  inputs.help = "The layers' activation inputs, by name.";
  info.parameters = {
      inputs,
      NumberParameter("threshold", "float", "10.0", 0, "",
                      "A larger ratio of the layers' largest and smallest variance is a hit."),
      NumberParameter("distribution_range", "float", "0.001", 0, "of the gradient",
                      "A gradient whose 95th percentile minus its 5th is smaller is a hit."),
      NumberParameter("patience", "int", "5", 1, "intervals",
                      "So many intervals after the first without a decrease of the loss are a hit."),
      NumberParameter("steps", "int", "10", 1, "steps",
                      "Variances and gradients are judged in so many captured steps."),
      IntervalParameter(
          "Losses are averaged over so many steps, and compared at their ends; 500 without it."),
  };
  registry->Add(std::move(info), [](const Parameters& parameters) -> Result<std::unique_ptr<Rule>> {
    // By default also what an adaptor says is a ReLU's input, whatever its module is called.
    std::vector<std::string> collections;
    if (parameters.Text("activation_inputs_regex") == kDefaultInputs) collections.push_back("relu_input");
    TDBG_ASSIGN_OR_RETURN(Selector selector,
                          Selector::Make(std::move(collections), parameters.List("activation_inputs_regex")));
    TDBG_ASSIGN_OR_RETURN(StateValues values, StateValues::Make(std::move(selector)));
    TDBG_ASSIGN_OR_RETURN(Selector gradients, Selector::Make({"gradients"}, {}));
    TDBG_ASSIGN_OR_RETURN(Selector losses, Selector::Make({"losses"}, {}));
    Limits limits;
    limits.variance_ratio = parameters.Float("threshold");
    limits.range = parameters.Float("distribution_range");
    limits.patience = parameters.Int("patience");
    limits.steps = parameters.Int("steps");
    limits.interval = IntervalOf(parameters);
    return std::unique_ptr<Rule>(std::make_unique<PoorWeightInitialization>(
        std::move(values), std::move(gradients), std::move(losses), limits));
  });
}

}  // namespace tdbg::rules
