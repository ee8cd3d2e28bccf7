// Gradients so small that the weights behind them no longer learn. README.md beside this file.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/text.h"
#include "rules/builtin/vanishing_gradient/streak.h"
#include "rules/gradient_siblings.h"
#include "rules/judging.h"
#include "rules/parameter_specs.h"
#include "rules/rule.h"
#include "rules/selector.h"
#include "rules/step_context.h"
#include "trial/columns.h"
#include "trial/step_name.h"

namespace tdbg::rules {
namespace {

constexpr size_t kMaxNamed = 3;

class VanishingGradient : public Rule {
 public:
  VanishingGradient(Selector selector, double threshold, int64_t patience)
      : selector_(std::move(selector)), threshold_(threshold), patience_(patience) {}

  plan::Need Needs() const override { return selector_.Need(); }
  uint64_t Columns() const override { return columns::kFinite | columns::kMeanAbs; }

  Result<Judged> Invoke(const StepContext& step, std::vector<Finding>* findings) override {
    // Where AMP saw an overflow the gradients are inf or NaN by design, and the update was not made.
    if (step.skipped()) return Judged::kNotDue;
    selector_.Update(step);
    siblings_.Update(step, selector_);
    small_.clear();
    bool judged = false;
    for (const Rows rows : step.rows()) judged |= LookAt(step, rows);
    for (const Small& small : small_) Judge(step, small, findings);
    return JudgedOf(step, judged, *findings);
  }

  // A run shorter than the patience: what never was above the threshold has vanished for all of it.
  Result<Judged> AtEnd(const StepContext& last, std::vector<Finding>* findings) override {
    NameAbsent(last);
    for (const auto& [worker, followed] : followed_) {
      for (size_t i = 0; i < followed.streaks.size(); ++i) {
        const Streak& streak = followed.streaks[i];
        const auto tensor = static_cast<TensorIndex>(i);
        if (!streak.open() || streak.ever_above()) continue;
        if (!followed.any_above) {
          findings->push_back(Hit(last, tensor, worker, streak.last_step(), streak.last_value()));
        } else if (streak.rising()) {
          left_out_.emplace(last.tensor(tensor).name, "still growing from its first step on");
        } else {
          left_out_.emplace(
              last.tensor(tensor).name,
              fmt::format("{} since its first step, which fewer than {} cannot tell from a small "
                          "start by design",
                          streak.only_zeros() ? "zero" : "below the threshold",
                          base::Counted(patience_, "step")));
        }
      }
    }
    return findings->empty() ? Judged::kNotDue : Judged::kJudged;
  }

  std::string Remarks() const override {
    std::string text = absent_;
    size_t named = 0;
    for (const auto& [name, why] : left_out_) {
      if (named == kMaxNamed) break;
      text +=
          fmt::format("{}{}{}: {}", text.empty() ? "" : "; ", named++ == 0 ? "left out: " : "", name, why);
    }
    if (left_out_.size() > kMaxNamed) text += fmt::format("; and {} more", left_out_.size() - kMaxNamed);
    return text;
  }

  std::string WouldHaveNeeded() const override {
    return "statistics of at least one finite tensor " + selector_.Describe() +
           " at a step that was not skipped; check that parameters require gradients and that the optimizer "
           "is stepped";
  }

 private:
  struct Followed {
    std::vector<Streak> streaks;  // by tensor
    bool any_above = false;       // some gradient of this worker has not vanished
  };
  struct Small {
    TensorIndex tensor = 0;
    WorkerIndex worker = 0;
    double mean_abs = 0;
  };

  static int64_t ModeStep(const StepContext& step) {
    return step.mode() == ModeKey::kGlobal ? step.global_step() : step.mode_step();
  }

  // What the training said of parameters that get no gradient: zeros that nobody sees.
  void NameAbsent(const StepContext& last) {
    const std::string* const text = last.Context("gradients_absent");
    if (text == nullptr) return;
    const auto json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
    std::vector<std::string> names;
    if (!json.is_object() || !json.contains("names")) return;
    for (const auto& name : json["names"]) {
      if (name.is_string()) names.push_back(name.get<std::string>());
    }
    std::set<std::string> seen;
    for (const auto& [worker, followed] : followed_) {
      for (size_t i = 0; i < followed.streaks.size(); ++i) {
        if (followed.streaks[i].seen()) seen.insert(last.tensor(static_cast<TensorIndex>(i)).name);
      }
    }
    std::erase_if(names, [&](const std::string& name) { return seen.contains("gradient/" + name); });
    if (names.empty()) return;
    absent_ = fmt::format("{} never had a gradient: {}", base::Counted(names.size(), "parameter"),
                          fmt::join(std::span(names).first(std::min(names.size(), kMaxNamed)), ", "));
    if (names.size() > kMaxNamed) absent_ += fmt::format(" and {} more", names.size() - kMaxNamed);
  }

  // Columns and not rows: this loop is what replaying a rule costs.
  bool LookAt(const StepContext& step, const Rows rows) {
    const uint8_t* const inspected = selector_.mask();
    Followed& followed = followed_[rows.worker()];
    followed.streaks.resize(step.tensor_count());
    bool judged = false;
    for (uint32_t i = rows.begin(); i < rows.end(); ++i) {
      const TensorIndex tensor = rows.tensor(i);
      if (!inspected[tensor] || rows.sub(i) != 0 || rows.point(i) != Point::kNone) continue;
      // ExplodingTensor's business; here the mean of what is left would only mislead.
      if (!rows.is_finite(i) || rows.is_empty(i)) continue;
      judged = true;
      const double mean_abs = rows.mean_abs(i);
      // All zero is a hit even where somebody set the threshold to 0.
      if (mean_abs >= threshold_ && mean_abs != 0) {
        followed.streaks[tensor].Above(ModeStep(step), step.global_step());
        followed.any_above = true;
      } else {
        small_.push_back({tensor, rows.worker(), mean_abs});
      }
    }
    return judged;
  }

  void Judge(const StepContext& step, const Small& small, std::vector<Finding>* findings) {
    std::vector<Streak>& streaks = followed_[small.worker].streaks;
    const int64_t weight = siblings_.WeightOf(small.tensor);
    if (weight >= 0 && streaks[static_cast<size_t>(weight)].above_at() == step.global_step()) {
      left_out_.try_emplace(step.tensor(small.tensor).name, "its weight's gradient has not vanished");
      return;
    }
    if (streaks[small.tensor].Below(ModeStep(step), step.global_step(), small.mean_abs, patience_))
      findings->push_back(Hit(step, small.tensor, small.worker, step.global_step(), small.mean_abs));
  }

  Finding Hit(const StepContext& step, TensorIndex tensor, WorkerIndex worker, int64_t global_step,
              double mean_abs) const {
    Finding finding;
    finding.global_step = global_step;
    finding.tensor = step.tensor(tensor).name;
    finding.worker = step.worker_name(worker);
    finding.measure = "mean_abs";
    finding.value = mean_abs;
    finding.comparison = mean_abs < threshold_ ? "<" : "<=";
    finding.threshold = threshold_;
    if (mean_abs == 0) finding.text = "all zero";
    const Streak& streak = followed_.at(worker).streaks[tensor];
    if (streak.first_step() != global_step) {
      finding.text += fmt::format("{}since {}", mean_abs == 0 ? " " : "",
                                  StepName(step.mode(), streak.first_position(), streak.first_step()));
    }
    return finding;
  }

  Selector selector_;
  GradientSiblings siblings_;
  double threshold_;
  int64_t patience_;
  std::map<WorkerIndex, Followed> followed_;
  std::vector<Small> small_;  // of the step at hand
  std::map<std::string, std::string> left_out_;
  std::string absent_;  // of the remarks
};

}  // namespace

void RegisterVanishingGradient(RuleRegistry* registry) {
  RuleInfo info;
  info.class_name = "VanishingGradient";
  info.snake_name = "vanishing_gradient";
  info.scope = "deep learning";
  info.summary = "A gradient's mean absolute value falls below a threshold.";
  info.parameters = {
      NumberParameter("threshold", "float", "1e-7", 0, "of the gradient",
                      "The mean absolute value below which a gradient counts as vanished."),
      NumberParameter("patience", "int", "10", 1, "steps",
                      "A gradient that stays below the threshold for so many steps is a hit; 1: the first."),
  };
  registry->Add(std::move(info), [](const Parameters& parameters) -> Result<std::unique_ptr<Rule>> {
    TDBG_ASSIGN_OR_RETURN(Selector selector, Selector::Make({"gradients"}, {}));
    return MakeRule<VanishingGradient>(std::move(selector), parameters.Float("threshold"),
                                       parameters.Int("patience"));
  });
}

}  // namespace tdbg::rules
