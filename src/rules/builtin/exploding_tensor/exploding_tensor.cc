// NaN or infinity in a tensor. README.md beside this file.
#include <cmath>

#include "base/text.h"
#include "rules/judging.h"
#include "rules/parameter_specs.h"
#include "rules/rule.h"
#include "rules/selector.h"
#include "rules/step_context.h"
#include "trial/columns.h"

namespace tdbg::rules {
namespace {

class ExplodingTensor : public Rule {
 public:
  ExplodingTensor(Selector selector, bool only_nan) : selector_(std::move(selector)), only_nan_(only_nan) {}

  plan::Need Needs() const override { return selector_.Need(); }
  uint64_t Columns() const override { return columns::kFinite; }

  Result<Judged> Invoke(const StepContext& step, std::vector<Finding>* findings) override {
    selector_.Update(step);
    Classify(step);
    bool judged = false;
    for (const Rows rows : step.rows()) judged |= JudgeRows(step, rows, findings);
    judged |= JudgeScalars(step, findings);
    return JudgedOf(step, judged, *findings);
  }

  std::string WouldHaveNeeded() const override {
    return "statistics of at least one tensor " + selector_.Describe();
  }

 private:
  // By TensorIndex: what a loop over columns asks of a tensor's kind.
  enum Kind : uint8_t { kOther = 0, kGradient = 1, kLoss = 2 };

  void Classify(const StepContext& step) {
    for (TensorIndex i = static_cast<TensorIndex>(kinds_.size()); i < step.tensor_count(); ++i) {
      const TensorInfo& info = step.tensor(i);
      bool gradient = info.kind == "gradient", loss = info.kind == "loss";
      for (const std::string& collection : info.collections) {
        gradient |= collection == "gradients";
        loss |= collection == "losses";
      }
      kinds_.push_back(gradient ? kGradient : loss ? kLoss : kOther);
    }
  }

  bool JudgeRows(const StepContext& step, const Rows rows, std::vector<Finding>* findings) const {
    const uint8_t* const inspected = selector_.mask();
    bool judged = false;
    for (uint32_t i = rows.begin(); i < rows.end(); ++i) {
      const TensorIndex tensor = rows.tensor(i);
      if (!inspected[tensor]) continue;
      // The step's own value. Of losses the micro-steps too: under accumulation there is no other.
      if (rows.point(i) != Point::kNone || (rows.sub(i) != 0 && kinds_[tensor] != kLoss)) continue;
      // Overflow is how AMP finds its scale; the update was not made.
      if (kinds_[tensor] == kGradient && step.skipped()) continue;
      judged = true;
      const uint64_t infinite = rows.pos_inf_count(i) + rows.neg_inf_count(i);
      if (rows.nan_count(i) != 0) {
        Add(step, tensor, rows.worker(), "nan_count", rows.nan_count(i), rows.count(i), findings);
      } else if (infinite != 0 && !only_nan_) {
        Add(step, tensor, rows.worker(), "inf_count", infinite, rows.count(i), findings);
      }
    }
    return judged;
  }

  bool JudgeScalars(const StepContext& step, std::vector<Finding>* findings) const {
    bool judged = false;
    for (const StepContext::Scalar& scalar : step.scalars()) {
      if (!selector_.contains(scalar.tensor)) continue;
      judged = true;
      if (std::isnan(scalar.value)) {
        Add(step, scalar.tensor, scalar.worker, "nan_count", 1, 1, findings);
      } else if (std::isinf(scalar.value) && !only_nan_) {
        Add(step, scalar.tensor, scalar.worker, "inf_count", 1, 1, findings);
      }
    }
    return judged;
  }

  static void Add(const StepContext& step, TensorIndex tensor, WorkerIndex worker, const char* measure,
                  uint64_t count, uint64_t of, std::vector<Finding>* findings) {
    Finding finding = FindingAt(step, tensor, worker);
    finding.measure = measure;
    finding.value = static_cast<double>(count);
    finding.comparison = ">";
    finding.threshold = 0;
    // Of saved reductions nothing says how many elements there were.
    finding.text = of == 0 ? "of those a saved reduction tells of" : "of " + base::Counted(of, "element");
    findings->push_back(std::move(finding));
  }

  Selector selector_;
  bool only_nan_;
  std::vector<uint8_t> kinds_;
};

}  // namespace

void RegisterExplodingTensor(RuleRegistry* registry) {
  RuleInfo info;
  info.class_name = "ExplodingTensor";
  info.snake_name = "exploding_tensor";
  info.scope = "deep learning";
  info.summary = "A tensor holds NaN or infinity.";
  info.parameters = {
      CollectionNamesParameter(
          "Collections to inspect; without it and tensor_regex: gradients, weights, buffers and losses."),
      TensorRegexParameter("Tensors to inspect by name, on top of collection_names."),
      BoolParameter("only_nan", "False", "Look for NaN only and let infinities pass.")};
  registry->Add(std::move(info), [](const Parameters& parameters) -> Result<std::unique_ptr<Rule>> {
    std::vector<std::string> collections = parameters.List("collection_names");
    const std::vector<std::string> regexes = parameters.List("tensor_regex");
    if (collections.empty() && regexes.empty()) collections = {"gradients", "weights", "buffers", "losses"};
    TDBG_ASSIGN_OR_RETURN(Selector selector, Selector::Make(std::move(collections), regexes));
    return MakeRule<ExplodingTensor>(std::move(selector), parameters.Bool("only_nan"));
  });
}

}  // namespace tdbg::rules
