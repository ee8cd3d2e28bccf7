// Tensors that stay what they were. README.md beside this file.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "base/text.h"
#include "rules/details.h"
#include "rules/judging.h"
#include "rules/kept_values.h"
#include "rules/parameter_specs.h"
#include "rules/rule.h"
#include "rules/selector.h"
#include "rules/step_context.h"
#include "trial/step_name.h"

namespace tdbg::rules {
namespace {

struct Tolerance {
  double relative = 1e-5;
  double absolute = 1e-8;
  bool equal_nan = false;

  // numpy.isclose(older, newer).
  bool Close(double older, double newer) const {
    if (older == newer) return true;
    if (std::isnan(older) && std::isnan(newer)) return equal_nan;
    return std::isfinite(older) && std::isfinite(newer) &&
           std::abs(older - newer) <= absolute + relative * std::abs(newer);
  }
  bool Close(const TensorValue& older, const TensorValue& newer) const {
    bool close = true;
    const bool comparable =
        ForEachPair(older, newer, [&](double a, double b) { return close = Close(a, b); });
    return comparable && close;
  }
};

// One tensor of one worker in one mode.
struct Followed {
  ValueCadence cadence;
  Interval interval;
  TensorValue last;
  int64_t captured = 0;
  int64_t unchanged = 0;  // the latest values that are each close to the one before; the first counts, too
  std::string unchanged_since;  // the name of the first of their steps
};

class UnchangedTensor : public Rule {
 public:
  UnchangedTensor(Selector selector, int64_t num_steps, const Tolerance& tolerance, const Interval& interval)
      : selector_(std::move(selector)), num_steps_(num_steps), tolerance_(tolerance), interval_(interval) {}

  uint64_t Columns() const override { return 0; }  // values, not statistics
  plan::Need Needs() const override {
    plan::Need need = selector_.Need();
    need.raw = true;
    need.raw_schedule.emplace().interval = interval_.steps;
    return need;
  }

  Result<Judged> Invoke(const StepContext& step, std::vector<Finding>* findings) override {
    selector_.Update(step);
    const int64_t position = step.mode() == ModeKey::kGlobal ? step.global_step() : step.mode_step();
    bool judged = false;
    const bool readable = ForEachKeptValue(
        step, selector_,
        [&](TensorIndex tensor, WorkerIndex worker) {
          const auto [at, is_new] = followed_.try_emplace({tensor, worker, step.mode()});
          if (is_new) at->second.interval = CadenceInterval(interval_, plan_, step.tensor(tensor));
          return at->second.cadence.MayTake(position, at->second.interval);
        },
        [&](TensorIndex tensor, WorkerIndex worker, TensorValue value) {
          Followed& followed = followed_[{tensor, worker, step.mode()}];
          // An empty tensor can neither change nor stay the same.
          if (!followed.cadence.Take(position, followed.interval) || ElementCount(value) == 0) return;
          // Types that cannot be read as numbers (complex, float8) cannot be compared.
          double first;
          if (!LoadElements(value, 0, {&first, 1})) return;
          const bool same = followed.captured > 0 && tolerance_.Close(followed.last, value);
          if (!same) {
            followed.unchanged = 0;
            followed.unchanged_since = StepName(step.mode(), step.mode_step(), step.global_step());
          }
          ++followed.unchanged;
          ++followed.captured;
          followed.last = std::move(value);
          if (followed.captured < num_steps_) return;
          judged = true;
          if (followed.unchanged >= num_steps_) Add(step, tensor, worker, followed, findings);
        });
    if (!findings->empty()) return Judged::kJudged;
    if (!readable) return Judged::kIncomplete;
    return judged ? Judged::kJudged : Judged::kNotDue;
  }

  std::string WouldHaveNeeded() const override {
    int64_t most = 0;
    for (const auto& [key, followed] : followed_) most = std::max(most, followed.captured);
    return fmt::format("{} of one tensor {}, {} apart; {} (a run needs {}: interval {})",
                       base::Counted(num_steps_, "value"), selector_.Describe(),
                       base::Counted(interval_.steps, "step"), KeptText(most),
                       base::Counted(LeastSteps(), "step"), interval_.steps);
  }

  void OnPlan(const RunPlan& plan) override { plan_ = &plan; }
  int64_t LeastSteps() const override { return (num_steps_ - 1) * interval_.steps + 1; }

 private:
  void Add(const StepContext& step, TensorIndex tensor, WorkerIndex worker, const Followed& followed,
           std::vector<Finding>* findings) const {
    Finding finding = FindingAt(step, tensor, worker);
    finding.measure = "unchanged_values";
    finding.value = static_cast<double>(followed.unchanged);
    finding.comparison = ">=";
    finding.threshold = static_cast<double>(num_steps_);
    finding.text = "since " + followed.unchanged_since;
    findings->push_back(std::move(finding));
  }

  Selector selector_;
  int64_t num_steps_;
  Tolerance tolerance_;
  Interval interval_;
  const RunPlan* plan_ = nullptr;
  std::map<std::tuple<TensorIndex, WorkerIndex, ModeKey>, Followed> followed_;
};

}  // namespace

void RegisterUnchangedTensor(RuleRegistry* registry) {
  RuleInfo info;
  info.class_name = "UnchangedTensor";
  info.snake_name = "unchanged_tensor";
  info.scope = "any";
  info.summary = "A tensor's captured values do not change any more.";
  info.parameters = {
      CollectionNamesParameter("Collections to inspect."),
      TensorRegexParameter("Tensors to inspect by name, on top of collection_names."),
      NumberParameter("num_steps", "int", "3", 2, "values",
                      "So many values in a row that are close are a hit."),
      NumberParameter("rtol", "float", "1e-5", 0, "of the newer value",
                      "Relative tolerance of two elements."),
      NumberParameter("atol", "float", "1e-8", 0, "of the tensor", "Absolute tolerance of two elements."),
      BoolParameter("equal_nan", "False", "NaN that stays NaN has not changed."),
      IntervalParameter("Raw values are kept and compared so many steps apart; 500 without it."),
  };
  registry->Add(std::move(info), [](const Parameters& parameters) -> Result<std::unique_ptr<Rule>> {
    TDBG_ASSIGN_OR_RETURN(Selector selector, RequiredSelector(parameters));
    const Tolerance tolerance{parameters.Float("rtol"), parameters.Float("atol"),
                              parameters.Bool("equal_nan")};
    return MakeRule<UnchangedTensor>(std::move(selector), parameters.Int("num_steps"), tolerance,
                                     IntervalOf(parameters));
  });
}

}  // namespace tdbg::rules
