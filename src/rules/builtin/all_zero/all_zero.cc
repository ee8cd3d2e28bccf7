// Tensors of nothing but zeros. README.md beside this file.
#include "base/text.h"
#include "rules/judging.h"
#include "rules/parameter_specs.h"
#include "rules/rule.h"
#include "rules/selector.h"
#include "rules/state_values.h"
#include "rules/step_context.h"
#include "trial/columns.h"

namespace tdbg::rules {
namespace {

class AllZero : public Rule {
 public:
  AllZero(StateValues values, double threshold) : values_(std::move(values)), threshold_(threshold) {}

  plan::Need Needs() const override { return values_.inspected().Need(); }
  uint64_t Columns() const override { return columns::kCount | columns::kZeroCount; }

  Result<Judged> Invoke(const StepContext& step, std::vector<Finding>* findings) override {
    bool judged = false;
    values_.ForEach(step, [&](TensorIndex tensor, const Rows& rows, uint32_t i) {
      // Of no elements, none is zero and none is not.
      if (rows.count(i) == 0) return;
      judged = true;
      Judge(step, tensor, rows.worker(), rows.zero_count(i), rows.count(i), rows.sub(i), findings);
    });
    values_.ForEachScalar(step, [&](const StepContext::Scalar& scalar) {
      judged = true;
      Judge(step, scalar.tensor, scalar.worker, scalar.value == 0, 1, scalar.sub.sub, findings);
    });
    return JudgedOf(step, judged, *findings);
  }

  std::string WouldHaveNeeded() const override {
    return "statistics of at least one tensor " + values_.inspected().Describe() + " that is not empty";
  }

 private:
  void Judge(const StepContext& step, TensorIndex tensor, WorkerIndex worker, uint64_t zeros, uint64_t of,
             uint16_t sub, std::vector<Finding>* findings) const {
    // Multiplied first: 7 of 10 are then exactly 70 %.
    const double percent = 100.0 * static_cast<double>(zeros) / static_cast<double>(of);
    if (percent < threshold_) return;
    Finding finding = FindingAt(step, tensor, worker);
    finding.measure = "zero_percent";
    finding.value = percent;
    finding.comparison = ">=";
    finding.threshold = threshold_;
    finding.text = std::to_string(zeros) + " of " + base::Counted(of, "element");
    if (sub != 0) finding.text += ", " + MicroStepText(sub);
    findings->push_back(std::move(finding));
  }

  StateValues values_;
  double threshold_;
};

}  // namespace

void RegisterAllZero(RuleRegistry* registry) {
  RuleInfo info;
  info.class_name = "AllZero";
  info.snake_name = "all_zero";
  info.scope = "any";
  info.summary = "All elements of a tensor, or a given share of them, are zero.";
  ParameterSpec threshold = NumberParameter("threshold", "float", "100", 0, "percent",
                                            "The share of zeros from which a tensor is a hit.");
  threshold.maximum = 100;
  info.parameters = {CollectionNamesParameter("Collections to inspect."),
                     TensorRegexParameter("Tensors to inspect by name, on top of collection_names."),
                     threshold};
  registry->Add(std::move(info), [](const Parameters& parameters) -> Result<std::unique_ptr<Rule>> {
    TDBG_ASSIGN_OR_RETURN(Selector selector, RequiredSelector(parameters));
    TDBG_ASSIGN_OR_RETURN(StateValues values, StateValues::Make(std::move(selector)));
    return MakeRule<AllZero>(std::move(values), parameters.Float("threshold"));
  });
}

}  // namespace tdbg::rules
