// Values that are not finite, and values that jump far beyond their earlier ones.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "base/text.h"
#include "rules/profile/compared.h"
#include "rules/profile/detector.h"
#include "rules/profile/history.h"

namespace tdbg::rules::profile {
namespace {

constexpr size_t kMostTensors = 12;  // named in one finding of NaN or infinity
constexpr int kFiniteAgain = 50;     // finite steps after which a NaN is reported again
// So often at most: a validation that is NaN each time would be told ten thousand times, and each time the
// run's events repeat all that was found.
constexpr int kMostTimes = 20;
// Autograd kept nothing of its step. An update may have made it all the same, which the next training step
// shows.
constexpr char kOfAnEvaluation[] =
    "if the training itself stays finite, look at that batch and at what norms keep of earlier ones "
    "(running_var); given to the model in training mode, with backward(), tdbg names the operation";
constexpr double kWeightJump = 8, kLossJump = 20, kGradientJump = 100, kBeyondFirst = 1.5;
constexpr size_t kWeightPast = 5, kPast = 20;
constexpr int64_t kFewSteps = 20;

class NonfiniteDetector : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (step.nonfinite().empty()) {
      if (told_ && ++finite_ >= kFiniteAgain) told_ = false;
      trained_ = trained_ || step.train();
      return;
    }
    finite_ = 0;
    // A training that was well after the evaluation had its own.
    const bool again = step.train() && evaluation_told_ && trained_;
    if ((told_ && !again) || times_++ >= kMostTimes) return;
    told_ = true;
    evaluation_told_ = step.eval();
    trained_ = false;
    std::vector<Nonfinite> all = step.nonfinite();
    const bool weights = std::ranges::any_of(all, [](const Nonfinite& one) {
      return one.kind == Nonfinite::kWeight || one.kind == Nonfinite::kGradient;
    });
    const auto rank = [](const Nonfinite& one) {
      // Order of causes: a weight that is not finite makes everything else so; a loss comes before the
      // gradients of its backward. The first gradients are those nearest to the loss, the first weights those
      // nearest to the input.
      const int kind = one.kind == Nonfinite::kWeight || one.kind == Nonfinite::kBuffer ? 0
                       : one.kind == Nonfinite::kLoss                                   ? 1
                                                                                        : 2;
      const int64_t order = one.kind == Nonfinite::kGradient ? -int64_t{one.order} : int64_t{one.order};
      return std::tuple(kind, order, one.tensor, one.worker);
    };
    std::sort(all.begin(), all.end(), [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
    const size_t shown = std::min(all.size(), kMostTensors);
    for (size_t i = 0; i < shown; ++i) {
      const Nonfinite& one = all[i];
      Finding finding = MakeFinding(step, "nonfinite", step.step().tensor(one.tensor).name);
      finding.worker = step.step().worker_name(one.worker);
      const bool nan = one.numbers.nan > 0;
      finding.measure = nan ? "nan_count" : "inf_count";
      finding.value = static_cast<double>(nan ? one.numbers.nan : one.numbers.infinite);
      finding.comparison = ">";
      finding.threshold = 0;
      if (step.eval() && !weights && !step.boosted()) finding.advice = kOfAnEvaluation;
      finding.text = one.kind == Nonfinite::kLoss
                         ? fmt::format("{} is {}", finding.tensor, nan ? "NaN" : "infinite")
                         : fmt::format("{} of the {} of {} {} {}", Amount(finding.value),
                                       base::Counted(one.numbers.count, "element"), finding.tensor,
                                       finding.value == 1 ? "is" : "are", nan ? "NaN" : "infinite");
      if (i == 0 && all.size() > 1)
        finding.text += fmt::format(", and {} not finite either",
                                    all.size() == 2 ? std::string("another tensor is")
                                                    : fmt::format("{} other tensors are", all.size() - 1));
      findings->push_back(std::move(finding));
    }
  }

 private:
  static std::string Amount(double value) { return fmt::format("{:.0f}", value); }
  bool told_ = false;
  bool evaluation_told_ = false, trained_ = false;  // the last was one's; finite steps of training since
  int finite_ = 0, times_ = 0;
};

class WeightJump : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train() || told_) return;
    if (step.step().statistics_incomplete()) past_.clear();  // how it grows where nothing is known is no jump
    past_.resize(step.parameters().size());
    for (size_t i = 0; i < past_.size(); ++i) {
      const Parameter& parameter = step.parameters()[i];
      // Judged for embeddings and a script's own parameters, too, but not for biases and norms, which begin
      // at zero.
      if (parameter.shape.size() < 2 || !parameter.weight_now || !parameter.weight_now->finite()) continue;
      Past& past = past_[i];
      const double l2 = parameter.weight_now->l2;
      // A weight that began at zero, as an adapter's does, may grow by any factor in its first steps.
      const double rms = l2 / std::sqrt(static_cast<double>(parameter.weight_now->count));
      if (past.steps >= kWeightPast && past.max > 0 && l2 > kWeightJump * past.max && rms > 1e-2) {
        findings->push_back(
            MakeFinding(step, "weight_jump", parameter.name, Measured("l2", l2, ">", kWeightJump * past.max),
                        fmt::format("the norm of {} is {:.3g}, {:.3g} times its largest so far ({:.3g})",
                                    parameter.name, l2, l2 / past.max, past.max)));
        told_ = true;
      }
      past.max = std::max(past.max, l2);
      ++past.steps;
    }
  }

  // Others may have moved it meanwhile, as over a gap. One that grew by as much in each step as in its first
  // five is five times as large after 20 more, which is no jump yet.
  void Returns(int64_t apart) override {
    if (apart > kFewSteps) past_.clear();
  }

 private:
  struct Past {
    size_t steps = 0;
    double max = 0;
  };
  std::vector<Past> past_;
  bool told_ = false;
};

// An optimizer moves weights little by little: what goes much further in one step than in any before it was
// put there by something else, unless the learning rate rose.
class WeightsReplaced : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train() || told_) return;
    if (step.step().attempt() != attempt_) {  // began again from a checkpoint: weights are meant to be others
      attempt_ = step.step().attempt();
      past_.clear();
      gaps_ = History{30};
    }
    // Where optimizers take turns others may have moved it in between: what it did over fewer steps is no
    // measure of that.
    const double apart = std::exchange(apart_, 1);
    const bool farther = apart > (gaps_.seen() > 0 ? gaps_.Max() : 1);
    // Over a gap (a compactor's, a full disk's) weights go as far as in all of its steps together.
    if (step.step().statistics_incomplete()) {
      for (Past& past : past_) past.l2 = 0;
    } else {
      gaps_.Add(apart);
    }
    double rate = 0;
    for (const Group& group : step.groups()) rate = std::max(rate, group.lr.value_or(0));
    const bool rose = rates_.seen() > 0 && rates_.last() > 1.5 * before_last_;
    past_.resize(step.parameters().size());
    size_t looked_at = 0, jumped = 0;
    const Parameter* worst = nullptr;
    double largest = 0, usual = 0;
    bool alone = false;  // one that says it by itself
    for (size_t i = 0; i < past_.size(); ++i) {
      const Parameter& parameter = step.parameters()[i];
      if (!parameter.matrix() || parameter.group < 0 || parameter.frozen || !parameter.weight_now) continue;
      const Numbers& now = *parameter.weight_now;
      if (!now.finite()) continue;
      Past& past = past_[i];
      if (past.l2 > 0) {
        const double change = std::abs(now.l2 - past.l2) / past.l2;
        if (past.changes.seen() >= kPast && !farther) {
          ++looked_at;
          const double most = past.changes.Max();
          const bool far = change > 8 * most && change > 0.02;
          jumped += far;
          alone = alone || (change > 20 * most && change > 0.1);
          if (far && change > largest) {
            worst = &parameter;
            largest = change;
            usual = most;
          }
        }
        past.changes.Add(change);
      }
      past.l2 = now.l2;
    }
    if (rate > 0) {
      before_last_ = rates_.seen() > 0 ? rates_.Max() : rate;
      rates_.Add(rate);
    }
    if (worst == nullptr || rose || !(alone || (jumped >= 2 && 2 * jumped >= looked_at))) return;
    told_ = true;
    Finding finding = MakeFinding(
        step, "weights_replaced", worst->name,
        Measured("change of the norm in one step", largest, ">", 8 * usual),
        fmt::format("the norm of {} changed by {:.2g} % from one step to the next, and by {:.2g} % at most "
                    "in the {} before",
                    worst->name, 100 * largest, 100 * usual, past_[0].changes.seen() > 30 ? 30 : 20));
    if (jumped > 1) finding.text += fmt::format("; {} of {} weights did", jumped, looked_at);
    findings->push_back(std::move(finding));
  }

  void Returns(int64_t apart) override { apart_ = static_cast<double>(apart); }

 private:
  struct Past {
    double l2 = 0;
    History changes{30};
  };
  std::vector<Past> past_;
  History rates_{20}, gaps_{30};  // gaps: training steps from one of its phase to the next, as of changes
  double before_last_ = 0, apart_ = 1;
  int64_t attempt_ = 0;
  bool told_ = false;
};

class LossJump : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train() || told_) return;
    const bool turns = turns_.Now();
    if (step.losses().size() != 1) return;
    const Loss& loss = step.losses().front();
    if (!std::isfinite(loss.value)) return;
    if (past_.seen() >= kPast) {
      const double median = past_.Median();
      // A loss near zero may be many times itself and still be small: what counts is what it was at first.
      // One sample of a small batch that a sure model gets wrong costs as much as all did then. What a script
      // computes by itself may be anything: a policy's loss goes around zero. Where optimizers take turns
      // others move it, too.
      // All values of a game begin as nothing, and the loss of the first batch with a reward is news.
      const bool ignorant = loss.kind == LossKind::kRegression && guessing_.IsWorseThan(2);
      const bool known = loss.kind != LossKind::kOther && !loss.own && !turns && !ignorant;
      const double times = known ? kLossJump : 5 * kLossJump;
      if (median > 0 && (known || least_ > 0) && loss.value > times * median &&
          loss.value > 3 * past_.Max() && loss.value > kBeyondFirst * first_) {
        findings->push_back(MakeFinding(
            step, "loss_jump", loss.name, Measured("loss", loss.value, ">", times * median),
            fmt::format("the loss is {:.4g}, {:.3g} times its median of the last {} steps ({:.4g})",
                        loss.value, loss.value / median, std::min<size_t>(past_.seen(), 50), median)));
        told_ = true;
      }
    } else {
      first_ = std::max(first_, loss.value);
    }
    guessing_.See(step);
    past_.Add(loss.value);
    least_ = std::min(least_, loss.value);
  }

  void Returns(int64_t) override { turns_.Returned(); }

 private:
  History past_;
  TakingTurns turns_;
  AgainstGuessing guessing_;
  double first_ = 0, least_ = std::numeric_limits<double>::infinity();
  bool told_ = false;
};

class GradientJump : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train() || told_) return;
    const bool turns = turns_.Now();
    if (!step.gradient_norm()) return;
    // If gradients are clipped, use the norm before clipping: after it nothing jumps.
    const double norm = step.series("grad_norm").value_or(*step.gradient_norm());
    if (!std::isfinite(norm)) return;
    if (past_.seen() >= kPast) {
      const double median = past_.Median();
      // Where rewards are seldom the first one is news to the gradients, and no fault: to those of a critic,
      // too, which has a loss of torch's.
      const bool known = !turns && std::ranges::any_of(step.losses(), [](const Loss& loss) {
        return loss.kind != LossKind::kOther && !loss.own;
      });
      const double times = known ? kGradientJump : 100 * kGradientJump;
      if (median > 0 && norm > times * median && norm > 5 * past_.Max() && norm > 2 * first_) {
        findings->push_back(
            MakeFinding(step, "gradient_jump", LargestOf(step),
                        Measured("norm of all gradients", norm, ">", times * median),
                        fmt::format("the norm of all gradients is {:.3g}, {:.3g} times its median of {:.3g}",
                                    norm, norm / median, median)));
        told_ = true;
      }
    } else if (past_.seen() + 1 == kPast) {
      first_ = past_.Max();
    }
    past_.Add(norm);
  }

  void Returns(int64_t) override { turns_.Returned(); }

 private:
  static std::string LargestOf(const Digest& step) {
    const Parameter* largest = nullptr;
    for (const Parameter& parameter : step.parameters()) {
      if (!parameter.gradient_now || !parameter.gradient) continue;
      if (largest == nullptr || parameter.gradient_now->l2 > largest->gradient_now->l2) largest = &parameter;
    }
    return largest == nullptr ? std::string() : step.step().tensor(*largest->gradient).name;
  }

  History past_;
  TakingTurns turns_;
  double first_ = 0;
  bool told_ = false;
};

// AMP needs a few overflows at the start to find its scale; but a scale below 1 is never right.
class LossScale : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train() || told_) return;
    const auto scale = step.series("loss_scale");
    if (!scale) return;
    if (last_ > 0 && *scale > last_) falls_ = 0;
    if (last_ > 0 && *scale < last_) ++falls_;
    if (last_ == 0) first_ = *scale;
    last_ = *scale;
    if (falls_ < 8 || last_ >= 1) return;
    findings->push_back(
        MakeFinding(step, "loss_scale", "context/loss_scale", Measured("loss scale", last_, "<", 1),
                    fmt::format("the loss scale fell {} times without a rise, from {:g} to {:g}", falls_,
                                first_, last_)));
    told_ = true;
  }

 private:
  double last_ = 0, first_ = 0;
  int falls_ = 0;
  bool told_ = false;
};

// What is below the smallest number of float16 becomes zero. A gradient with many zeros is lost that way
// where nothing between it and the loss is far above that number: dead units leave a large gradient behind
// them.
class GradientUnderflow : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train() || step.step().skipped() || told_) return;
    steps_.resize(step.parameters().size());
    std::vector<size_t> halves;
    for (size_t i = 0; i < steps_.size(); ++i) {
      const Parameter& parameter = step.parameters()[i];
      if (parameter.gradient_now && parameter.gradient_now->count > 0 &&
          step.step().tensor(*parameter.gradient).dtype == DType::kFloat16)
        halves.push_back(i);
    }
    // From the loss on.
    std::sort(halves.begin(), halves.end(), [&](size_t a, size_t b) {
      return std::pair(step.parameters()[a].order, a) > std::pair(step.parameters()[b].order, b);
    });
    double largest = 0, most_zeros = 0, bound = 0;
    const Parameter* most = nullptr;
    for (const size_t i : halves) {
      const Parameter& parameter = step.parameters()[i];
      const Numbers& now = *parameter.gradient_now;
      if (const uint64_t left = now.count - now.zeros; left > 0)
        largest = std::max(largest, now.l2 / std::sqrt(static_cast<double>(left)));
      const double zeros = static_cast<double>(now.zeros) / static_cast<double>(now.count);
      const bool under = parameter.matrix() && now.finite() && zeros > kZeros && largest < kTiny;
      steps_[i] = under ? steps_[i] + 1 : 0;
      if (steps_[i] < kInARow || zeros <= most_zeros) continue;
      most = &parameter;
      most_zeros = zeros;
      bound = largest;
    }
    // A loss of zero has nothing to teach.
    if (most == nullptr || std::ranges::all_of(step.losses(), [](const Loss& l) { return l.value == 0; }))
      return;
    told_ = true;
    Finding finding = MakeFinding(step, "gradient_underflow", step.step().tensor(*most->gradient).name);
    finding.measure = "share of zeros";
    finding.value = most_zeros;
    finding.comparison = ">";
    finding.threshold = kZeros;
    finding.text = fmt::format(
        "{:.0f} % of the elements of {} have been 0 for {} steps; float16 holds nothing below 6e-8, and {}",
        100 * most_zeros, finding.tensor, kInARow,
        bound > 0
            ? fmt::format("no gradient from it to the loss is above {:.1g} (root of the mean square)", bound)
            : std::string("all from it to the loss are 0"));
    findings->push_back(std::move(finding));
  }

 private:
  // Some of the smallest numbers of float16: what differs by one of them is all that is left of a gradient.
  static constexpr double kTiny = 20 * 0x1p-24, kZeros = 0.5;
  static constexpr int kInARow = 10;

  std::vector<int> steps_;
  bool told_ = false;
};

}  // namespace

void AddNonfinite(Detectors* to) { to->push_back(std::make_unique<NonfiniteDetector>()); }

void AddNumerics(Detectors* to) {
  to->push_back(std::make_unique<WeightJump>());
  to->push_back(std::make_unique<WeightsReplaced>());
  to->push_back(std::make_unique<LossJump>());
  to->push_back(std::make_unique<GradientJump>());
  to->push_back(std::make_unique<LossScale>());
  to->push_back(std::make_unique<GradientUnderflow>());
}

}  // namespace tdbg::rules::profile
