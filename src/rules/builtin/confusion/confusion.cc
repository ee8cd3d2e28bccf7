// Classes that are predicted as others. README.md beside this file.
#include <fmt/format.h>

#include <limits>

#include "rules/builtin/confusion/confusion_matrix.h"
#include "rules/class_values.h"
#include "rules/judging.h"
#include "rules/parameter_specs.h"
#include "rules/rule.h"
#include "rules/selector.h"
#include "rules/step_context.h"

namespace tdbg::rules {
namespace {

constexpr int64_t kConfusionInterval = 10;  // smdebug's for XGBoost

struct ConfusionLimits {
  double min_diagonal = 0.9;
  double max_off_diagonal = 0.1;
  int32_t categories = 0;  // 0: inferred
};

class Confusion : public Rule {
 public:
  Confusion(ClassReader reader, const ConfusionLimits& limits)
      : reader_(std::move(reader)), limits_(limits) {}

  plan::Need Needs() const override { return reader_.Need(kConfusionInterval); }

  Result<Judged> Invoke(const StepContext& step, std::vector<Finding>* findings) override {
    bool readable = true, judged = false;
    TDBG_ASSIGN_OR_RETURN(const std::vector<ClassValues> all, reader_.Read(step, &readable));
    for (const ClassValues& values : all) {
      if (!values.has_predictions) continue;
      const int32_t largest = ConfusionMatrix::LargestClass(values);
      const int32_t bound = limits_.categories > 0 ? limits_.categories : ConfusionMatrix::kMaxCategories;
      if (largest >= bound) {
        return InvalidArgument(fmt::format("{} or its labels hold class {} at step {}; {} are accepted",
                                           step.tensor(values.predictions).name, largest, step.global_step(),
                                           limits_.categories > 0
                                               ? fmt::format("classes below category_no {}", bound)
                                               : fmt::format("{} classes", bound)));
      }
      if (largest == kNoClass) continue;
      judged = true;
      Judge(step, values, ConfusionMatrix(values, limits_.categories), findings);
    }
    if (!findings->empty()) return Judged::kJudged;
    if (!readable) return Judged::kIncomplete;
    return judged ? Judged::kJudged : Judged::kNotDue;
  }

  std::string WouldHaveNeeded() const override {
    return fmt::format("values of labels ({}) and, at the same step, of predictions ({})",
                       reader_.labels().Describe(), reader_.predictions().Describe());
  }

 private:
  void Judge(const StepContext& step, const ClassValues& values, const ConfusionMatrix& matrix,
             std::vector<Finding>* findings) const {
    for (int32_t label = 0; label < matrix.categories(); ++label) {
      const int64_t total = matrix.row_total(label);
      if (total == 0) continue;
      for (int32_t prediction = 0; prediction < matrix.categories(); ++prediction) {
        const int64_t count = matrix.cell(label, prediction);
        const double share = static_cast<double>(count) / static_cast<double>(total);
        const bool diagonal = label == prediction;
        if (diagonal ? share >= limits_.min_diagonal : share <= limits_.max_off_diagonal) continue;
        Finding finding = FindingAt(step, values.predictions, values.worker);
        finding.measure = diagonal ? "share_predicted_right" : "share_predicted_as_other";
        finding.value = share;
        finding.comparison = diagonal ? "<" : ">";
        finding.threshold = diagonal ? limits_.min_diagonal : limits_.max_off_diagonal;
        finding.text = diagonal ? fmt::format("class {}, {} of {}", label, count, total)
                                : fmt::format("class {} as {}, {} of {}", label, prediction, count, total);
        findings->push_back(std::move(finding));
      }
    }
  }

  ClassReader reader_;
  ConfusionLimits limits_;
};

// Selects the tensor of exactly this name and all tensors of the collection.
Result<Selector> NamedOrIn(const std::string& name, const std::string& collection) {
  return Selector::Make({collection}, {"^\\Q" + name + "\\E$"});
}

}  // namespace

void RegisterConfusion(RuleRegistry* registry) {
  RuleInfo info;
  info.class_name = "Confusion";
  info.snake_name = "confusion";
  info.scope = "xgboost";
  info.summary = "A class is predicted right too rarely, or too often as one other class.";
  ParameterSpec categories = NumberParameter("category_no", "int", "", 2, "classes",
                                             "How many classes there are; without it, what the data show.");
  categories.maximum = ConfusionMatrix::kMaxCategories;
  ParameterSpec min_diag = NumberParameter("min_diag", "float", "0.9", 0, "share of a class's labels",
                                           "A smaller share of right predictions is a hit.");
  ParameterSpec max_off = NumberParameter("max_off_diag", "float", "0.1", 0, "share of a class's labels",
                                          "A larger share of predictions as one other class is a hit.");
  min_diag.maximum = max_off.maximum = 1;
  info.parameters = {
      categories,
      TextParameter("labels", "labels", "The labels' tensor."),
      TextParameter("predictions", "predictions", "The predictions' tensor."),
      TextParameter("labels_collection", "labels", "Labels are in this collection, too."),
      TextParameter("predictions_collection", "predictions", "Predictions are in this collection, too."),
      min_diag,
      max_off,
  };
  registry->Add(std::move(info), [](const Parameters& parameters) -> Result<std::unique_ptr<Rule>> {
    TDBG_ASSIGN_OR_RETURN(Selector labels,
                          NamedOrIn(parameters.Text("labels"), parameters.Text("labels_collection")));
    TDBG_ASSIGN_OR_RETURN(Selector predictions, NamedOrIn(parameters.Text("predictions"),
                                                          parameters.Text("predictions_collection")));
    ConfusionLimits limits;
    limits.min_diagonal = parameters.Float("min_diag");
    limits.max_off_diagonal = parameters.Float("max_off_diag");
    if (parameters.Has("category_no"))
      limits.categories = static_cast<int32_t>(parameters.Int("category_no"));
    return MakeRule<Confusion>(
        ClassReader(std::move(labels), std::move(predictions), PredictionForm::kByShape), limits);
  });
}

}  // namespace tdbg::rules
