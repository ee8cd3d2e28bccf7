// How far weights move between two captured steps, measured by their own size. README.md beside this file.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <optional>
#include <set>

#include "base/text.h"
#include "rules/frozen_parameters.h"
#include "rules/judging.h"
#include "rules/kept_values.h"
#include "rules/parameter_specs.h"
#include "rules/rule.h"
#include "rules/selector.h"
#include "rules/step_context.h"
#include "trial/step_name.h"

namespace tdbg::rules {
namespace {

struct Limits {
  double large = 10;
  double small = 1e-8;
  double epsilon = 1e-9;
  std::optional<int64_t> num_steps;
  Interval interval;
};

struct Captured {
  int64_t position = 0, global_step = 0;
  TensorValue value;
};

// One weight of one worker: the latest value that is far enough back, and those after it.
struct Followed {
  ValueCadence cadence;
  Interval interval;
  std::deque<Captured> captured;
};

class WeightUpdateRatio : public Rule {
 public:
  WeightUpdateRatio(Selector selector, const Limits& limits)
      : selector_(std::move(selector)), limits_(limits) {}

  uint64_t Columns() const override { return 0; }  // values, not statistics
  plan::Need Needs() const override {
    plan::Need need = selector_.Need();
    need.raw = true;
    need.raw_schedule.emplace().interval = limits_.interval.steps;
    return need;
  }

  Result<Judged> Invoke(const StepContext& step, std::vector<Finding>* findings) override {
    // Only training moves weights: between two evaluations there need not have been any.
    if (step.mode() == ModeKey::kEval || step.mode() == ModeKey::kPredict) return Judged::kNotDue;
    selector_.Update(step);
    frozen_.Update(step);
    const int64_t position = step.mode() == ModeKey::kGlobal ? step.global_step() : step.mode_step();
    bool judged = false;
    const bool readable = ForEachKeptValue(
        step, selector_,
        [&](TensorIndex tensor, WorkerIndex worker) {
          const auto [at, is_new] = followed_.try_emplace({tensor, worker});
          if (is_new) at->second.interval = CadenceInterval(limits_.interval, plan_, step.tensor(tensor));
          return at->second.cadence.MayTake(position, at->second.interval);
        },
        [&](TensorIndex tensor, WorkerIndex worker, TensorValue value) {
          Followed& followed = followed_[{tensor, worker}];
          if (!followed.cadence.Take(position, followed.interval)) return;
          Captured now{position, step.global_step(), std::move(value)};
          if (const Captured* const before = Reference(position, &followed.captured)) {
            judged |= Judge(step, tensor, worker, *before, now, findings);
          }
          if (!limits_.num_steps) followed.captured.clear();
          followed.captured.push_back(std::move(now));
        });
    if (!findings->empty()) return Judged::kJudged;
    if (!readable) return Judged::kIncomplete;
    return judged ? Judged::kJudged : Judged::kNotDue;
  }

  std::string Remarks() const override {
    if (left_out_.empty()) return {};
    return fmt::format("left out, since the script has frozen {}: {}{}",
                       left_out_.size() == 1 ? "it" : "them", *left_out_.begin(),
                       left_out_.size() == 1 ? "" : fmt::format(" and {} more", left_out_.size() - 1));
  }

  std::string WouldHaveNeeded() const override {
    if (!left_out_.empty()) return "a weight that is not frozen; " + Remarks();
    return fmt::format(
        "raw values of at least one tensor {}, finite and not all zero, at two steps at least {} apart (a "
        "run "
        "needs {}: interval {})",
        selector_.Describe(), base::Counted(Distance(), "step"), base::Counted(LeastSteps(), "step"),
        limits_.interval.steps);
  }

  void OnPlan(const RunPlan& plan) override { plan_ = &plan; }
  int64_t LeastSteps() const override {
    // Values are kept at multiples of the interval, from step 0 on.
    return (Distance() + limits_.interval.steps - 1) / limits_.interval.steps * limits_.interval.steps + 1;
  }

 private:
  int64_t Distance() const { return std::max(limits_.num_steps.value_or(1), limits_.interval.steps); }

  // The value that the one at `position` is compared with; drops older values, which no later one needs.
  const Captured* Reference(int64_t position, std::deque<Captured>* captured) const {
    const int64_t latest = position - limits_.num_steps.value_or(1);
    while (captured->size() > 1 && (*captured)[1].position <= latest) captured->pop_front();
    if (captured->empty() || captured->front().position > latest) return nullptr;
    return &captured->front();
  }

  // False where there is nothing to judge: other shapes, values that are not finite, a weight that was zero.
  bool Judge(const StepContext& step, TensorIndex tensor, WorkerIndex worker, const Captured& before,
             const Captured& now, std::vector<Finding>* findings) {
    double change = 0, size = 0;
    const bool comparable = ForEachPair(now.value, before.value, [&](double w, double v) {
      change += std::abs(w - v);
      size += std::abs(v);
      return true;
    });
    if (!comparable || !std::isfinite(change) || !std::isfinite(size) || size == 0) return false;
    const auto count = static_cast<double>(ElementCount(now.value));
    const double ratio = (change / count) / (size / count + limits_.epsilon);
    const bool large = ratio > limits_.large;
    if (!large && !(ratio < limits_.small)) return true;
    if (change == 0 && frozen_.Holds(step.tensor(tensor).name)) {
      left_out_.insert(step.tensor(tensor).name);
      return false;
    }
    Finding finding = FindingAt(step, tensor, worker);
    finding.measure = "update_ratio";
    finding.value = ratio;
    finding.comparison = large ? ">" : "<";
    finding.threshold = large ? limits_.large : limits_.small;
    finding.text = "since " + StepName(step.mode(), before.position, before.global_step);
    findings->push_back(std::move(finding));
    return true;
  }

  Selector selector_;
  Limits limits_;
  const RunPlan* plan_ = nullptr;
  FrozenParameters frozen_;
  std::set<std::string> left_out_;  // names of frozen weights
  std::map<std::pair<TensorIndex, WorkerIndex>, Followed> followed_;
};

}  // namespace

void RegisterWeightUpdateRatio(RuleRegistry* registry) {
  RuleInfo info;
  info.class_name = "WeightUpdateRatio";
  info.snake_name = "weight_update_ratio";
  info.scope = "deep learning";
  info.summary = "Weights move too far, or hardly at all, between two captured steps.";
  info.parameters = {
      NumberParameter(
          "num_steps", "int", "", 1, "steps",
          "Least distance of the two values compared; without it a value is compared with the one "
          "captured before it."),
      NumberParameter("large_threshold", "float", "10.0", 0, "", "A larger ratio is a hit."),
      NumberParameter("small_threshold", "float", "1e-8", 0, "", "A smaller ratio is a hit."),
      NumberParameter("epsilon", "float", "1e-9", 0, "of the weight",
                      "Added to the weight's size before dividing by it."),
      IntervalParameter("Raw weights are kept and compared so many steps apart; 500 without it."),
  };
  registry->Add(std::move(info), [](const Parameters& parameters) -> Result<std::unique_ptr<Rule>> {
    Limits limits;
    limits.large = parameters.Float("large_threshold");
    limits.small = parameters.Float("small_threshold");
    limits.epsilon = parameters.Float("epsilon");
    if (parameters.Has("num_steps")) limits.num_steps = parameters.Int("num_steps");
    limits.interval = IntervalOf(parameters);
    if (limits.small > limits.large) {
      return InvalidArgument(
          fmt::format("parameter small_threshold: {:g} is above large_threshold {:g}: every "
                      "ratio would be a hit",
                      limits.small, limits.large));
    }
    TDBG_ASSIGN_OR_RETURN(Selector selector, Selector::Make({"weights"}, {}));
    return MakeRule<WeightUpdateRatio>(std::move(selector), limits);
  });
}

}  // namespace tdbg::rules
