// A loss that no longer falls, or rises. README.md beside this file.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/text.h"
#include "rules/builtin/loss_not_decreasing/loss_series.h"
#include "rules/details.h"
#include "rules/judging.h"
#include "rules/loss_values.h"
#include "rules/parameter_specs.h"
#include "rules/rule.h"
#include "rules/run_plan.h"
#include "rules/selector.h"
#include "rules/step_context.h"
#include "trial/mode_name.h"
#include "trial/step_name.h"

namespace tdbg::rules {
namespace {

struct Thresholds {
  double diff_percent = 0.1;
  bool diff_given = false;  ///< otherwise it is what a loss is to fall by in the default interval
  double increase_percent = 5;
};

// Of a short run nothing is said that noise might explain: what is found lies so many standard errors off.
constexpr double kSureErrors = 4;

// For text: which sign a NaN has depends on how it was computed.
double Unsigned(double value) { return std::isnan(value) ? std::abs(value) : value; }

class LossNotDecreasing : public Rule {
 public:
  LossNotDecreasing(Selector selector, LossCadence cadence, Thresholds thresholds)
      : losses_(std::move(selector)), cadence_(cadence), thresholds_(thresholds) {}

  plan::Need Needs() const override { return losses_.selector().Need(); }
  uint64_t Columns() const override { return LossReader::kColumns; }
  void OnPlan(const RunPlan& plan) override { plan_ = &plan; }
  // The first interval's end has nothing to be compared with.
  int64_t LeastSteps() const override {
    return cadence_.interval.given ? LeastStepsOf(cadence_.interval.steps) : 0;
  }

  Result<Judged> Invoke(const StepContext& step, std::vector<Finding>* findings) override {
    for (const LossValue& loss : losses_.Read(step)) {
      const auto [at, is_new] = series_.try_emplace({loss.tensor, loss.worker});
      at->second.now = loss.value;
      if (!is_new) continue;
      at->second.cadence = cadence_;
      at->second.cadence.interval = IntervalOf(cadence_.interval, step.tensor(loss.tensor));
      at->second.every_step = plan_ != nullptr && plan_->KeepsEveryStep(step.tensor(loss.tensor));
    }
    gaps_are_losses_ |= step.statistics_incomplete();
    bool judged = false;
    for (auto& [key, followed] : series_) {
      const std::optional<double> value = followed.now;
      followed.now.reset();
      // Most series have a value at most steps, and none is due: Take is then a handful of additions.
      for (const LossCheck& check : followed.series.Take(step.info(), value, followed.cadence,
                                                         gaps_are_losses_ || followed.every_step)) {
        judged = true;
        if (auto finding = Compare(check)) {
          SetPlace(step, key.first, key.second, &*finding);
          finding->text += ModeText(check.mode, followed.series);
          findings->push_back(*std::move(finding));
          break;
        }
      }
    }
    return JudgedOf(step, judged, *findings);
  }

  // A run too short for two intervals is judged as a whole: its second half against its first.
  Result<Judged> AtEnd(const StepContext& last, std::vector<Finding>* findings) override {
    bool judged = false;
    for (auto& [key, followed] : series_) {
      const std::optional<LossHalves> halves = followed.series.Halves(followed.cadence);
      if (!halves) continue;
      judged = true;
      if (remark_.empty()) remark_ = WholeText(*halves, followed.cadence);
      auto finding = CompareHalves(*halves);
      if (!finding) continue;
      SetPlace(last, key.first, key.second, &*finding);
      finding->global_step = halves->second.last_global_step;
      finding->text += "; " + WholeText(*halves, followed.cadence) + ModeText(halves->mode, followed.series);
      findings->push_back(*std::move(finding));
    }
    return judged ? Judged::kJudged : Judged::kNotDue;
  }

  std::string WouldHaveNeeded() const override {
    const int64_t interval = (series_.empty() ? cadence_ : series_.begin()->second.cadence).interval.steps;
    const std::string how = cadence_.interval.given
                                ? fmt::format("interval {}, num_steps {}", interval, cadence_.num_steps)
                                : fmt::format("num_steps {}", cadence_.num_steps);
    std::map<ModeKey, int64_t> longest;
    for (const auto& [key, followed] : series_) {
      for (const auto& [mode, values] : followed.series.values())
        longest[mode] = std::max(longest[mode], values);
    }
    std::string seen;
    for (const auto& [mode, values] : longest) {
      // "600 TRAIN values and 3 EVAL values were seen"
      seen += fmt::format("{}{} {} {}", seen.empty() ? "" : " and ", values, ModeName(mode),
                          values == 1 ? "value" : "values");
    }
    seen += longest.size() == 1 && longest.begin()->second == 1 ? " was seen" : " were seen";
    const std::string mode = cadence_.mode ? std::string(ModeName(*cadence_.mode)) + " " : "";
    return fmt::format("a loss {} over at least {} {}steps{} ({}); {}", losses_.selector().Describe(),
                       cadence_.interval.given ? LeastStepsOf(interval) : 2 * cadence_.num_steps, mode,
                       cadence_.mode ? "" : " of one mode", how, longest.empty() ? SeenText(0) : seen);
  }

  std::string Remarks() const override {
    if (!remark_.empty()) return remark_;
    // EVAL is what was meant; that it was too little belongs to the verdict.
    if (cadence_.mode) return {};
    for (const auto& [key, followed] : series_) {
      const auto values = followed.series.values();
      const auto eval = values.find(ModeKey::kEval);
      const auto judged = followed.series.judged();
      if (eval == values.end() || !judged || *judged == ModeKey::kEval) continue;
      return fmt::format("judged by {} losses: there {} {}, and {} are needed (interval {})",
                         ModeName(*judged), eval->second == 1 ? "was" : "were",
                         base::Counted(eval->second, "EVAL value"),
                         LeastStepsOf(followed.cadence.interval.steps), followed.cadence.interval.steps);
    }
    return {};
  }

 private:
  struct Followed {
    LossSeries series;
    LossCadence cadence;
    bool every_step = false;  // it is due at every step: gaps are the training's own
    std::optional<double> now;
  };

  int64_t LeastStepsOf(int64_t interval) const {
    return interval + (cadence_.num_steps + interval - 1) / interval * interval;
  }

  // How a short run was judged: what stands in for the interval.
  std::string WholeText(const LossHalves& halves, const LossCadence& cadence) const {
    const int64_t values = halves.first.values + halves.second.values;
    return fmt::format(
        "the loss's {} {} are fewer than the {} that intervals of {} need, so the second half was compared "
        "with "
        "the first",
        values, halves.mode == ModeKey::kGlobal ? "values" : std::string(ModeName(halves.mode)) + " values",
        LeastStepsOf(cadence.interval.steps), cadence.interval.steps);
  }

  // A loss of a short run that has not fallen: it rose by more than its noise, or so little noise is in it
  // that a decrease would show. One that was 0 all along has nothing left to fall.
  std::optional<Finding> CompareHalves(const LossHalves& halves) const {
    const Stretch &before = halves.first, &now = halves.second;
    Finding finding;
    finding.text =
        fmt::format("mean of {} values {:g}, {:g} at {}", now.values, Unsigned(now.mean), before.mean,
                    StepName(halves.mode, before.last_position, before.last_global_step));
    if (!std::isfinite(now.mean) || !std::isfinite(before.mean)) {
      finding.measure = "nonfinite_count";
      finding.value = 1;
      finding.comparison = ">";
      finding.threshold = 0;
      return finding;
    }
    if (now.mean == 0 && before.mean == 0) return std::nullopt;
    const double sure = kSureErrors * ErrorOfDifference(before, now);
    const double scale = std::abs(before.mean) / 100;
    const double decrease = before.mean == now.mean ? 0 : (before.mean - now.mean) / scale;
    if (now.mean - before.mean > std::max(sure, thresholds_.increase_percent * scale)) {
      finding.measure = "increase_percent";
      finding.value = -decrease;
      finding.comparison = ">";
      finding.threshold = thresholds_.increase_percent;
      return finding;
    }
    finding.threshold = thresholds_.diff_percent;
    if (!thresholds_.diff_given)
      finding.threshold *= static_cast<double>(now.values) / static_cast<double>(kDefaultInterval);
    if (before.mean - now.mean + sure >= finding.threshold * scale) return std::nullopt;
    finding.measure = "decrease_percent";
    finding.value = decrease;
    finding.comparison = "<";
    return finding;
  }

  // EVAL is what was meant; that another mode is judged belongs to the evidence.
  std::string ModeText(ModeKey judged, const LossSeries& series) const {
    const auto values = series.values();
    const auto eval = values.find(ModeKey::kEval);
    if (cadence_.mode || judged == ModeKey::kEval || eval == values.end()) return {};
    return fmt::format("; {} losses, EVAL has {} so far", ModeName(judged),
                       base::Counted(eval->second, "value"));
  }

  std::optional<Finding> Compare(const LossCheck& check) const {
    Finding finding;
    const double now = check.latest.mean;
    const std::string mean =
        check.latest.values > 1 ? fmt::format("mean of {} values ", check.latest.values) : "";
    if (!std::isfinite(now) || !check.earlier) {
      finding.measure = "nonfinite_count";
      finding.value = 1;
      finding.comparison = ">";
      finding.threshold = 0;
      finding.text = fmt::format("{}{}", mean, Unsigned(now));
      return finding;
    }
    const double before = check.earlier->mean;
    // From 0, a loss that stays has not decreased; one that moves has moved without bound.
    double decrease = (before - now) / std::abs(before) * 100;
    if (before == now) decrease = 0;
    finding.text = fmt::format("{}{:g}, {:g} at {}", mean, now, before,
                               StepName(check.mode, check.earlier->position, check.earlier->global_step));
    if (now > before + std::abs(before) * thresholds_.increase_percent / 100) {
      finding.measure = "increase_percent";
      finding.value = -decrease;
      finding.comparison = ">";
      finding.threshold = thresholds_.increase_percent;
      return finding;
    }
    // Written so that a reference that is not finite (between two checks) counts as no decrease.
    if (decrease >= thresholds_.diff_percent) return std::nullopt;
    finding.measure = "decrease_percent";
    finding.value = decrease;
    finding.comparison = "<";
    finding.threshold = thresholds_.diff_percent;
    return finding;
  }

  LossReader losses_;
  LossCadence cadence_;
  Thresholds thresholds_;
  const RunPlan* plan_ = nullptr;
  std::map<std::pair<TensorIndex, WorkerIndex>, Followed> series_;
  bool gaps_are_losses_ = false;
  std::string remark_;  // how a short run was judged
};

constexpr ModeKey kModes[] = {ModeKey::kTrain, ModeKey::kEval, ModeKey::kPredict, ModeKey::kGlobal};

}  // namespace

void RegisterLossNotDecreasing(RuleRegistry* registry) {
  RuleInfo info;
  info.class_name = "LossNotDecreasing";
  info.snake_name = "loss_not_decreasing";
  info.scope = "any";
  info.summary = "A loss, averaged over intervals, does not fall enough, or rises.";
  ParameterSpec mode = TextParameter(
      "mode", "",
      "Whose steps count and whose losses are compared; without it EVAL where there are enough, else TRAIN, "
      "else GLOBAL.");
  for (const ModeKey known : kModes) mode.choices.emplace_back(ModeName(known));
  info.parameters = {
      CollectionNamesParameter("Collections to inspect."),
      TensorRegexParameter("Tensors to inspect by name."),
      BoolParameter("use_losses_collection", "True",
                    "Inspect the collection losses, besides what the selector names."),
      NumberParameter("num_steps", "int", "10", 1, "steps",
                      "Least distance of two checks, and of the values compared."),
      NumberParameter("diff_percent", "float", "0.1", 0, "percent", "A smaller decrease than this is a hit."),
      NumberParameter("increase_threshold_percent", "float", "5", 0, "percent",
                      "An increase beyond this is a hit and reported as one."),
      mode,
      IntervalParameter(
          "Losses are averaged over so many steps, and compared at their ends; 500 without it (XGBoost's "
          "metrics: 10), and in a run too short for that its halves."),
  };
  registry->Add(std::move(info), [](const Parameters& parameters) -> Result<std::unique_ptr<Rule>> {
    std::vector<std::string> collections = parameters.List("collection_names");
    const std::vector<std::string> regexes = parameters.List("tensor_regex");
    if (parameters.Bool("use_losses_collection")) {
      if (std::find(collections.begin(), collections.end(), "losses") == collections.end())
        collections.push_back("losses");
    } else if (collections.empty() && regexes.empty()) {
      return InvalidArgument(
          "with use_losses_collection False, collection_names or tensor_regex must say what to inspect");
    }
    TDBG_ASSIGN_OR_RETURN(Selector selector, Selector::Make(std::move(collections), regexes));
    LossCadence cadence;
    cadence.interval = IntervalOf(parameters);
    cadence.num_steps = parameters.Int("num_steps");
    for (const ModeKey known : kModes) {
      if (parameters.Text("mode") == ModeName(known)) cadence.mode = known;
    }
    Thresholds thresholds;
    thresholds.diff_percent = parameters.Float("diff_percent");
    thresholds.diff_given = parameters.IsGiven("diff_percent");
    thresholds.increase_percent = parameters.Float("increase_threshold_percent");
    return MakeRule<LossNotDecreasing>(std::move(selector), cadence, thresholds);
  });
}

}  // namespace tdbg::rules
