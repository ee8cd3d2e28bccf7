// A tensor's variance outside given bounds. README.md beside this file.
#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "rules/judging.h"
#include "rules/parameter_specs.h"
#include "rules/rule.h"
#include "rules/selector.h"
#include "rules/state_values.h"
#include "rules/step_context.h"
#include "trial/columns.h"

namespace tdbg::rules {
namespace {

struct Bounds {
  std::optional<double> low, high;
};

class TensorVariance : public Rule {
 public:
  TensorVariance(StateValues values, Bounds bounds) : values_(std::move(values)), bounds_(bounds) {}

  plan::Need Needs() const override { return values_.inspected().Need(); }
  uint64_t Columns() const override { return columns::kFinite | columns::kVariance; }

  Result<Judged> Invoke(const StepContext& step, std::vector<Finding>* findings) override {
    bool judged = false;
    values_.ForEach(step, [&](TensorIndex tensor, const Rows& rows, uint32_t i) {
      // NumPy's variance is NaN then, and NaN is neither above nor below.
      if (!rows.is_finite(i) || rows.is_empty(i)) return;
      judged = true;
      Judge(step, tensor, rows.worker(), rows.variance(i), rows.count(i), rows.sub(i), findings);
    });
    values_.ForEachScalar(step, [&](const StepContext::Scalar& scalar) {
      if (!std::isfinite(scalar.value)) return;
      judged = true;
      Judge(step, scalar.tensor, scalar.worker, 0, 1, scalar.sub.sub, findings);
    });
    return JudgedOf(step, judged, *findings);
  }

  std::string WouldHaveNeeded() const override {
    return "statistics of at least one finite tensor " + values_.inspected().Describe() +
           " that is not empty";
  }

 private:
  void Judge(const StepContext& step, TensorIndex tensor, WorkerIndex worker, double variance, uint64_t of,
             uint16_t sub, std::vector<Finding>* findings) const {
    const bool above = bounds_.high && variance > *bounds_.high;
    if (!above && !(bounds_.low && variance < *bounds_.low)) return;
    Finding finding = FindingAt(step, tensor, worker);
    finding.measure = "variance";
    finding.value = variance;
    finding.comparison = above ? ">" : "<";
    finding.threshold = above ? *bounds_.high : *bounds_.low;
    // The usual misunderstanding: one element has no spread.
    if (of == 1) finding.text = "of 1 element";
    if (sub != 0) finding.text += (finding.text.empty() ? "" : ", ") + MicroStepText(sub);
    findings->push_back(std::move(finding));
  }

  StateValues values_;
  Bounds bounds_;
};

}  // namespace

void RegisterTensorVariance(RuleRegistry* registry) {
  RuleInfo info;
  info.class_name = "TensorVariance";
  info.snake_name = "tensor_variance";
  info.scope = "any";
  info.summary = "A tensor's variance is above or below given bounds.";
  info.parameters = {CollectionNamesParameter("Collections to inspect."),
                     TensorRegexParameter("Tensors to inspect by name, on top of collection_names."),
                     NumberParameter("max_threshold", "float", "", 0, "",
                                     "A larger variance is a hit; without it there is no upper bound."),
                     NumberParameter("min_threshold", "float", "", 0, "",
                                     "A smaller variance is a hit; without it there is no lower bound.")};
  registry->Add(std::move(info), [](const Parameters& parameters) -> Result<std::unique_ptr<Rule>> {
    Bounds bounds;
    if (parameters.Has("min_threshold")) bounds.low = parameters.Float("min_threshold");
    if (parameters.Has("max_threshold")) bounds.high = parameters.Float("max_threshold");
    if (!bounds.low && !bounds.high)
      return InvalidArgument("max_threshold, min_threshold or both must be given");
    if (bounds.low && bounds.high && *bounds.low > *bounds.high) {
      return InvalidArgument(
          fmt::format("parameter min_threshold: {:g} is above max_threshold {:g}: every "
                      "variance would be a hit",
                      *bounds.low, *bounds.high));
    }
    TDBG_ASSIGN_OR_RETURN(Selector selector, RequiredSelector(parameters));
    TDBG_ASSIGN_OR_RETURN(StateValues values, StateValues::Make(std::move(selector)));
    return MakeRule<TensorVariance>(std::move(values), bounds);
  });
}

}  // namespace tdbg::rules
