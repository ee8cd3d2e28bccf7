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
#include "rules/gradient_siblings.h"
#include "rules/interval_means.h"
#include "rules/judging.h"
#include "rules/kept_values.h"
#include "rules/loss_values.h"
#include "rules/parameter_specs.h"
#include "rules/rule.h"
#include "rules/run_plan.h"
#include "rules/selector.h"
#include "rules/state_values.h"
#include "rules/step_context.h"
#include "trial/step_name.h"

namespace tdbg::rules {
namespace {

constexpr char kDefaultInputs[] = ".*relu_input|.*ReLU_input";

// Without a distribution_range a gradient is measured by the run's own largest: what a magnitude means by
// itself depends on how the loss is averaged. Twelve layers of sigmoids are 1e-10 apart, healthy models
// (means over many positions beside sums, transformers' queries at their start) up to 1e-4.
constexpr double kSmallShare = 1e-5;
constexpr double kGrowth = 1.5;  // over the first steps: what starts small by design grows

constexpr uint64_t kLeastForHistogram = 256;  // smaller tensors have none (docs/statistics.md)

struct Limits {
  double variance_ratio = 10;
  std::optional<double> range;
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
  bool every_step = false;  // it is due at every step: gaps are the training's own
  std::optional<double> now;
  std::optional<IntervalEnd> first;
  double lowest = 0;  // of the ends after the first
  int64_t ends = 0;
};

// One gradient of one worker in the first steps: its size as a share of the largest.
struct FollowedGradient {
  std::vector<double> shares;
  bool always_small = true;
  int64_t last_step = 0;

  bool Grows() const {
    const size_t half = shares.size() / 2;
    double before = 0, after = 0;
    for (size_t i = 0; i < half; ++i) before += shares[i], after += shares[shares.size() - 1 - i];
    return after > kGrowth * before;
  }
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
    if (limits_.range.value_or(0) > 0) {
      // Steps that a loss scaler skips are not judged, and one that starts at 2^16 can halve 16 times.
      const int64_t steps = limits_.steps + 16;
      need.histogram_collections = {"gradients"};
      need.histogram_steps = steps;
      // Gradients too small for a histogram are judged by their values, which cost next to nothing.
      need.raw_collections = {"gradients"};
      need.raw_max_elements = 255;
      need.raw_schedule.emplace().end = steps;
      need.raw_schedule->interval = 1;
    }
    return need;
  }

  Result<Judged> Invoke(const StepContext& step, std::vector<Finding>* findings) override {
    gaps_are_losses_ |= step.statistics_incomplete();
    bool captured = false, incomplete = step.statistics_incomplete();
    if (captured_ < limits_.steps) {
      captured = CompareVariances(step, findings);
      captured |= limits_.range ? JudgeRanges(step, &incomplete, findings) : FollowSizes(step);
      captured_ += captured;
      if (captured_ == limits_.steps) JudgeSizes(step, findings);
    }
    const bool judged = JudgeLosses(step, findings) || captured;
    if (!findings->empty()) return Judged::kJudged;
    if (incomplete) return Judged::kIncomplete;
    return judged ? Judged::kJudged : Judged::kNotDue;
  }

  void OnPlan(const RunPlan& plan) override { plan_ = &plan; }

  std::string WouldHaveNeeded() const override {
    return fmt::format(
        "statistics of activation inputs {}, {}, or losses over {} of {}", inputs_.inspected().Describe(),
        limits_.range ? "histograms of the gradients (values of those of fewer than 256 elements)"
                      : "statistics of the gradients",
        base::Counted(limits_.patience + 1, "interval"), base::Counted(limits_.interval.steps, "step"));
  }

 private:
  bool CompareVariances(const StepContext& step, std::vector<Finding>* findings) {
    // Layers see the same data within one worker and one micro-step.
    std::map<std::pair<WorkerIndex, uint16_t>, Extremes> extremes;
    inputs_.ForEach(step, [&](TensorIndex tensor, const Rows& rows, uint32_t i) {
      if (rows.count(i) == 0 || !rows.is_finite(i)) return;
      const double variance = rows.variance(i);
      const auto [at, first] =
          extremes.try_emplace({rows.worker(), rows.sub(i)}, Extremes{variance, variance, tensor, tensor});
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
    if (step.skipped() || *limits_.range == 0) return false;  // nothing is below 0: no reason to read
    gradients_.Update(step);
    step.ForEachRow([&](const StepContext::Row& row) {
      if (!gradients_.contains(row.tensor) || row.sub != SubKey{}) return;
      // One element has no spread, and what is not finite is ExplodingTensor's business.
      if (row.count() < 2 || row.nonfinite_count() != 0) return;
      const std::optional<double> range = Range(step, row);
      // Histograms are not kept at every step. One that was due and is lost is another matter.
      const bool none_here = !row.has_histogram() && !row.histogram_shed();
      if (!range && none_here && row.count() >= kLeastForHistogram) return;
      captured = true;
      if (!range) {
        *incomplete = true;
      } else if (*range < *limits_.range) {
        Finding finding = At(step, row.tensor, row.worker);
        finding.measure = "p95_minus_p5";
        finding.value = *range;
        finding.comparison = "<";
        finding.threshold = *limits_.range;
        findings->push_back(std::move(finding));
      }
    });
    return captured;
  }

  // The mean of the elements that are not zero: of an embedding most are.
  bool FollowSizes(const StepContext& step) {
    if (step.skipped()) return false;
    gradients_.Update(step);
    siblings_.Update(step, gradients_);
    struct Size {
      WorkerIndex worker;
      TensorIndex tensor;
      double size;
    };
    std::vector<Size> sizes;
    std::map<WorkerIndex, double> largest;
    step.ForEachRow([&](const StepContext::Row& row) {
      if (!gradients_.contains(row.tensor) || row.sub != SubKey{} || row.nonfinite_count() != 0) return;
      const uint64_t elements = row.count() - row.zero_count();
      // A gradient that is all zero is VanishingGradient's; a bias' may be so by mathematics.
      if (elements == 0 || siblings_.WeightOf(row.tensor) >= 0) return;
      const double size = row.l1() / static_cast<double>(elements);
      sizes.push_back({row.worker, row.tensor, size});
      double& most = largest[row.worker];
      most = std::max(most, size);
    });
    for (const Size& size : sizes) {
      FollowedGradient& followed = sizes_[{size.tensor, size.worker}];
      followed.shares.push_back(size.size / largest[size.worker]);
      followed.always_small &= followed.shares.back() < kSmallShare;
      followed.last_step = step.global_step();
    }
    return !sizes.empty();
  }

  void JudgeSizes(const StepContext& step, std::vector<Finding>* findings) {
    for (const auto& [key, followed] : sizes_) {
      if (!followed.always_small || followed.shares.size() < 2 || followed.Grows()) continue;
      Finding finding = At(step, key.first, key.second);
      finding.global_step = followed.last_step;
      finding.measure = "share_of_largest_gradient";
      finding.value = followed.shares.back();
      finding.comparison = "<";
      finding.threshold = kSmallShare;
      finding.text = fmt::format("in all of its first {}", base::Counted(followed.shares.size(), "step"));
      findings->push_back(std::move(finding));
    }
    sizes_.clear();
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
    for (const LossValue& loss : losses_.Read(step)) {
      const auto [at, is_new] = followed_.try_emplace({loss.tensor, loss.worker});
      at->second.now = loss.value;
      if (is_new) at->second.every_step = plan_ && plan_->KeepsEveryStep(step.tensor(loss.tensor));
    }
    const int64_t position = step.mode() == ModeKey::kGlobal ? step.global_step() : step.mode_step();
    bool judged = false;
    for (auto& [key, followed] : followed_) {
      const std::optional<double> value = followed.now;
      followed.now.reset();
      if (followed.ends > limits_.patience) continue;
      for (const IntervalEnd& end : followed.means.Take(position, step.global_step(), value, limits_.interval,
                                                        gaps_are_losses_ || followed.every_step)) {
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
    const IntervalEnd& first = *followed->first;
    finding.text = fmt::format("{:g} at {}, at best {:g} since", first.mean,
                               StepName(step.mode(), first.position, first.global_step), followed->lowest);
    return finding;
  }

  static Finding At(const StepContext& step, TensorIndex tensor, WorkerIndex worker) {
    Finding finding = FindingAt(step, tensor, worker);
    return finding;
  }

  StateValues inputs_;
  Selector gradients_;
  GradientSiblings siblings_;
  LossReader losses_;
  const RunPlan* plan_ = nullptr;
  Limits limits_;
  int64_t captured_ = 0;  // steps with activation inputs or gradients
  std::map<std::pair<TensorIndex, WorkerIndex>, FollowedGradient> sizes_;
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
      NumberParameter("distribution_range", "float", "", 0, "of the gradient",
                      "A gradient whose 95th percentile minus its 5th is smaller is a hit (Amazon's default: "
                      "0.001); without it gradients are compared with the largest."),
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
    if (parameters.Has("distribution_range")) limits.range = parameters.Float("distribution_range");
    limits.patience = parameters.Int("patience");
    limits.steps = parameters.Int("steps");
    limits.interval = IntervalOf(parameters);
    return MakeRule<PoorWeightInitialization>(std::move(values), std::move(gradients), std::move(losses),
                                              limits);
  });
}

}  // namespace tdbg::rules
