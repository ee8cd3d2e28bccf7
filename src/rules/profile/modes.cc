// Modules that training and evaluation need in different modes, and that are left in the other one.
#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>

#include "base/text.h"
#include "rules/profile/detector.h"

namespace tdbg::rules::profile {
namespace {

constexpr int kStepsInMode = 10;  // steps in a row before something is reported

// A norm over batches that was left in evaluation mode: its running average stands still while the training
// goes on. A user may want that, but hardly since an evaluation, or before the average has
// learnt anything.
class NormFrozen : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (step.eval()) {
      evaluated_ = true;
      return;
    }
    if (!step.train() || told_ || step.stepped().empty()) return;
    const bool turns = turns_.Now();
    for (const RunningMean& mean : step.running_means()) {
      if (!mean.now.finite()) continue;
      Past& past = past_[mean.name];
      const bool same = past.seen > 0 && past.l2 == mean.now.l2 && past.mean == mean.now.mean;
      ++past.seen;
      past.l2 = mean.now.l2;
      past.mean = mean.now.mean;
      if (!same) {
        past.changes += past.seen > 1;
        past.still = 0;
        continue;
      }
      if (past.still++ == 0) past.since_evaluation = evaluated_;
      // A norm of another model, which is trained in turn, stands still between those turns.
      const bool its_own = !turns || 2 * past.changes >= past.seen - past.still;
      const bool left =
          past.changes >= kStepsInMode && its_own && past.since_evaluation && past.still >= kStepsInMode;
      const bool untouched = past.changes == 0 && mean.now.l2 == 0 && past.still >= 2 * kStepsInMode;
      if (!left && !untouched) continue;
      // Its scale and shift are trained: that tells it from one that is frozen on purpose.
      const Parameter* const scale =
          step.parameter(mean.name.substr(0, mean.name.size() - sizeof("running_mean") + 1) + "weight");
      if (scale == nullptr || scale->frozen || scale->group < 0) continue;
      told_ = true;
      findings->push_back(MakeFinding(
          step, "norm_frozen", mean.name,
          Measured("steps without a change", past.still, ">=", left ? kStepsInMode : 2 * kStepsInMode),
          left ? fmt::format("{} has not changed in {} steps of training, since an evaluation; it had at "
                             "each step before",
                             mean.name, past.still)
               : fmt::format("{} is what it was made with (zeros) after {} steps of training", mean.name,
                             past.still)));
      return;
    }
    evaluated_ = false;
  }

  void Returns(int64_t) override { turns_.Returned(); }

 private:
  struct Past {
    double l2 = 0, mean = 0;
    int seen = 0, changes = 0, still = 0;
    bool since_evaluation = false;
  };
  std::map<std::string, Past> past_;
  TakingTurns turns_;
  bool evaluated_ = false, told_ = false;
};

// model.train() was not called again after an evaluation: dropout no longer drops, norms stand still. Before
// it the training had been in training mode; a fine-tuning that never was is meant to be that.
class LeftEvaluating : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (step.eval()) {
      evaluated_ = true;
      return;
    }
    if (!step.train() || told_ || step.stepped().empty()) return;
    const auto modules = step.series("trained_in_evaluation");
    if (!modules) {
      ++trained_;
      still_ = 0;
      evaluated_ = false;
      return;
    }
    if (still_++ == 0) since_evaluation_ = evaluated_;
    if (still_ < kStepsInMode || trained_ < kStepsInMode || !since_evaluation_) return;
    told_ = true;
    findings->push_back(
        MakeFinding(step, "left_evaluating", {},
                    Measured("steps of training in evaluation mode", still_, ">=", kStepsInMode),
                    fmt::format("{} of the model (dropout, norms over batches) {} in evaluation mode in {} "
                                "steps of training, since an evaluation; before it they trained",
                                base::Counted(static_cast<uint64_t>(*modules), "module"),
                                *modules == 1 ? "has been" : "have been", still_)));
  }

 private:
  int trained_ = 0, still_ = 0;
  bool evaluated_ = false, since_evaluation_ = false, told_ = false;
};

}  // namespace

void AddModes(Detectors* to) {
  to->push_back(std::make_unique<LeftEvaluating>());
  to->push_back(std::make_unique<NormFrozen>());
}

}  // namespace tdbg::rules::profile
