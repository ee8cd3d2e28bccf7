// The beginning of a training: the first weights, the first loss.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "rules/profile/compared.h"
#include "rules/profile/detector.h"

namespace tdbg::rules::profile {
namespace {

constexpr uint64_t kEnoughElements = 64;  // needed for a meaningful standard deviation

class Weights : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train() || done_) return;
    done_ = true;
    const Parameter* worst = nullptr;
    double worst_scale = 0;
    size_t small = 0, large = 0, matrices = 0;
    for (const Parameter& parameter : step.parameters()) {
      if (!parameter.matrix() || !parameter.weight_now || !parameter.weight_now->finite()) continue;
      if (parameter.group < 0 || parameter.frozen || parameter.weight_now->count < kEnoughElements) continue;
      ++matrices;
      const Numbers& now = *parameter.weight_now;
      if (now.variance == 0 && now.mean != 0) {
        Constant(step, parameter, findings);
        continue;
      }
      // Adapters, and the last layers of some networks, begin with zeros on purpose.
      if (now.zeros == now.count || !(now.variance > 0)) continue;
      const double scale = std::sqrt(now.variance * parameter.fan_in());
      // A depthwise kernel has few inputs, and a pretrained one is as large as it has to be.
      if (scale >= 0.02 && scale <= (parameter.fan_in() < 16 ? 15 : 5)) continue;
      ++(scale < 1 ? small : large);
      if (worst == nullptr || std::abs(std::log(scale)) > std::abs(std::log(worst_scale))) {
        worst = &parameter;
        worst_scale = scale;
      }
    }
    none_ = matrices == 0;
    // One small head is how a policy begins that is to try everything.
    if (worst == nullptr || (large == 0 && (small < 2 || 3 * small < matrices))) return;
    const size_t wrong = small + large;
    Finding finding = MakeFinding(
        step, "init_scale", worst->name,
        Measured("std x sqrt(fan_in)", worst_scale, worst_scale > 1 ? ">" : "<", worst_scale > 1 ? 5 : 0.02),
        fmt::format("{} begins with a standard deviation of {:.3g}, {} 1 / sqrt(fan_in) of {:.3g}",
                    worst->name, std::sqrt(worst->weight_now->variance),
                    worst_scale > 1 ? fmt::format("{:.3g} times", worst_scale)
                                    : fmt::format("{:.2g} of", worst_scale),
                    1 / std::sqrt(worst->fan_in())));
    if (wrong > 1) finding.text += fmt::format("; {} of {} weights are like that", wrong, matrices);
    findings->push_back(std::move(finding));
  }

  std::string Unjudged() const override {
    return none_ ? "how weights begin (no matrix of 64 elements and more is known)" : "";
  }

 private:
  static void Constant(const Digest& step, const Parameter& parameter, std::vector<Finding>* findings) {
    findings->push_back(MakeFinding(
        step, "constant_weight", parameter.name, Measured("variance", 0, "="),
        fmt::format("all {} of {} begin as {:.3g}", base::Counted(parameter.weight_now->count, "element"),
                    parameter.name, parameter.weight_now->mean)));
  }

  bool done_ = false, none_ = false;
};

class FirstLoss : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train() || done_ || step.losses().size() != 1) return;
    done_ = true;
    const Loss& loss = step.losses().front();
    const auto classes = ClassesOfLoss(step);
    unknown_ = loss.kind == LossKind::kCrossEntropy && !classes;
    if (loss.kind != LossKind::kCrossEntropy || !classes || !std::isfinite(loss.value)) return;
    const double guessing = std::log(*classes);
    const double times = loss.value / guessing;
    if (times <= 3) return;
    // A loss that is summed over the batch is larger by the size of the batch, which is no fault.
    const auto batch = step.series("batch_size");
    if (!batch || times > 0.4 * *batch) return;
    findings->push_back(
        MakeFinding(step, "first_loss", loss.name, Measured("first loss", loss.value, ">", 3 * guessing),
                    fmt::format("the first loss is {:.4g}; guessing among {:.0f} classes has {:.3g}",
                                loss.value, *classes, guessing)));
  }

  std::string Unjudged() const override {
    return unknown_ ? "the first loss (how many classes there are is not known)" : "";
  }

 private:
  // Of several heads the last one is not always the one whose loss it is.
  static std::optional<double> ClassesOfLoss(const Digest& step) {
    const auto classes = step.classes(), compared = step.classes_compared();
    return classes && compared && *classes != *compared ? std::nullopt : classes;
  }

  bool done_ = false, unknown_ = false;
};

// Logits that lie so far apart that a softmax chooses one class for certain, before anything was learnt: a
// temperature of a thousandth, a table of numbers around one as the last layer. The loss is larger than a
// guess' then, and moves in jumps. A model that was trained before is right where it is sure.
class SureFromTheStart : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train() || looks_ >= kLooks) return;
    const auto now = ComparedAt(step);
    if (!now || Comparison::Of(step).kind != Comparison::kClasses) return;
    const bool sure = now->std && now->guess && now->loss && *now->guess > 0 && *now->std > kApart &&
                      *now->loss > kWorse * *now->guess;
    looks_ = sure ? looks_ + 1 : kLooks + 1;
    if (looks_ != kLooks) return;
    findings->push_back(
        MakeFinding(step, "logits_too_large", "context/predictions/std",
                    Measured("deviation of logits from their row's mean", *now->std, ">", kApart),
                    fmt::format("in the first {} steps that were looked at logits lie {:.3g} apart (standard "
                                "deviation within a row), so that nearly all probability falls to one class, "
                                "and it is the wrong one: the squared error is {:.2g} times that of a guess",
                                kLooks, *now->std, *now->loss / *now->guess)));
  }

 private:
  static constexpr int kLooks = 3;
  static constexpr double kApart = 4, kWorse = 1.4;
  int looks_ = 0;
};

}  // namespace

void AddStart(Detectors* to) {
  to->push_back(std::make_unique<Weights>());
  to->push_back(std::make_unique<FirstLoss>());
  to->push_back(std::make_unique<SureFromTheStart>());
}

}  // namespace tdbg::rules::profile
