// Compares validation with training. A gap between the two alone is no fault.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/text.h"
#include "rules/profile/detector.h"
#include "rules/profile/history.h"
#include "trial/step_name.h"

namespace tdbg::rules::profile {
namespace {

constexpr int kRises = 3;  // validations in a row
// Where it creeps: more of them, a smaller rise, and a training loss that has fallen by far.
constexpr int kCreeps = 5;
constexpr double kCreepsBy = 1.05, kCreepsLeast = 1.01, kCreepsTraining = 0.6;

class ValidationRises : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (told_ || step.losses().empty()) return;
    // Of several losses the first: validations are compared with each other, even if they report more losses
    // than training does.
    const Loss& loss = step.losses().front();
    if (!std::isfinite(loss.value)) return;
    if (step.eval()) {
      sum_ += loss.value;
      ++count_;
      const StepInfo& now = step.step().info();
      evaluated_at_ = StepName(now.mode, now.mode_step, now.global_step);
      return;
    }
    if (!step.train()) return;
    if (count_ > 0) Close(step, loss.name, findings);
    if (training_.seen() == 0) first_training_ = loss.value;
    training_.Add(loss.value);
  }

  std::string Unjudged() const override {
    return training_.seen() > 0 && validations_ == 0 ? "validation (no loss of an evaluation was seen)" : "";
  }

 private:
  // A validation has ended when a training step follows; it is judged then.
  void Close(const Digest& step, const std::string& name, std::vector<Finding>* findings) {
    const double now = sum_ / count_;
    sum_ = 0;
    count_ = 0;
    if (training_.seen() == 0) return;
    const double training = training_.Mean(20);
    ++validations_;
    if (now < best_) {
      best_ = now;
      best_step_ = evaluated_at_;
      training_at_best_ = training;
      rises_ = creeps_ = 0;
      highest_ = 0;
      return;
    }
    rises_ = now > 1.1 * best_ ? rises_ + 1 : 0;
    creeps_ = now > kCreepsLeast * best_ ? creeps_ + 1 : 0;
    highest_ = std::max(highest_, now);
    const bool rises = rises_ >= kRises && now >= 1.2 * best_ && training <= 0.9 * training_at_best_;
    // Still on its way up: one that jumps about its best is no rise.
    const bool creeps = creeps_ >= kCreeps && now >= kCreepsBy * best_ && now == highest_ &&
                        training <= kCreepsTraining * training_at_best_;
    if (!(best_ > 0) || !(rises || creeps)) return;
    // Where nearly all is learnt the best one is next to nothing, and so is what it rises by.
    if (now - best_ < 0.1 * (first_training_ - best_)) return;
    told_ = true;
    findings->push_back(MakeFinding(step, "validation_rises", name,
                                    Measured("validation loss", now, ">", (rises ? 1.2 : kCreepsBy) * best_),
                                    fmt::format("the validation loss is {:.4g}, and was best with {:.4g} at "
                                                "{}; the training loss fell from {:.4g} to {:.4g} meanwhile",
                                                now, best_, best_step_, training_at_best_, training)));
  }

  History training_{20};
  double sum_ = 0, best_ = std::numeric_limits<double>::infinity(), training_at_best_ = 0,
         first_training_ = 0, highest_ = 0;  // highest: since the best one
  int64_t count_ = 0;
  std::string evaluated_at_, best_step_;  // the last evaluation's last step; that of the best one
  int validations_ = 0, rises_ = 0, creeps_ = 0;
  bool told_ = false;
};

// An evaluation is fed other numbers than the training: a transform that one of the two leaves out, another
// unit. That a held-out set is another one is no fault as long as the model does well on it.
class FedOtherwise : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (told_) return;
    if (step.eval()) {
      See(step, "evaluated_input", &evaluated_);
      for (const Loss& loss : step.losses()) AddLoss(loss, &evaluation_);
      return;
    }
    if (!step.train()) return;
    if (evaluated_.means.seen() > 0) Close(step, findings);
    evaluated_ = {};
    evaluation_ = {};
    See(step, "input", &trained_);
    training_ = training_.count < kLosses ? training_ : Losses();
    for (const Loss& loss : step.losses()) AddLoss(loss, &training_);
  }

 private:
  struct Fed {
    History means{40}, deviations{40};
  };
  struct Losses {
    double sum = 0;
    int64_t count = 0;
    double mean() const { return sum / static_cast<double>(count); }
  };

  static void See(const Digest& step, const std::string& series, Fed* fed) {
    const auto mean = step.series(series + "/mean"), deviation = step.series(series + "/std");
    if (!mean || !deviation || !std::isfinite(*mean) || !std::isfinite(*deviation)) return;
    fed->means.Add(*mean);
    fed->deviations.Add(*deviation);
  }
  static void AddLoss(const Loss& loss, Losses* losses) {
    if (!std::isfinite(loss.value)) return;
    losses->sum += loss.value;
    ++losses->count;
  }

  void Close(const Digest& step, std::vector<Finding>* findings) {
    if (trained_.means.seen() < 10) return;
    const double deviation = trained_.deviations.Median(), mean = trained_.means.Median();
    const double theirs = evaluated_.deviations.Median(), their_mean = evaluated_.means.Median();
    const double range = trained_.means.Max() - trained_.means.Min();
    const double apart = std::abs(their_mean - mean);
    const double least = trained_.deviations.Min(), most = trained_.deviations.Max();
    const bool wider = theirs > kTimes * most;
    const bool narrower = theirs * kTimes < least;
    const bool elsewhere = apart > deviation && apart > 2 * range;
    const bool worse = evaluation_.count > 0 && training_.count > 0 && training_.mean() > 0 &&
                       evaluation_.mean() > kWorse * training_.mean();
    const bool far = theirs > kFar * most || theirs * kFar < least || apart > kFar * deviation;
    times_ = deviation > 0 && ((worse && (wider || narrower || elsewhere)) || far) ? times_ + 1 : 0;
    if (times_ < 2) return;
    told_ = true;
    Finding finding = MakeFinding(step, "input_shifted", "context/evaluated_input/std");
    finding.measure = wider || narrower ? "standard deviation of the input" : "mean of the input";
    finding.value = wider || narrower ? theirs : their_mean;
    finding.comparison = finding.value > (wider || narrower ? deviation : mean) ? ">" : "<";
    finding.threshold = wider || narrower ? deviation : mean;
    finding.text = fmt::format(
        "evaluations are fed inputs with a mean of {:.3g} and a standard deviation of {:.3g}; the training's "
        "have {:.3g} and {:.3g}",
        their_mean, theirs, mean, deviation);
    if (worse)
      finding.text +=
          fmt::format(", and the loss is {:.2g} times as large", evaluation_.mean() / training_.mean());
    findings->push_back(std::move(finding));
  }

  static constexpr int64_t kLosses = 20;
  static constexpr double kTimes = 3, kWorse = 3, kFar = 10;
  Fed trained_, evaluated_;
  Losses training_, evaluation_;  // of the latest steps; of the evaluation at hand
  int times_ = 0;                 // evaluations in a row
  bool told_ = false;
};

// Losses without gradients in training mode. A loop over a set of validation has several of them between two
// steps of the training, or one now and then; one or more at every step are a part of the training itself
// (batches that are chosen by their loss).
class EvaluatedTraining : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train() || told_) return;
    ++steps_;
    const auto losses = step.series("evaluated_in_training");
    if (losses) {
      const bool apart = last_ == 0 || steps_ - last_ >= kApart;
      last_ = steps_;
      count_ = static_cast<uint64_t>(*losses);
      loops_ += count_ > 1;
      seldom_ += apart;
      return;
    }
    if (loops_ == 0 && seldom_ < kSeldom) return;
    // Not at every step: that is known once there was a step without.
    told_ = true;
    findings->push_back(MakeFinding(
        step, "evaluated_training", {},
        Measured("losses without gradients in training mode", static_cast<double>(count_), ">"),
        fmt::format("{} without gradients between two steps of training, while the model was in training "
                    "mode: its dropout drops, and its norms over batches use the batches of the evaluation",
                    base::Counted(count_, "loss was computed", "losses were computed"))));
  }

 private:
  static constexpr int64_t kApart = 5, kSeldom = 3;
  int64_t steps_ = 0, last_ = 0;
  uint64_t count_ = 0;
  int loops_ = 0, seldom_ = 0;
  bool told_ = false;
};

}  // namespace

void AddEvaluation(Detectors* to) {
  to->push_back(std::make_unique<ValidationRises>());
  to->push_back(std::make_unique<FedOtherwise>());
  to->push_back(std::make_unique<EvaluatedTraining>());
}

}  // namespace tdbg::rules::profile
