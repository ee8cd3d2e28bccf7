// Does the model learn? Do gradients reach the weights, and does the loss fall?
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "base/text.h"
#include "rules/profile/compared.h"
#include "rules/profile/detector.h"
#include "rules/profile/history.h"

namespace tdbg::rules::profile {
namespace {

constexpr int kSteps = 10, kLongSteps = 20;
constexpr size_t kPastLosses = 20;
constexpr double kFewRows = 8;

std::string GradientName(const Digest& step, const Parameter& parameter) {
  return parameter.gradient ? step.step().tensor(*parameter.gradient).name : parameter.name;
}

class ZeroGradient : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train()) return;
    const bool turns = turns_.Now();
    if (step.step().skipped() || told_) return;
    zero_.resize(step.parameters().size());
    // A loss of zero has nothing to teach: of triplets, hinges and what is learnt by heart. Where optimizers
    // take turns one of them may have such a loss at a step of several: a judge that is sure.
    const auto nothing = [](const Loss& loss) { return loss.value == 0; };
    if (!step.losses().empty() &&
        (turns ? std::ranges::any_of(step.losses(), nothing) : std::ranges::all_of(step.losses(), nothing))) {
      std::ranges::fill(zero_, 0);
      return;
    }
    const Parameter* nearest = nullptr;  // to the loss: behind it nothing arrives
    int found = 0;
    // Where something arrives before it, it is a branch that not every input takes: an expert, a second head.
    // A critic that lies before its actor is another model.
    const auto model_of = [&](const Parameter& parameter) {
      return turns && parameter.group >= 0 ? step.groups()[static_cast<size_t>(parameter.group)].optimizer
                                           : std::string();
    };
    std::map<std::string, uint32_t> first_alive;
    for (const Parameter& parameter : step.parameters()) {
      if (!parameter.matrix() || !parameter.gradient_now ||
          parameter.gradient_now->zeros >= parameter.gradient_now->count)
        continue;
      const auto [first, is_new] = first_alive.try_emplace(model_of(parameter), parameter.order);
      if (!is_new) first->second = std::min(first->second, parameter.order);
    }
    for (size_t i = 0; i < zero_.size(); ++i) {
      const Parameter& parameter = step.parameters()[i];
      if (!parameter.matrix() || !parameter.gradient_now) continue;
      const Numbers& now = *parameter.gradient_now;
      zero_[i] = now.finite() && now.zeros == now.count ? zero_[i] + 1 : 0;
      if (zero_[i] < kSteps) continue;
      const auto first = first_alive.find(model_of(parameter));
      const bool branch = first != first_alive.end() && first->second <= parameter.order;
      if (zero_[i] < (branch ? 10 * kSteps : kSteps)) continue;
      ++found;
      if (nearest == nullptr || parameter.order > nearest->order) nearest = &parameter;
    }
    if (nearest == nullptr) return;
    told_ = true;
    Finding finding = MakeFinding(step, "zero_gradient", GradientName(step, *nearest));
    finding.measure = "steps with a gradient of zeros";
    const int steps = zero_[static_cast<size_t>(nearest - step.parameters().data())];
    finding.value = steps;
    finding.comparison = ">=";
    finding.threshold = kSteps;
    finding.text = fmt::format("every element of {} has been 0 for {} steps", finding.tensor, steps);
    if (found > 1) finding.text += fmt::format(", and of {} more weights", found - 1);
    findings->push_back(std::move(finding));
  }

  void Returns(int64_t) override { turns_.Returned(); }

 private:
  std::vector<int> zero_;
  TakingTurns turns_;
  bool told_ = false;
};

class VanishingRatio : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train()) return;
    const bool turns = turns_.Now();
    if (step.step().skipped() || told_) return;
    few_ = true;
    // Of those that take turns each has a model of its own, and so has a first and a last layer.
    if (!turns || step.stepped().size() < 2) return Look(step, std::string(), findings);
    for (const std::string& optimizer : step.stepped()) Look(step, optimizer, findings);
  }

  void Returns(int64_t) override { turns_.Returned(); }

  std::string Unjudged() const override {
    return few_ ? "how gradients fade on their way (fewer than three matrices)" : "";
  }

 private:
  // \param optimizer  empty: all of them
  void Look(const Digest& step, const std::string& optimizer, std::vector<Finding>* findings) {
    const Parameter *first = nullptr, *last = nullptr;
    size_t matrices = 0;
    for (const Parameter& parameter : step.parameters()) {
      if (!parameter.matrix() || !parameter.gradient_now || !parameter.weight_now || parameter.group < 0)
        continue;
      if (!optimizer.empty() && step.groups()[static_cast<size_t>(parameter.group)].optimizer != optimizer)
        continue;
      // Relative to a weight that begins near zero, as the last one of some networks does, anything is large.
      if (std::sqrt(parameter.weight_now->variance * parameter.fan_in()) < 0.05) continue;
      ++matrices;
      if (first == nullptr || parameter.order < first->order) first = &parameter;
      if (last == nullptr || parameter.order > last->order) last = &parameter;
    }
    if (matrices < 3 || told_) return;
    few_ = false;
    const auto relative = [](const Parameter& parameter) {
      return parameter.gradient_now->l2 / parameter.weight_now->l2;
    };
    const double a = relative(*first), b = relative(*last);
    if (!std::isfinite(a) || !std::isfinite(b) || b <= 0) return;
    // Zeros have a detector of their own, and a single batch may have nothing for the first layer to learn.
    int& steps = steps_[optimizer];
    steps = a > 0 && a / b < 1e-5 ? steps + 1 : 0;
    if (steps < kSteps) return;
    told_ = true;
    findings->push_back(MakeFinding(
        step, "vanishing_ratio", GradientName(step, *first),
        Measured("first layer's gradient / weight over the last layer's", a / b, "<", 1e-5),
        fmt::format("relative to its weight, the gradient of {} is {:.2g} of that of {}, for {} steps",
                    first->name, a / b, last->name, steps)));
  }

  std::map<std::string, int> steps_;  // in a row, by optimizer
  TakingTurns turns_;
  bool told_ = false, few_ = false;
};

// A dead unit has a row of zeros in the gradient of its weight.
class DeadUnits : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train() || step.step().skipped() || told_) return;
    const Loss* const loss = step.the_loss();
    if (loss == nullptr) return;
    if (seen_++ == 0) first_loss_ = loss->value;
    last_losses_.Add(loss->value);
    past_.resize(step.parameters().size());
    for (size_t i = 0; i < past_.size(); ++i) {
      const Parameter& parameter = step.parameters()[i];
      if (!parameter.matrix() || !parameter.gradient_now || parameter.gradient_now->count < 64) continue;
      const double share = static_cast<double>(parameter.gradient_now->zeros) /
                           static_cast<double>(parameter.gradient_now->count);
      Past& past = past_[i];
      if (past.first.seen() < kSteps) {
        past.first.Add(share);
        continue;
      }
      // Gradients are also zero once the training data are learnt by heart.
      const bool learnt = last_losses_.Mean(10) < 0.3 * first_loss_;
      past.steps = share >= 0.8 && share - past.first.Median() >= 0.4 && !learnt ? past.steps + 1 : 0;
      if (past.steps < kLongSteps) continue;
      told_ = true;
      Finding finding = MakeFinding(step, "dead_units", GradientName(step, parameter));
      finding.measure = "share of zeros";
      finding.value = share;
      finding.comparison = ">=";
      finding.threshold = 0.8;
      finding.text = fmt::format("{:.0f} % of {} are exactly 0 for {} steps; it began with {:.0f} %",
                                 100 * share, finding.tensor, past.steps, 100 * past.first.Median());
      findings->push_back(std::move(finding));
      return;
    }
  }

  void Returns(int64_t) override { *this = DeadUnits(); }

 private:
  struct Past {
    History first{kSteps};
    int steps = 0;
  };
  std::vector<Past> past_;
  History last_losses_{10};
  int64_t seen_ = 0;
  double first_loss_ = 0;
  bool told_ = false;
};

// As good as at the beginning again, after it had been far better: weights or labels were lost.
class LossBack : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train() || told_ || step.the_loss() == nullptr) return;
    const Loss& loss = *step.the_loss();
    if (loss.value < 0) return;
    guessing_.See(step);
    if (first_.seen() < 5) {
      first_.Add(loss.value);
      return;
    }
    const double beginning = first_.Mean(5);
    high_ = past_.seen() >= kPastLosses && loss.value > 0.8 * beginning ? high_ + 1 : 0;
    if (high_ == 0) {
      past_.Add(loss.value);
      return;
    }
    // Whose targets are another network's, its loss is high for a while whenever that one is brought up to
    // date; and batches of two are bad by chance.
    const bool jumps =
        loss.kind == LossKind::kRegression || step.series("batch_size").value_or(kFewRows) < kFewRows;
    if (high_ < (jumps ? kLongSteps : 5) || past_.Median() > 0.5 * beginning ||
        past_.Max() > 0.75 * beginning)
      return;
    // As high as of values that were nearly nothing, which says little.
    if (guessing_.MayBe(loss, 0.8)) return;
    told_ = true;
    findings->push_back(MakeFinding(step, "loss_back", loss.name,
                                    Measured("loss", loss.value, ">", 0.8 * beginning),
                                    fmt::format("for {} steps the loss has been as high as at the beginning "
                                                "({:.4g}, then {:.4g}); in the {} before it was {:.4g}",
                                                high_, loss.value, beginning, kPastLosses, past_.Median())));
  }

  void Returns(int64_t) override { *this = LossBack(); }

 private:
  History first_{5}, past_{kPastLosses};
  AgainstGuessing guessing_;
  int high_ = 0;
  bool told_ = false;
};

class Diverging : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train() || told_) return;
    const Loss* const loss = step.the_loss();
    ++steps_;
    ++all_steps_;
    if (loss == nullptr || loss->value < 0) return;
    guessing_.See(step);
    losses_.Add(loss->value);
    if (losses_.seen() < kSteps) return;
    const double now = losses_.Mean(kSteps);
    if (losses_.seen() == kSteps) first_ = best_ = now;
    best_ = std::min(best_, now);
    // The targets of a value network grow while it learns.
    const double times = loss->kind == LossKind::kRegression ? 10 : 3;
    // Each of them: of small batches some are bad by chance.
    if (!(now > times * best_) || now < first_ || losses_.Min() < best_) return;
    // And so does its loss: it begins with values of nearly nothing, whatever they should be. What is
    // predicted has to be looked at since the loss rose.
    if (loss->kind == LossKind::kRegression && guessing_.IsKnown()) {
      const auto looked = ComparedAt(step);
      if (!looked || !looked->guess || !looked->loss || *looked->loss < 0.5 * times * best_ ||
          *looked->loss < 1.5 * *looked->guess)
        return;
    }
    if (guessing_.MayBe(*loss, 1.5)) return;
    told_ = true;
    findings->push_back(MakeFinding(
        step, "diverging", loss->name, Measured("mean loss of 10 steps", now, ">", times * best_),
        fmt::format(
            "the loss is {:.4g} (mean of {} steps), {:.3g} times its best of {:.4g}; it began at {:.4g}", now,
            kSteps, now / best_, best_, first_)));
  }

  // A generator's loss rises while its judge learns, and a critic's while its policy does.
  void Returns(int64_t) override {
    const int64_t steps = all_steps_;
    *this = Diverging();
    all_steps_ = steps;
  }

  std::string Unjudged() const override {
    if (all_steps_ > 0 && all_steps_ < kSteps)
      return fmt::format("whether the loss falls ({}, and this takes {})",
                         base::Counted(static_cast<uint64_t>(all_steps_), "TRAIN step"), kSteps);
    return steps_ >= kSteps && losses_.seen() == 0
               ? "whether the loss falls (no single loss that is known to, and is all of what is trained on)"
               : "";
  }

 private:
  History losses_{kSteps};
  AgainstGuessing guessing_;
  double first_ = 0, best_ = 0;
  int64_t steps_ = 0, all_steps_ = 0;  // since optimizers last took turns; of the run
  bool told_ = false;
};

}  // namespace

void AddLearning(Detectors* to) {
  to->push_back(std::make_unique<ZeroGradient>());
  to->push_back(std::make_unique<VanishingRatio>());
  to->push_back(std::make_unique<DeadUnits>());
  to->push_back(std::make_unique<LossBack>());
  to->push_back(std::make_unique<Diverging>());
}

}  // namespace tdbg::rules::profile
