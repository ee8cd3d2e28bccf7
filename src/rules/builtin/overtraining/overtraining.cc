// A loss whose best value lies too far back. README.md beside this file.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>

#include "base/text.h"
#include "rules/details.h"
#include "rules/interval_means.h"
#include "rules/judging.h"
#include "rules/loss_values.h"
#include "rules/parameter_specs.h"
#include "rules/rule.h"
#include "rules/run_plan.h"
#include "rules/selector.h"
#include "rules/step_context.h"

namespace tdbg::rules {
namespace {

struct Limits {
  int64_t patience_train = 5;
  int64_t patience_validation = 10;
  double delta = 0.01;
  Interval interval;
};

// One loss of one worker in one mode.
struct Followed {
  IntervalMeans means;
  Interval interval;
  bool every_step = false;  // it is due at every step: gaps are the training's own
  std::optional<double> now;
  std::optional<IntervalEnd> best;
  int64_t without_improvement = 0;
};

class Overtraining : public Rule {
 public:
  Overtraining(Selector selector, const Limits& limits) : losses_(std::move(selector)), limits_(limits) {}

  plan::Need Needs() const override { return losses_.selector().Need(); }
  uint64_t Columns() const override { return LossReader::kColumns; }
  void OnPlan(const RunPlan& plan) override { plan_ = &plan; }
  int64_t LeastSteps() const override { return 2 * limits_.interval.steps; }

  Result<Judged> Invoke(const StepContext& step, std::vector<Finding>* findings) override {
    gaps_are_losses_ |= step.statistics_incomplete();
    // A loss of predictions is no reason to stop a training.
    if (step.mode() == ModeKey::kPredict) return Judged::kNotDue;
    for (const LossValue& loss : losses_.Read(step)) {
      const auto [at, is_new] = followed_.try_emplace({loss.tensor, loss.worker, step.mode()});
      at->second.now = loss.value;
      if (!is_new) continue;
      at->second.interval = IntervalOf(limits_.interval, step.tensor(loss.tensor));
      at->second.every_step = plan_ != nullptr && plan_->KeepsEveryStep(step.tensor(loss.tensor));
    }
    const int64_t position = step.mode() == ModeKey::kGlobal ? step.global_step() : step.mode_step();
    bool judged = false;
    for (auto& [key, followed] : followed_) {
      if (std::get<ModeKey>(key) != step.mode()) continue;
      const std::optional<double> value = followed.now;
      followed.now.reset();
      for (const IntervalEnd& end :
           followed.means.Take(position, step.global_step(), value, followed.interval,
                               gaps_are_losses_ || followed.every_step)) {
        judged |= followed.best.has_value() || !std::isfinite(end.mean);
        auto finding = Compare(step.mode(), end, &followed);
        if (!finding) continue;
        SetPlace(step, std::get<0>(key), std::get<1>(key), &*finding);
        findings->push_back(*std::move(finding));
        break;
      }
    }
    return JudgedOf(step, judged, *findings);
  }

  std::string WouldHaveNeeded() const override {
    int64_t longest = 0;
    for (const auto& [key, followed] : followed_) longest = std::max(longest, followed.means.values());
    return fmt::format("a loss {} over at least {} of TRAIN or of EVAL (two intervals); {}",
                       losses_.selector().Describe(), base::Counted(2 * limits_.interval.steps, "step"),
                       SeenText(longest));
  }

 private:
  std::optional<Finding> Compare(ModeKey mode, const IntervalEnd& end, Followed* followed) const {
    Finding finding;
    const char* const name = mode == ModeKey::kEval ? "EVAL " : mode == ModeKey::kTrain ? "TRAIN " : "";
    if (!std::isfinite(end.mean)) {
      finding.measure = "nonfinite_count";
      finding.value = 1;
      finding.comparison = ">";
      finding.threshold = 0;
      finding.text = fmt::format("{}{}", name, end.mean);
      return finding;
    }
    if (!followed->best || end.mean < followed->best->mean - limits_.delta) {
      followed->best = end;
      followed->without_improvement = 0;
      return std::nullopt;
    }
    const int64_t patience = mode == ModeKey::kEval ? limits_.patience_validation : limits_.patience_train;
    if (++followed->without_improvement < patience) return std::nullopt;
    finding.measure = "intervals_without_improvement";
    finding.value = static_cast<double>(followed->without_improvement);
    finding.comparison = ">=";
    finding.threshold = static_cast<double>(patience);
    finding.text = fmt::format("{}{:g}, best {:g} at step {}", name, end.mean, followed->best->mean,
                               followed->best->global_step);
    return finding;
  }

  LossReader losses_;
  Limits limits_;
  std::map<std::tuple<TensorIndex, WorkerIndex, ModeKey>, Followed> followed_;
  const RunPlan* plan_ = nullptr;
  bool gaps_are_losses_ = false;
};

}  // namespace

void RegisterOvertraining(RuleRegistry* registry) {
  RuleInfo info;
  info.class_name = "Overtraining";
  info.snake_name = "overtraining";
  info.scope = "any";
  info.summary = "A loss, averaged over intervals, has not improved for too long.";
  info.parameters = {
      NumberParameter("patience_train", "int", "5", 1, "intervals",
                      "So many intervals of TRAIN steps in a row without improvement are a hit."),
      NumberParameter("patience_validation", "int", "10", 1, "intervals",
                      "So many intervals of EVAL steps in a row without improvement are a hit."),
      NumberParameter("delta", "float", "0.01", 0, "of the loss",
                      "The best value must be undercut by more than this to be improved."),
      IntervalParameter(
          "Losses are averaged over so many steps, and compared at their ends; 500 without it."),
  };
  registry->Add(std::move(info), [](const Parameters& parameters) -> Result<std::unique_ptr<Rule>> {
    TDBG_ASSIGN_OR_RETURN(Selector selector, Selector::Make({"losses"}, {}));
    Limits limits;
    limits.patience_train = parameters.Int("patience_train");
    limits.patience_validation = parameters.Int("patience_validation");
    limits.delta = parameters.Float("delta");
    limits.interval = IntervalOf(parameters);
    return MakeRule<Overtraining>(std::move(selector), limits);
  });
}

}  // namespace tdbg::rules
