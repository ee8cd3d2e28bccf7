// Where a loss is a sum: is each part of it learnt from?
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "rules/profile/compared.h"
#include "rules/profile/detector.h"

namespace tdbg::rules::profile {
namespace {

// A loss that is next to nothing of what is differentiated, and of which nothing is learnt: a penalty that is
// a thousand times as large, another loss in other units. A part that is small and is learnt is meant to be
// small.
class Outweighed : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train() || told_) return;
    ++steps_;
    const int64_t since_rise = rate_.StepsSinceRise(step);
    seldom_.See(step);
    const auto whole = step.series("backward_loss");
    const Loss* const part = Part(step);
    if (!whole || part == nullptr || step.the_loss() != nullptr) return;
    const auto now = ComparedAt(step);
    const bool of_part = Comparison::Of(step).kind ==
                         (part->kind == LossKind::kCrossEntropy ? Comparison::kClasses : Comparison::kBinary);
    if (now && of_part && now->guess && now->loss && *now->guess > 0 && steps_ > kBeginning) {
      ratio_.Add(*now->loss / *now->guess);
      if (now->correlation) together_.Add(*now->correlation);
    }
    const double share = std::abs(part->value) / std::abs(*whole);
    small_ = share < kSmall ? small_ + 1 : 0;
    if (small_ < kSteps || since_rise < kRateSettles || ratio_.seen() < kLooks ||
        seldom_.LeastTouched() < 100)
      return;
    if (ratio_.Mean(kLooks) < kNoBetter) return;
    if (together_.seen() >= kLooks && together_.Mean(kLooks) > kTogether) return;
    told_ = true;
    findings->push_back(MakeFinding(
        step, "outweighed", part->name, Measured("share of what is differentiated", share, "<", kSmall),
        fmt::format("{} is {:.3g}, {:.2g} % of the {:.4g} that backward() is called on, for {} steps, and is "
                    "no better than guessing ({:.3g} times as large as of the best constant)",
                    part->name, part->value, 100 * share, *whole, small_, ratio_.Mean(kLooks))));
  }

  void Returns(int64_t) override { *this = Outweighed(); }

 private:
  // The first of torch's losses of the step: that one's predictions are looked at.
  static const Loss* Part(const Digest& step) {
    for (const Loss& loss : step.losses()) {
      if (loss.kind == LossKind::kCrossEntropy || loss.kind == LossKind::kBinaryCrossEntropy) return &loss;
      if (loss.kind == LossKind::kRegression) return nullptr;
    }
    return nullptr;
  }

  static constexpr size_t kLooks = 20;
  static constexpr int64_t kSteps = 100;  // in a row
  static constexpr double kSmall = 0.1, kNoBetter = 0.98, kTogether = 0.15;
  Rate rate_;
  SeldomFeatures seldom_;
  History ratio_{kLooks}, together_{kLooks};
  int64_t steps_ = 0, small_ = 0;
  bool told_ = false;
};

}  // namespace

void AddParts(Detectors* to) { to->push_back(std::make_unique<Outweighed>()); }

}  // namespace tdbg::rules::profile
