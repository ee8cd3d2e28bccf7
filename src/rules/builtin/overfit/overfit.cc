// A validation loss that stays above the training loss. README.md beside this file.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "base/text.h"
#include "rules/judging.h"
#include "rules/loss_values.h"
#include "rules/parameter_specs.h"
#include "rules/rule.h"
#include "rules/selector.h"
#include "rules/step_context.h"

namespace tdbg::rules {
namespace {

struct Mean {
  double sum = 0;
  int64_t values = 0;

  void Add(double value) {
    sum += value;
    ++values;
  }
  double value() const { return sum / static_cast<double>(values); }
};

// One loss of one worker: what it was in TRAIN steps since the last block of EVAL steps, and in this block.
struct Followed {
  Mean train, eval;
  int64_t last_eval_step = 0;
  int64_t in_a_row = 0;
  int64_t blocks = 0;  // that could be compared
};

class Overfit : public Rule {
 public:
  Overfit(Selector selector, int64_t patience, double threshold)
      : losses_(std::move(selector)), patience_(patience), threshold_(threshold) {}

  plan::Need Needs() const override { return losses_.selector().Need(); }
  uint64_t Columns() const override { return LossReader::kColumns; }

  Result<Judged> Invoke(const StepContext& step, std::vector<Finding>* findings) override {
    // A TRAIN step ends the block whether or not its own loss was kept.
    const bool judged = step.mode() == ModeKey::kTrain && EndBlocks(step, step.global_step(), findings);
    if (step.mode() == ModeKey::kTrain || step.mode() == ModeKey::kEval) {
      for (const LossValue& loss : losses_.Read(step)) {
        Followed& followed = followed_[{loss.tensor, loss.worker}];
        if (step.mode() == ModeKey::kTrain) {
          followed.train.Add(loss.value);
          trained_ = true;
        } else {
          followed.eval.Add(loss.value);
          evaluated_ = true;
          followed.last_eval_step = step.global_step();
        }
      }
    }
    return JudgedOf(step, judged, *findings);
  }

  // The end of the run ends the last block, too.
  Result<Judged> AtEnd(const StepContext& last, std::vector<Finding>* findings) override {
    return EndBlocks(last, std::nullopt, findings) ? Judged::kJudged : Judged::kNotDue;
  }

  std::string WouldHaveNeeded() const override {
    const std::string blocks =
        patience_ == 0 ? std::string() : fmt::format(", {} times (patience {})", patience_ + 1, patience_);
    const std::string seen = most_blocks_ > 0         ? KeptBlocks()
                             : trained_ && evaluated_ ? "no block of EVAL steps followed TRAIN steps"
                             : trained_               ? "no EVAL value was seen"
                             : evaluated_             ? "no TRAIN value was seen"
                                                      : "no value was seen";
    return fmt::format("a loss {} with finite values in TRAIN steps and then in EVAL steps{}; {}",
                       losses_.selector().Describe(), blocks, seen);
  }

 private:
  std::string KeptBlocks() const {
    return base::Counted(most_blocks_, "block of EVAL steps was", "blocks of EVAL steps were") + " seen";
  }

  // True if there was something to judge.
  bool EndBlocks(const StepContext& step, std::optional<int64_t> at, std::vector<Finding>* findings) {
    bool judged = false;
    for (auto& [key, followed] : followed_) {
      if (followed.eval.values == 0) continue;
      const Mean train = std::exchange(followed.train, {}), eval = std::exchange(followed.eval, {});
      const double before = train.value(), after = eval.value();
      // Without a TRAIN step before the block the mean is of nothing, hence NaN.
      if (!std::isfinite(before) || !std::isfinite(after)) continue;
      most_blocks_ = std::max(most_blocks_, ++followed.blocks);
      // Fewer blocks cannot be a hit, and are no clean bill either.
      judged |= followed.blocks > patience_;
      // 0 over 0 is NaN, which is above nothing.
      const double ratio = (after - before) / std::abs(before);
      followed.in_a_row = ratio > threshold_ ? followed.in_a_row + 1 : 0;
      if (followed.in_a_row <= patience_) continue;
      Finding finding;
      finding.global_step = at.value_or(followed.last_eval_step);
      finding.tensor = step.tensor(key.first).name;
      finding.worker = step.worker_name(key.second);
      finding.measure = "ratio";
      finding.value = ratio;
      finding.comparison = ">";
      finding.threshold = threshold_;
      finding.text = fmt::format("EVAL {:g}, TRAIN {:g}; {} in a row", after, before, followed.in_a_row);
      findings->push_back(std::move(finding));
    }
    return judged;
  }

  LossReader losses_;
  int64_t patience_;
  double threshold_;
  std::map<std::pair<TensorIndex, WorkerIndex>, Followed> followed_;
  bool trained_ = false, evaluated_ = false;
  int64_t most_blocks_ = 0;  // of one loss
};

}  // namespace

void RegisterOverfit(RuleRegistry* registry) {
  RuleInfo info;
  info.class_name = "Overfit";
  info.snake_name = "overfit";
  info.scope = "any";
  info.summary = "The loss in EVAL steps stays above that in the TRAIN steps before them.";
  info.parameters = {
      TensorRegexParameter("Losses to inspect by name; without it the collection losses."),
      NumberParameter("patience", "int", "1", 0, "blocks",
                      "So many blocks of EVAL steps in a row may be above the threshold."),
      NumberParameter(
          "ratio_threshold", "float", "0.1", 0, "",
          "The excess of the EVAL loss, as a share of the TRAIN loss, from which a block counts."),
  };
  registry->Add(std::move(info), [](const Parameters& parameters) -> Result<std::unique_ptr<Rule>> {
    const std::vector<std::string> regexes = parameters.List("tensor_regex");
    std::vector<std::string> collections;
    if (regexes.empty()) collections = {"losses"};
    TDBG_ASSIGN_OR_RETURN(Selector selector, Selector::Make(std::move(collections), regexes));
    return MakeRule<Overfit>(std::move(selector), parameters.Int("patience"),
                             parameters.Float("ratio_threshold"));
  });
}

}  // namespace tdbg::rules
