// Gradients so small that the weights behind them no longer learn. README.md beside this file.
#include "rules/parameter_specs.h"
#include "rules/rule.h"
#include "rules/selector.h"
#include "rules/step_context.h"
#include "trial/columns.h"

namespace tdbg::rules {
namespace {

class VanishingGradient : public Rule {
 public:
  VanishingGradient(Selector selector, double threshold)
      : selector_(std::move(selector)), threshold_(threshold) {}

  plan::Need Needs() const override { return selector_.Need(); }
  uint64_t Columns() const override { return columns::kFinite | columns::kMeanAbs; }

  Result<Judged> Invoke(const StepContext& step, std::vector<Finding>* findings) override {
    // Where AMP saw an overflow the gradients are inf or NaN by design, and the update was not made.
    if (step.skipped()) return Judged::kNotDue;
    selector_.Update(step);
    bool judged = false;
    for (const StepContext::RowSpan& span : step.rows()) judged |= JudgeSpan(step, span, findings);
    if (!findings->empty()) return Judged::kJudged;
    if (step.statistics_incomplete()) return Judged::kIncomplete;
    return judged ? Judged::kJudged : Judged::kNotDue;
  }

  std::string WouldHaveNeeded() const override {
    return "statistics of at least one finite tensor " + selector_.Describe() +
           " at a step that was not skipped; check that parameters require gradients and that the optimizer "
           "is stepped";
  }

 private:
  // Columns and not rows: this loop is what replaying a rule costs.
  bool JudgeSpan(const StepContext& step, const StepContext::RowSpan& span,
                 std::vector<Finding>* findings) const {
    const store::SummaryBatch& batch = *span.batch;
    const uint8_t* const inspected = selector_.mask();
    bool judged = false;
    for (uint32_t i = span.begin; i < span.end; ++i) {
      const TensorIndex tensor = span.tensor_of[batch.tensor[i]];
      if (!inspected[tensor] || (batch.sub[i] | batch.point[i]) != 0) continue;
      // ExplodingTensor's business; here the mean of what is left would only mislead.
      if ((batch.nan_count[i] | batch.pos_inf_count[i] | batch.neg_inf_count[i]) != 0) continue;
      if (columns::IsEmpty(batch, i)) continue;
      judged = true;
      const double mean_abs = columns::MeanAbs(batch, i);
      // All zero is a hit even where somebody set the threshold to 0.
      if (mean_abs >= threshold_ && mean_abs != 0) continue;
      Finding finding;
      finding.global_step = step.global_step();
      finding.tensor = step.tensor(tensor).name;
      finding.worker = step.worker_name(span.worker);
      finding.measure = "mean_abs";
      finding.value = mean_abs;
      finding.comparison = mean_abs < threshold_ ? "<" : "<=";
      finding.threshold = threshold_;
      if (mean_abs == 0) finding.text = "all zero";
      findings->push_back(std::move(finding));
    }
    return judged;
  }

  Selector selector_;
  double threshold_;
};

}  // namespace

void RegisterVanishingGradient(RuleRegistry* registry) {
  RuleInfo info;
  info.class_name = "VanishingGradient";
  info.snake_name = "vanishing_gradient";
  info.scope = "deep learning";
  info.summary = "A gradient's mean absolute value falls below a threshold.";
  info.parameters = {
      NumberParameter("threshold", "float", "1e-7", 0, "of the gradient",
                      "The mean absolute value below which a gradient counts as vanished."),
  };
  registry->Add(std::move(info), [](const Parameters& parameters) -> Result<std::unique_ptr<Rule>> {
    TDBG_ASSIGN_OR_RETURN(Selector selector, Selector::Make({"gradients"}, {}));
    return std::unique_ptr<Rule>(
        std::make_unique<VanishingGradient>(std::move(selector), parameters.Float("threshold")));
  });
}

}  // namespace tdbg::rules
