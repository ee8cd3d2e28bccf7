// What the model predicts against what it is compared with: is it better than one guess for all rows, and
// does it differ between them?
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <string>

#include "rules/profile/compared.h"
#include "rules/profile/detector.h"

namespace tdbg::rules::profile {
namespace {

class NoImprovement : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train() || told_) return;
    const Loss* const loss = step.the_loss();
    ++steps_;
    const int64_t since_rise = rate_.StepsSinceRise(step);
    seldom_.See(step);
    if (loss != nullptr) JudgeLoss(step, *loss, since_rise, findings);
    if (!told_) JudgeLooks(step, loss, since_rise, findings);
  }

  // A judge that guesses is what a generator wants.
  void Returns(int64_t) override { *this = NoImprovement(); }

  std::string Unjudged() const override {
    return no_scale_ && !knows_guess_
               ? "whether the loss is better than guessing (how good guessing is, is not known of it)"
               : "";
  }

 private:
  // By the loss of each step, of classes that are about equally frequent.
  void JudgeLoss(const Digest& step, const Loss& loss, int64_t since_rise, std::vector<Finding>* findings) {
    double guessing = 0;
    if (loss.kind == LossKind::kBinaryCrossEntropy) {
      guessing = std::log(2.0);
    } else if (loss.kind == LossKind::kCrossEntropy && step.classes()) {
      guessing = std::log(*step.classes());
    } else {
      no_scale_ = true;
      return;
    }
    losses_.Add(loss.value);
    // It has to begin as a guess: a cross entropy over something else than the last layer's units does not.
    if (losses_.seen() == 5) began_ = losses_.Mean(5);
    if (began_ > 0 && (began_ < 0.7 * guessing || began_ > 2 * guessing)) {
      no_scale_ = true;
      return;
    }
    const size_t n = losses_.seen();
    if (n < kSteps || n % 50 != 0 || since_rise < kRateSettles || seldom_.LeastTouched() < 100) return;
    const double now = losses_.Mean(50);
    const double before = (losses_.Mean(100) * 100 - now * 50) / 50;
    // Little progress is enough, as long as the loss still falls.
    if (now < 0.93 * guessing || before - now > 0.005 * guessing) return;
    Tell(step, loss.name, now, "mean loss of 50 steps", 0.93 * guessing,
         fmt::format("after {} steps the loss is {:.4g} (mean of 50), as good as guessing ({:.4g}), and no "
                     "longer falls",
                     n, now, guessing),
         findings);
  }

  // By the looks at predictions and targets: whatever the loss, and however seldom a class.
  // \param loss  null: it is a part of what is trained on, or one of several
  void JudgeLooks(const Digest& step, const Loss* loss, int64_t since_rise, std::vector<Finding>* findings) {
    const auto now = ComparedAt(step);
    if (!now || !now->guess || !now->loss || !now->correlation) return;
    if (loss == nullptr && !Comparison::Of(step).is_picture()) return;
    knows_guess_ = true;
    // Where all rows have one target, as a judge's have, there is nothing to be better at.
    if (steps_ <= kBeginning || !(*now->guess > 0)) return;
    looks_.push_back(*now);
    if (looks_.size() > kMostLooks) looks_.pop_front();
    const size_t n = looks_.size();
    if (n < kLooks || steps_ < kSteps || since_rise < kRateSettles || seldom_.LeastTouched() < 100) return;
    Sums half[2];
    for (size_t i = 0; i < n; ++i) half[i < n / 2 ? 0 : 1].Add(looks_[i]);
    Sums all = half[0];
    all.Add(half[1]);
    const double ratio = all.loss / all.guess, before = half[0].loss / half[0].guess,
                 after = half[1].loss / half[1].guess;
    // What is predicted shrinks to nothing where nothing can be learnt, and the loss falls to that of a
    // guess. From farther it is the mean that is being found.
    if (ratio < kNoBetter || (after > kNear && before - after > kFalls * ratio)) return;
    // Where it has learnt a little its predictions go with the targets, however noisy these are.
    const double count = static_cast<double>(n), mean = all.correlation / count;
    const double deviation = std::sqrt(std::max(0.0, all.squares / count - mean * mean) / (count - 1));
    if (mean > 2 * deviation || mean + 2 * deviation > kTogether) return;
    if (half[1].correlation / half[1].count - half[0].correlation / half[0].count >
        2 * deviation + kBeginnings)
      return;
    // Targets that another network gives move with it, and are followed.
    const double moved = half[1].mean / half[1].count - half[0].mean / half[0].count;
    if (std::abs(moved) > 0.5 * all.between / count) return;
    Tell(step, loss == nullptr ? "context/predictions/loss" : loss->name, ratio,
         "loss over that of the best constant", kNoBetter,
         fmt::format("after {} steps the loss is {:.3g} times that of predicting the targets' mean for every "
                     "row, in {} batches that were looked at; what is predicted goes with the targets no "
                     "more than by chance (correlation {:.2g})",
                     steps_, ratio, n, mean),
         findings);
  }

  void Tell(const Digest& step, const std::string& loss, double value, const char* measure, double threshold,
            std::string text, std::vector<Finding>* findings) {
    told_ = true;
    findings->push_back(MakeFinding(step, "no_improvement", loss, Measured(measure, value, ">=", threshold),
                                    std::move(text)));
  }

  struct Sums {
    double loss = 0, guess = 0, correlation = 0, squares = 0, mean = 0, between = 0, count = 0;
    void Add(const Compared& one) {
      loss += *one.loss;
      guess += *one.guess;
      correlation += *one.correlation;
      squares += *one.correlation * *one.correlation;
      mean += one.target_mean.value_or(0);
      between += one.target_between.value_or(0);
      ++count;
    }
    void Add(const Sums& other) {
      loss += other.loss;
      guess += other.guess;
      correlation += other.correlation;
      squares += other.squares;
      mean += other.mean;
      between += other.between;
      count += other.count;
    }
  };

  static constexpr size_t kSteps = 200, kLooks = 20, kMostLooks = 40;
  static constexpr double kNoBetter = 0.98, kNear = 1.2, kFalls = 0.1, kTogether = 0.1, kBeginnings = 0.02;
  History losses_{100};
  Rate rate_;
  SeldomFeatures seldom_;
  std::deque<Compared> looks_;
  double began_ = 0;
  size_t steps_ = 0;
  bool told_ = false, no_scale_ = false, knows_guess_ = false;
};

// Whatever the row, the same is predicted: a code that says nothing, units that are dead, a head that sees
// nothing.
class PredictsAConstant : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train() || told_) return;
    ++steps_;
    const int64_t since_rise = rate_.StepsSinceRise(step);
    const auto now = ComparedAt(step);
    if (!now) return;
    const Comparison what = Comparison::Of(step);
    if (what.kind == Comparison::kOther || !RowsDiffer(step, *now, what)) return;
    if (first_.seen() < kLooks) first_.Add(Share(*now, what));
    if (steps_ <= kBeginning) return;
    part_ = part_ || step.the_loss() == nullptr;
    if (part_ && !what.is_picture()) return;
    const double share = Share(*now, what);
    if (now->correlation) together_.Add(*now->correlation);
    if (together_.seen() >= kLooks && together_.Mean(kLooks) > kLearnt) learnt_ = true;
    const bool logits = what.kind == Comparison::kClasses;
    const double same = logits ? kSameLogits : kSame;
    if (share >= same) {
      looks_.clear();
      return;
    }
    looks_.push_back({share, now->loss.value_or(0)});
    if (looks_.size() > kLooks) looks_.pop_front();
    // Deep networks begin slowly: what is not quite alike is given as long as no_improvement gives.
    const bool quite = std::ranges::all_of(looks_, [&](const Looked& one) { return one.share < same / 10; });
    if (looks_.size() < kLooks || steps_ < (quite ? 100 : 200) || since_rise < kRateSettles) return;
    Looked half[2];
    for (size_t i = 0; i < kLooks; ++i) {
      half[i < kLooks / 2 ? 0 : 1].share += looks_[i].share;
      half[i < kLooks / 2 ? 0 : 1].loss += looks_[i].loss;
    }
    // Where nothing can be learnt, of labels that are not the rows', what was different at first becomes
    // alike: that is what no_improvement says.
    if (first_.Median() > 3 * same && !learnt_) return;
    if (together_.seen() > 0 && together_.Mean(kLooks) > 0.05) return;  // little, and it is right
    // It is about to begin where it grows, and learns the mean where the loss falls.
    if (half[1].share > 1.15 * half[0].share || half[1].loss < 0.95 * half[0].loss) return;
    told_ = true;
    findings->push_back(MakeFinding(
        step, "predicts_a_constant", "context/predictions/between",
        Measured(logits ? "deviation of logits between rows" : "deviation between rows over the targets'",
                 share, "<", same),
        logits ? fmt::format("logits differ between rows by {:.2g} (standard deviation), in {} batches in a "
                             "row that were looked at, though their labels differ",
                             *now->between, kLooks)
               : fmt::format("predictions differ between rows by {:.2g} (standard deviation), in {} batches "
                             "in a row that were looked at; their targets differ by {:.2g}",
                             *now->between, kLooks, *now->target_between)));
  }

  void Returns(int64_t) override { *this = PredictsAConstant(); }

 private:
  struct Looked {
    double share = 0, loss = 0;
  };

  static bool RowsDiffer(const Digest& step, const Compared& now, const Comparison& what) {
    if (step.series("input/same_rows").value_or(0) > 0) return false;
    if (what.kind != Comparison::kClasses)
      return now.target_between && *now.target_between > 1e-3 * now.target_size();
    if (now.target_between) return *now.target_between > 0;
    const auto low = step.series("labels/min"), high = step.series("labels/max");
    return low && high && *low < *high;
  }

  static double Share(const Compared& now, const Comparison& what) {
    if (what.kind == Comparison::kClasses) return *now.between;
    double share = *now.between / *now.target_between;
    if (what.kind == Comparison::kBinary) {
      // Of what is seldom, as a disease is, probabilities are small and differ little: in logits as much as
      // others.
      const double mean = now.mean.value_or(0.5), slope = std::max(mean * (1 - mean), 1e-9);
      share = std::max(share, *now.between / slope);
    }
    return share;
  }

  static constexpr size_t kLooks = 10;
  static constexpr double kSame = 0.02, kSameLogits = 0.005, kLearnt = 0.3;
  Rate rate_;
  History first_{kLooks}, together_{kLooks};
  std::deque<Looked> looks_;  // in a row
  int64_t steps_ = 0;
  bool told_ = false, part_ = false, learnt_ = false;
};

}  // namespace

void AddPredictions(Detectors* to) {
  to->push_back(std::make_unique<PredictsAConstant>());
  to->push_back(std::make_unique<NoImprovement>());
}

}  // namespace tdbg::rules::profile
