// Two runs that hold the same values. README.md beside this file.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <map>
#include <memory>
#include <tuple>

#include "rules/judging.h"
#include "rules/kept_values.h"
#include "rules/parameter_specs.h"
#include "rules/rule.h"
#include "rules/selector.h"
#include "rules/step_context.h"

namespace tdbg::rules {
namespace {

// numpy.allclose's defaults.
constexpr double kRelative = 1e-5, kAbsolute = 1e-8;

bool Close(double a, double b) {
  if (a == b) return true;
  return std::isfinite(a) && std::isfinite(b) && std::abs(a - b) <= kAbsolute + kRelative * std::abs(b);
}

bool Close(const TensorValue& a, const TensorValue& b) {
  bool close = true;
  return ForEachPair(a, b, [&](double x, double y) { return close = Close(x, y); }) && close;
}

// One tensor of one worker, compared with one other run.
struct Compared {
  int64_t steps = 0;
  int64_t first_step = 0;
  int64_t last_global_step = -1;  // a tensor of one element may come twice in a step
  bool different = false;
};

class SimilarAcrossRuns : public Rule {
 public:
  SimilarAcrossRuns(Selector selector, std::vector<std::string> paths)
      : selector_(std::move(selector)), paths_(std::move(paths)) {}

  void Enter(const RuleEnvironment& environment) override { environment_ = environment; }

  plan::Need Needs() const override {
    plan::Need need = selector_.Need();
    need.raw = true;
    return need;
  }

  Result<Judged> Invoke(const StepContext& step, std::vector<Finding>*) override {
    TDBG_RETURN_IF_ERROR(OpenOthers());
    selector_.Update(step);
    const bool readable = ForEachKeptValue(
        step, selector_, [&](TensorIndex tensor, WorkerIndex worker) { return Wanted(step, tensor, worker); },
        [&](TensorIndex tensor, WorkerIndex worker, const TensorValue& value) {
          for (size_t i = 0; i < others_.size(); ++i) {
            Compared& compared = compared_[{i, tensor, worker}];
            if (compared.different || compared.last_global_step == step.global_step()) continue;
            const auto other = ValueOf(*others_[i], step, tensor, worker);
            if (!other) continue;
            if (compared.steps++ == 0) compared.first_step = step.global_step();
            compared.last_global_step = step.global_step();
            compared.different = !Close(value, *other);
          }
        });
    // Nothing is judged before the end: equal seeds make first steps equal.
    return readable ? Judged::kNotDue : Judged::kIncomplete;
  }

  Result<Judged> AtEnd(const StepContext& last, std::vector<Finding>* findings) override {
    bool judged = false;
    for (const auto& [key, compared] : compared_) {
      const auto& [other, tensor, worker] = key;
      if (compared.steps == 0) continue;
      judged = true;
      if (compared.different) continue;
      Finding finding;
      finding.global_step = last.global_step();
      finding.tensor = last.tensor(tensor).name;
      finding.worker = last.worker_name(worker);
      finding.measure = "equal_steps";
      finding.value = static_cast<double>(compared.steps);
      finding.comparison = ">=";
      finding.threshold = static_cast<double>(compared.steps);
      finding.text =
          fmt::format("every common step from {} on equals {}", compared.first_step, paths_[other]);
      findings->push_back(std::move(finding));
    }
    return judged ? Judged::kJudged : Judged::kNotDue;
  }

  std::string WouldHaveNeeded() const override {
    return fmt::format("values of a tensor {} at steps at which {} holds them, too", selector_.Describe(),
                       fmt::format("{}", fmt::join(paths_, " or ")));
  }

 private:
  // Where all runs are known to differ nothing needs to be read any more.
  bool Wanted(const StepContext& step, TensorIndex tensor, WorkerIndex worker) {
    for (size_t i = 0; i < others_.size(); ++i) {
      const auto found = compared_.find({i, tensor, worker});
      if (found == compared_.end() ||
          (!found->second.different && found->second.last_global_step != step.global_step()))
        return true;
    }
    return false;
  }

  Status OpenOthers() {
    if (!others_.empty()) return OkStatus();
    if (!environment_.open_trial) return FailedPrecondition("other runs cannot be opened from here");
    for (const std::string& path : paths_) {
      auto opened = environment_.open_trial(path);
      if (!opened.ok()) return opened.status().Annotate("other_trials: " + path);
      TDBG_ASSIGN_OR_RETURN(const bool news, (*opened)->Refresh());
      (void)news;
      if (!(*opened)->loaded_all_steps()) {
        others_.clear();
        return FailedPrecondition("other_trials: " + path +
                                  " has not ended; only a finished run can be compared with");
      }
      others_.push_back(*std::move(opened));
    }
    return OkStatus();
  }

  // The worker's own value there, or nothing: another mode at this step is another step.
  static std::optional<TensorValue> ValueOf(const Trial& other, const StepContext& step, TensorIndex tensor,
                                            WorkerIndex worker) {
    const auto there = other.step(step.global_step());
    if (!there || there->mode != step.mode()) return std::nullopt;
    const std::string& name = step.tensor(tensor).name;
    auto value = other.value(name, step.global_step(), step.worker_name(worker));
    if (value.ok()) return *std::move(value);
    const auto number = other.scalar(name, step.global_step(), step.worker_name(worker));
    if (number.ok()) return ElementValue(*number, DType::kFloat64, {});
    return std::nullopt;
  }

  Selector selector_;
  std::vector<std::string> paths_;
  RuleEnvironment environment_;
  std::vector<std::unique_ptr<Trial>> others_;
  std::map<std::tuple<size_t, TensorIndex, WorkerIndex>, Compared> compared_;
};

}  // namespace

void RegisterSimilarAcrossRuns(RuleRegistry* registry) {
  RuleInfo info;
  info.class_name = "SimilarAcrossRuns";
  info.snake_name = "similar_across_runs";
  info.scope = "any";
  info.summary = "A tensor has the values it had in another run, at every step that both hold.";
  ParameterSpec others;
  others.name = "other_trials";
  others.type = "run list";
  others.help =
      "Finished runs to compare with: paths, or names of runs beside this one; also other_trial_0, ...";
  info.parameters = {
      others,
      CollectionNamesParameter("Collections to inspect."),
      TensorRegexParameter("Tensors to inspect by name, on top of collection_names."),
  };
  registry->Add(std::move(info), [](const Parameters& parameters) -> Result<std::unique_ptr<Rule>> {
    std::vector<std::string> paths = parameters.OtherTrials();
    if (paths.empty())
      return InvalidArgument("other_trials (or other_trial_0) must name a finished run to compare with");
    TDBG_ASSIGN_OR_RETURN(Selector selector, RequiredSelector(parameters));
    return MakeRule<SimilarAcrossRuns>(std::move(selector), std::move(paths));
  });
}

}  // namespace tdbg::rules
