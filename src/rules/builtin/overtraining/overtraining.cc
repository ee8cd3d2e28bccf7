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
#include "rules/whole_series.h"
#include "trial/step_name.h"

namespace tdbg::rules {
namespace {

struct Limits {
  int64_t patience_train = 5;
  int64_t patience_validation = 10;
  double delta = 0.01;
  bool delta_given = false;  ///< otherwise at most a tenth of the best value is asked for
  Interval interval;
};

// A loss below this share of its first interval's has nothing left to improve.
constexpr double kNearZero = 1e-3;
// Of a short run nothing is said that noise might explain: what is found lies so many standard errors off,
// and there are so many values.
constexpr double kSureErrors = 4;
constexpr int64_t kLeastValues = 20;

// One loss of one worker in one mode.
struct FollowedLoss {
  IntervalMeans means;
  Interval interval;
  bool every_step = false;  // it is due at every step: gaps are the training's own
  std::optional<double> now;
  std::optional<IntervalEnd> best;
  double first_mean = 0;  // of its first interval
  int64_t ends = 0;       // of intervals
  int64_t without_improvement = 0;
  WholeSeries whole;  // until there are enough intervals for a hit
};

class Overtraining : public Rule {
 public:
  Overtraining(Selector selector, const Limits& limits) : losses_(std::move(selector)), limits_(limits) {}

  plan::Need Needs() const override { return losses_.selector().Need(); }
  uint64_t Columns() const override { return LossReader::kColumns; }
  void OnPlan(const RunPlan& plan) override { plan_ = &plan; }
  int64_t LeastSteps() const override { return limits_.interval.given ? 2 * limits_.interval.steps : 0; }

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
      if (value && !followed.interval.given && followed.ends <= Patience(step.mode()))
        followed.whole.Add(position, step.global_step(), *value);
      for (const IntervalEnd& end :
           followed.means.Take(position, step.global_step(), value, followed.interval,
                               gaps_are_losses_ || followed.every_step)) {
        judged |= followed.best.has_value() || !std::isfinite(end.mean);
        if (++followed.ends > Patience(step.mode())) followed.whole = {};
        auto finding = Compare(step.mode(), end, &followed);
        if (!finding) continue;
        SetPlace(step, std::get<0>(key), std::get<1>(key), &*finding);
        findings->push_back(*std::move(finding));
        break;
      }
    }
    return JudgedOf(step, judged, *findings);
  }

  // A loss without enough intervals for a hit is judged as a whole: did it turn in the run's first half?
  Result<Judged> AtEnd(const StepContext& last, std::vector<Finding>* findings) override {
    bool judged = false;
    for (auto& [key, followed] : followed_) {
      const ModeKey mode = std::get<ModeKey>(key);
      const int64_t patience = Patience(mode);
      const int64_t values = followed.whole.values();
      if (values < kLeastValues || followed.interval.given || followed.ends > patience) continue;
      const std::vector<Stretch> parts = followed.whole.Split(static_cast<size_t>(2 * patience));
      if (parts.empty()) continue;
      judged = true;
      const std::string how = fmt::format(
          "its {}values are fewer than {} intervals of {}, so it was judged by intervals of {}", NameOf(mode),
          patience + 1, base::Counted(followed.interval.steps, "step"), parts.front().values);
      if (remark_.empty()) remark_ = fmt::format("{}: {}", last.tensor(std::get<0>(key)).name, how);
      auto finding = LookForTurn(mode, parts);
      if (!finding) continue;
      finding->text += "; " + how;
      SetPlace(last, std::get<0>(key), std::get<1>(key), &*finding);
      finding->global_step = parts.back().last_global_step;
      findings->push_back(*std::move(finding));
    }
    return judged ? Judged::kJudged : Judged::kNotDue;
  }

  std::string Remarks() const override { return remark_; }

  std::string WouldHaveNeeded() const override {
    int64_t longest = 0;
    for (const auto& [key, followed] : followed_) longest = std::max(longest, followed.means.values());
    const std::string least = limits_.interval.given
                                  ? fmt::format("{} of TRAIN or of EVAL (two intervals)",
                                                base::Counted(2 * limits_.interval.steps, "step"))
                                  : fmt::format("{} TRAIN steps or {} EVAL steps",
                                                std::max(kLeastValues, 2 * limits_.patience_train),
                                                std::max(kLeastValues, 2 * limits_.patience_validation));
    return fmt::format("a loss {} over at least {}; {}", losses_.selector().Describe(), least,
                       SeenText(longest));
  }

 private:
  static const char* NameOf(ModeKey mode) {
    return mode == ModeKey::kEval ? "EVAL " : mode == ModeKey::kTrain ? "TRAIN " : "";
  }
  int64_t Patience(ModeKey mode) const {
    return mode == ModeKey::kEval ? limits_.patience_validation : limits_.patience_train;
  }
  // By how much less than `best` is an improvement.
  double Delta(double best) const {
    return limits_.delta_given ? limits_.delta : std::min(limits_.delta, 0.1 * std::abs(best));
  }

  static Finding NotFinite(ModeKey mode, double mean) {
    Finding finding;
    finding.measure = "nonfinite_count";
    finding.value = 1;
    finding.comparison = ">";
    finding.threshold = 0;
    finding.text = fmt::format("{}{}", NameOf(mode), mean);
    return finding;
  }

  // In the second half of the run no interval came near the best of the first half, and on the whole it lies
  // above it by more than its noise. A loss that only stands still may be what there is to learn.
  std::optional<Finding> LookForTurn(ModeKey mode, const std::vector<Stretch>& parts) const {
    const size_t half = parts.size() / 2;
    const Stretch& best = *std::min_element(parts.begin(), parts.begin() + static_cast<ptrdiff_t>(half),
                                            [](const auto& a, const auto& b) { return a.mean < b.mean; });
    for (const Stretch& part : parts) {
      if (!std::isfinite(part.mean)) return NotFinite(mode, part.mean);
    }
    Stretch after;
    for (size_t i = half; i < parts.size(); ++i) {
      if (!(parts[i].mean > best.mean + limits_.delta)) return std::nullopt;
      after.Merge(parts[i]);
    }
    // The best one has few values: they scatter as those of the second half do.
    const double noise = std::sqrt(
        after.Variance() * (1 / static_cast<double>(best.values) + 1 / static_cast<double>(after.values)));
    const bool near_zero = std::abs(after.mean) < kNearZero * std::abs(parts.front().mean);
    if (near_zero || after.mean - best.mean <= kSureErrors * noise) return std::nullopt;
    Finding finding;
    finding.measure = "intervals_without_improvement";
    finding.value = static_cast<double>(parts.size() - half);
    finding.comparison = ">=";
    finding.threshold = static_cast<double>(Patience(mode));
    finding.text = fmt::format("{}{:g}, best {:g} at {}", NameOf(mode), parts.back().mean, best.mean,
                               StepName(mode, best.last_position, best.last_global_step));
    return finding;
  }

  std::optional<Finding> Compare(ModeKey mode, const IntervalEnd& end, FollowedLoss* followed) const {
    if (!std::isfinite(end.mean)) return NotFinite(mode, end.mean);
    if (!followed->best) followed->first_mean = end.mean;
    const bool near_zero = std::abs(end.mean) < kNearZero * std::abs(followed->first_mean);
    if (!followed->best || near_zero || end.mean < followed->best->mean - Delta(followed->best->mean)) {
      if (!followed->best || end.mean < followed->best->mean) followed->best = end;
      followed->without_improvement = 0;
      return std::nullopt;
    }
    const int64_t patience = Patience(mode);
    if (++followed->without_improvement < patience) return std::nullopt;
    Finding finding;
    finding.measure = "intervals_without_improvement";
    finding.value = static_cast<double>(followed->without_improvement);
    finding.comparison = ">=";
    finding.threshold = static_cast<double>(patience);
    finding.text = fmt::format("{}{:g}, best {:g} at {}", NameOf(mode), end.mean, followed->best->mean,
                               StepName(mode, followed->best->position, followed->best->global_step));
    return finding;
  }

  LossReader losses_;
  Limits limits_;
  std::map<std::tuple<TensorIndex, WorkerIndex, ModeKey>, FollowedLoss> followed_;
  const RunPlan* plan_ = nullptr;
  bool gaps_are_losses_ = false;
  std::string remark_;  // how a short run was judged
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
                      "The best value must be undercut by more than this to be improved; of a loss below 0.1 "
                      "a tenth of the best value is enough where none is given."),
      IntervalParameter(
          "Losses are averaged over so many steps, and compared at their ends; 500 without it, and less in a "
          "run too short for a hit."),
  };
  registry->Add(std::move(info), [](const Parameters& parameters) -> Result<std::unique_ptr<Rule>> {
    TDBG_ASSIGN_OR_RETURN(Selector selector, Selector::Make({"losses"}, {}));
    Limits limits;
    limits.patience_train = parameters.Int("patience_train");
    limits.patience_validation = parameters.Int("patience_validation");
    limits.delta = parameters.Float("delta");
    limits.delta_given = parameters.IsGiven("delta");
    limits.interval = IntervalOf(parameters);
    return MakeRule<Overtraining>(std::move(selector), limits);
  });
}

}  // namespace tdbg::rules
