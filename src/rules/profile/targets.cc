// Are targets of a size that a network can learn? What is predicted begins at about one.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "rules/profile/compared.h"
#include "rules/profile/detector.h"

namespace tdbg::rules::profile {
namespace {

// Targets in thousands: it is on its way there for a long time, or its loss explodes. Or they are so small
// that what differs between them is less than a network's own noise.
class TargetsUnscaled : public Detector {
 public:
  /// \param number  of the step's losses
  explicit TargetsUnscaled(int number) : number_(number) {}

  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train() || told_) return;
    const Loss* const loss = step.the_loss();
    ++steps_;
    const int64_t since_rise = rate_.StepsSinceRise(step);
    const auto now = ComparedAt(step, number_);
    if (now) JudgeParts(step, *now, findings);
    if (told_) return;
    const bool known = number_ > 0 || (loss != nullptr && loss->kind == LossKind::kRegression);
    if (now && now->target_mean && now->mean && known) {
      JudgeLarge(step, *now, since_rise, findings);
      if (!told_) JudgeSmall(step, *now, since_rise, findings);
    }
    const bool explodes =
        first_targets_ > 0 && steps_ <= kSoon && !step.nonfinite().empty() && !step.step().skipped();
    if (!explodes || told_) return;
    Tell(step, first_targets_, ">", kLarge,
         fmt::format("targets have a root mean square of {:.3g}; what is predicted began with one of {:.3g}, "
                     "and after {} steps the training is not finite any more",
                     first_targets_, first_reached_, steps_),
         findings);
  }

  void Returns(int64_t) override { *this = TargetsUnscaled(number_); }

 private:
  void JudgeLarge(const Digest& step, const Compared& now, int64_t since_rise,
                  std::vector<Finding>* findings) {
    const double targets = now.target_size(), reached = now.size();
    const bool far = targets > kLarge && reached < kReached * targets;
    if (looked_ == 0 && far && reached < kLarge) {
      first_targets_ = targets;
      first_reached_ = reached;
    }
    looked_ = steps_;
    if (far && begun_ == 0) begun_ = steps_;
    if (!far) begun_ = 0;
    // What has come some of the way, or has left the size that networks begin with, is given longer.
    const int64_t enough = reached < kLarge && reached < kHardly * targets ? kSlow : 2 * kSlow;
    if (!far || steps_ - begun_ < enough || since_rise < kSlow || reached >= kBarely * targets) return;
    Tell(step, targets, ">", kLarge,
         fmt::format(
             "targets have a root mean square of {:.3g}; what is predicted has one of {:.3g} after {} steps",
             targets, reached, steps_),
         findings);
  }

  // Two losses are added, and that of large targets is so much larger that from the other nothing is learnt
  // before it has fallen. Not of values beside a policy, which are one number a row.
  void JudgeParts(const Digest& step, const Compared& now, std::vector<Finding>* findings) {
    if (parts_ < 0 || !now.loss || (number_ == 0 && Comparison::Of(step).single)) return;
    double least = std::numeric_limits<double>::infinity();
    for (const Loss& loss : step.losses()) {
      if (loss.kind != LossKind::kOther && loss.value > 0) least = std::min(least, loss.value);
    }
    const double targets = now.target_size(), reached = now.size();
    const bool outweighs = targets > kLarge && reached < kReached * targets && *now.loss > kOutweighs * least;
    parts_ = outweighs ? parts_ + 1 : -1;
    if (parts_ < kParts) return;
    Tell(step, targets, ">", kLarge,
         fmt::format("targets have a root mean square of {:.3g}, and what is predicted begins with one of "
                     "{:.3g}: their loss of {:.3g} is {:.3g} times as large as another that is added to it",
                     targets, reached, *now.loss, *now.loss / least),
         findings);
  }

  // Not where they move, as another network's do: values of a game that was not won yet.
  void JudgeSmall(const Digest& step, const Compared& now, int64_t since_rise,
                  std::vector<Finding>* findings) {
    if (steps_ <= kBeginning || !now.between || !now.target_between || !now.guess || !now.loss) return;
    const bool small = now.target_size() > 0 && now.target_size() < kSmall && *now.loss > kFar * *now.guess &&
                       *now.guess > 0;
    if (!small) {
      means_ = History{kSmallLooks};
      return;
    }
    means_.Add(*now.target_mean);
    const double mean = means_.Mean(kSmallLooks);
    const bool settled = means_.Max() - means_.Min() < std::abs(mean);
    if (means_.seen() < kSmallLooks || !settled || since_rise < kRateSettles) return;
    Tell(step, now.target_size(), "<", kSmall,
         fmt::format("targets have a root mean square of {:.3g} and differ between rows by {:.2g}; after {} "
                     "steps what is predicted misses them by {:.2g} times that",
                     now.target_size(), *now.target_between, steps_, std::sqrt(*now.loss / *now.guess)),
         findings);
  }

  void Tell(const Digest& step, double value, const char* comparison, double threshold, std::string text,
            std::vector<Finding>* findings) {
    told_ = true;
    Finding finding =
        MakeFinding(step, "targets_unscaled",
                    number_ == 0 ? "context/targets/std" : fmt::format("context/targets/{}/std", number_));
    finding.measure = "root mean square of the targets";
    finding.value = value;
    finding.comparison = comparison;
    finding.threshold = threshold;
    finding.text = std::move(text);
    findings->push_back(std::move(finding));
  }

  static constexpr double kLarge = 30, kReached = 0.1, kBarely = 0.03, kHardly = 0.01;
  static constexpr double kSmall = 0.01, kFar = 10;  // far: of squares
  static constexpr double kOutweighs = 30;
  static constexpr int kParts = 3;  // looks, the first ones
  static constexpr size_t kSmallLooks = 20;
  static constexpr int64_t kSlow = 100, kSoon = 50;
  int number_;
  Rate rate_;
  History means_{kSmallLooks};                    // of small targets, in a row
  double first_targets_ = 0, first_reached_ = 0;  // root mean squares at the first look
  int64_t steps_ = 0, begun_ = 0, looked_ = 0;    // begun: since when it has been far off, without a break
  int parts_ = 0;  // looks at which another loss was outweighed; -1: not from the start
  bool told_ = false;
};

}  // namespace

void AddTargets(Detectors* to) {
  constexpr int kMost = 3;  // losses of a step that are looked at
  for (int number = 0; number < kMost; ++number) to->push_back(std::make_unique<TargetsUnscaled>(number));
}

}  // namespace tdbg::rules::profile
