// How much an update changes the weights, estimated from learning rate, gradient and weight, so that nothing
// more has to be captured.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "rules/profile/detector.h"
#include "rules/profile/history.h"

namespace tdbg::rules::profile {
namespace {

constexpr int kSteps = 20;
constexpr double kTooLarge = 0.25, kFarTooLarge = 3, kTooSmall = 1e-6;

// The norm of the update over the norm of the weight, as the optimizer's class makes it.
// \param at_most  of more classes: what it is not above
std::optional<double> RelativeUpdate(const Parameter& parameter, const Group& group, bool at_most = false) {
  if (!group.lr || !parameter.weight_now || !parameter.gradient_now) return std::nullopt;
  const Numbers& weight = *parameter.weight_now;
  const Numbers& gradient = *parameter.gradient_now;
  if (!weight.finite() || !gradient.finite() || !(weight.l2 > 0)) return std::nullopt;
  if (group.optimizer_class == "SGD") {
    // With momentum, updates in one direction add up to so many times a single one.
    const bool adds_up = at_most && group.momentum > 0 && group.momentum < 1;
    return *group.lr * gradient.l2 / weight.l2 / (adds_up ? 1 - group.momentum : 1);
  }
  // Each element moves by the learning rate at most, and by about that at first; RMSprop's first step, which
  // divides by a tenth of the gradient, by ten times that.
  double times = 0;
  for (const char* const name : {"Adam", "AdamW", "NAdam", "RAdam", "Adamax"}) {
    if (group.optimizer_class == name) times = 1;
  }
  if (at_most && group.optimizer_class == "Adagrad") times = 1;
  if (at_most && group.optimizer_class == "RMSprop") times = 10;
  if (times == 0) return std::nullopt;
  const double moved = static_cast<double>(gradient.count - gradient.zeros);
  if (moved == 0) return 0;
  const double size = gradient.l2 / std::sqrt(moved);
  // An epsilon that is larger than the gradients is what they are divided by.
  return times * *group.lr * std::sqrt(moved) * size / (size + group.epsilon) / weight.l2;
}

class Updates : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train() || step.step().skipped()) return;
    const bool one_loss = step.losses().size() == 1 && std::isfinite(step.losses().front().value);
    if (one_loss) losses_.Add(step.losses().front().value);
    if (one_loss && losses_.seen() == 1) first_loss_ = losses_.last();
    large_.resize(step.parameters().size());
    double largest = 0, rate = 0;
    bool any = false;
    for (size_t i = 0; i < large_.size(); ++i) {
      const Parameter& parameter = step.parameters()[i];
      if (parameter.group < 0 || !parameter.matrix()) continue;
      const Group& group = step.groups()[static_cast<size_t>(parameter.group)];
      const auto relative = RelativeUpdate(parameter, group);
      if (relative) {
        JudgeLarge(step, parameter, *relative, i, findings);
      } else if (group.lr && parameter.weight_now && parameter.gradient_now &&
                 group.optimizer_class != "SGD") {
        unknown_.insert(group.optimizer_class);
      }
      const auto at_most = RelativeUpdate(parameter, group, /*at_most=*/true);
      if (!at_most) continue;
      any = true;
      largest = std::max(largest, *at_most);
      rate = std::max(rate, *group.lr);
    }
    if (any) JudgeSmall(step, largest, rate, findings);
  }

  std::string Unjudged() const override {
    if (unknown_.empty()) return {};
    std::string text = "the size of updates of ";
    for (const std::string& name : unknown_) text += (&name == &*unknown_.begin() ? "" : ", ") + name;
    return text + " (its rule is not known)";
  }

 private:
  void JudgeLarge(const Digest& step, const Parameter& parameter, double relative, size_t i,
                  std::vector<Finding>* findings) {
    // A weight that begins near zero changes much on purpose.
    const double scale = std::sqrt(parameter.weight_now->variance * parameter.fan_in());
    const bool usual = scale > 0.05;
    Large& large = large_[i];
    const double norm = parameter.weight_now->l2;
    const bool far = usual && relative > kTooLarge;
    large.steps = far ? large.steps + 1 : 0;
    large.least = large.steps > 1 ? std::min(large.least, norm) : norm;
    large.most = large.steps > 1 ? std::max(large.most, norm) : norm;
    if (told_large_ || !usual) return;
    const bool once = relative > kFarTooLarge;
    // The estimate is an upper bound: if the loss falls all the same, it is no fault.
    const bool no_better = losses_.seen() == 0 || losses_.Mean(5) >= 0.9 * first_loss_;
    // Adam's estimate is a bound: where gradients are noise it moves far less, and the norm stands still.
    const bool moved = large.most > 1.25 * large.least;
    if (!once && !(large.steps >= kSteps && no_better && moved)) return;
    told_large_ = true;
    findings->push_back(MakeFinding(
        step, "update_too_large", parameter.name,
        Measured("estimated update / weight", relative, ">", once ? kFarTooLarge : kTooLarge),
        fmt::format("an update changes {} by about {:.0f} % of its norm{} (estimated; a thousandth is usual)",
                    parameter.name, 100 * relative, once ? "" : fmt::format(" for {} steps", kSteps))));
  }

  // Judged only at the beginning of a training: later, gradients may be small because everything is learnt.
  void JudgeSmall(const Digest& step, double largest, double rate, std::vector<Finding>* findings) {
    ++steps_;
    if (steps_ == 1) first_rate_ = rate;
    small_ = largest < kTooSmall ? small_ + 1 : 0;
    if (told_small_ || small_ != steps_ || rate <= 0) return;
    // A warm-up begins with small updates; wait until it has ended.
    const bool warming = rate > first_rate_ * 1.01;
    if (small_ < (warming ? 10 * kSteps : kSteps)) return;
    told_small_ = true;
    findings->push_back(MakeFinding(step, "update_too_small", {},
                                    Measured("largest estimated update / weight", largest, "<", kTooSmall),
                                    fmt::format("no update changed any weight by more than {:.1g} of its "
                                                "norm in {} steps (estimated), at a learning rate of {:.3g}",
                                                largest, small_, rate)));
  }

  struct Large {
    int steps = 0;               // in a row
    double least = 0, most = 0;  // norm of the weight in them
  };
  std::vector<Large> large_;  // by parameter
  std::set<std::string> unknown_;
  History losses_{10};
  double first_loss_ = 0, first_rate_ = 0;
  int steps_ = 0, small_ = 0;
  bool told_large_ = false, told_small_ = false;
};

// Updates are made, and no weight is another afterwards: all of them are rounded away, or something puts the
// old weights back.
class WeightsUnchanged : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train() || told_) return;
    double rate = 0;
    for (const Group& group : step.groups()) rate = std::max(rate, group.lr.value_or(0));
    largest_rate_ = std::max(largest_rate_, rate);
    const double norm = step.gradient_norm().value_or(0);
    if (norms_.seen() < kSteps) norms_.Add(norm);
    past_.resize(step.parameters().size());
    size_t updated = 0, same = 0;
    const Parameter* one = nullptr;
    for (size_t i = 0; i < past_.size(); ++i) {
      const Parameter& parameter = step.parameters()[i];
      if (!parameter.matrix() || parameter.group < 0 || parameter.frozen || !parameter.weight_now) continue;
      const Numbers& now = *parameter.weight_now;
      Past& past = past_[i];
      if (past.updated && now.finite()) {
        ++updated;
        if (now.l2 == past.now.l2 && now.mean == past.now.mean && now.variance == past.now.variance) {
          ++same;
          if (one == nullptr) one = &parameter;
        }
      }
      const Group& group = step.groups()[static_cast<size_t>(parameter.group)];
      past.now = now;
      past.updated = group.lr.value_or(0) > 0 && !step.step().skipped() && parameter.gradient_now &&
                     parameter.gradient_now->finite() && parameter.gradient_now->l2 > 0;
    }
    if (updated == 0) return;
    // What is learnt has no gradient, what is warming up or has cooled down no rate, that is worth a word.
    const bool worth = rate >= 0.01 * largest_rate_ && norm > 0.01 * norms_.Median();
    steps_ = same == updated && worth ? steps_ + 1 : 0;
    if (steps_ < (rate > first_rate_ * 1.01 ? 5 * kSteps : kSteps)) {
      if (first_rate_ == 0) first_rate_ = rate;
      return;
    }
    told_ = true;
    findings->push_back(MakeFinding(
        step, "weights_unchanged", one->name,
        Measured("steps after which no weight was another", steps_, ">=", kSteps),
        fmt::format(
            "{} updates at a learning rate of {:.3g} left {} as {} to the last bit, though {} gradients",
            steps_, rate, updated == 1 ? one->name : fmt::format("all {} weights", updated),
            updated == 1 ? "it was" : "they were", updated == 1 ? "it has" : "they have")));
  }

 private:
  struct Past {
    Numbers now;
    bool updated = false;
  };
  std::vector<Past> past_;
  History norms_{kSteps};
  double largest_rate_ = 0, first_rate_ = 0;
  int steps_ = 0;
  bool told_ = false;
};

// A 16-bit weight takes no update that is smaller than half the distance to its next number.
class UpdateLost : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train() || told_ || step.step().skipped()) return;
    size_t looked_at = 0, lost = 0;
    const Parameter* one = nullptr;
    double of_one = 0, rate = 0;
    for (const Parameter& parameter : step.parameters()) {
      const double bits = parameter.dtype == DType::kBFloat16  ? 8
                          : parameter.dtype == DType::kFloat16 ? 11
                                                               : 0;
      if (bits == 0 || !parameter.matrix() || parameter.group < 0 || !parameter.weight_now) continue;
      const Group& group = step.groups()[static_cast<size_t>(parameter.group)];
      const auto relative = RelativeUpdate(parameter, group);
      if (!relative || !(*relative > 0)) continue;
      rate = std::max(rate, *group.lr);
      ++looked_at;
      // Of numbers between 1 and 2 the next is 2^(1 - bits) away; an eighth of that is lost nearly
      // everywhere.
      const double share = *relative * std::exp2(bits);
      if (share >= 0.125) continue;
      ++lost;
      if (one == nullptr || share < of_one) {
        one = &parameter;
        of_one = share;
      }
    }
    largest_rate_ = std::max(largest_rate_, rate);
    // Two thirds of them, and not while the rate is on its way up or down.
    steps_ = looked_at > 0 && 3 * lost >= 2 * looked_at && rate >= 0.3 * largest_rate_ ? steps_ + 1 : 0;
    if (last_rate_ > 0 && rate > last_rate_) rising_ = steps_;
    last_rate_ = rate;
    if (steps_ - rising_ < kSteps && steps_ < 10 * kSteps) {
      if (steps_ == 0) rising_ = 0;
      return;
    }
    told_ = true;
    findings->push_back(MakeFinding(
        step, "update_lost", one->name,
        Measured("estimated update / distance of neighbouring 16-bit numbers", of_one, "<", 0.125),
        fmt::format("an update of {} is about {:.2g} of the distance between its 16-bit numbers, at a "
                    "learning rate of {:.3g}: nearly all of it is rounded away (estimated; {} of {} weights)",
                    one->name, of_one, rate, lost, looked_at)));
  }

 private:
  int steps_ = 0, rising_ = 0;
  double largest_rate_ = 0, last_rate_ = 0;
  bool told_ = false;
};

}  // namespace

void AddUpdates(Detectors* to) {
  to->push_back(std::make_unique<WeightsUnchanged>());
  to->push_back(std::make_unique<UpdateLost>());
  to->push_back(std::make_unique<Updates>());
}

}  // namespace tdbg::rules::profile
