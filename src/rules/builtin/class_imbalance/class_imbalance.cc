// Classes of very different size, and classes that are mostly predicted wrongly. README.md beside this file.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "base/text.h"
#include "rules/class_values.h"
#include "rules/details.h"
#include "rules/judging.h"
#include "rules/parameter_specs.h"
#include "rules/rule.h"
#include "rules/selector.h"
#include "rules/step_context.h"

namespace tdbg::rules {
namespace {

// Labels and predictions are small, and classes need many of them: more often than weights, not at every
// step.
constexpr int64_t kRawInterval = 10;

struct Limits {
  double imbalance = 10;
  double misprediction = 0.7;
  int64_t samples = 500;
};

struct Class {
  int64_t count = 0;
  int64_t predicted = 0;  // of these, labels with a prediction beside them
  int64_t wrong = 0;
};

// One pair of tensors of one worker in one mode.
struct Counted {
  int64_t samples = 0;
  std::map<int32_t, Class> classes;
};

class ClassImbalance : public Rule {
 public:
  ClassImbalance(ClassReader reader, const Limits& limits) : reader_(std::move(reader)), limits_(limits) {}

  plan::Need Needs() const override { return reader_.Need(kRawInterval); }

  Result<Judged> Invoke(const StepContext& step, std::vector<Finding>* findings) override {
    bool readable = true, judged = false;
    TDBG_ASSIGN_OR_RETURN(const std::vector<ClassValues> all, reader_.Read(step, &readable));
    for (const ClassValues& values : all) {
      const TensorIndex predictions = values.has_predictions ? values.predictions : values.labels;
      Counted& counted = counted_[{values.labels, predictions, values.worker, step.mode()}];
      Count(values, &counted);
      most_ = std::max(most_, counted.samples);
      if (counted.samples < limits_.samples || counted.classes.empty()) continue;
      judged = true;
      Judge(step, values, counted, findings);
    }
    if (!findings->empty()) return Judged::kJudged;
    if (!readable) return Judged::kIncomplete;
    return judged ? Judged::kJudged : Judged::kNotDue;
  }

  std::string WouldHaveNeeded() const override {
    return fmt::format("{} (values of a tensor {}); {}", base::Counted(limits_.samples, "label"),
                       reader_.labels().Describe(), KeptText(most_));
  }

 private:
  static void Count(const ClassValues& values, Counted* counted) {
    for (size_t i = 0; i < values.label.size(); ++i) {
      if (values.label[i] == kNoClass) continue;
      ++counted->samples;
      Class& of_label = counted->classes[values.label[i]];
      ++of_label.count;
      if (!values.has_predictions) continue;
      ++of_label.predicted;
      of_label.wrong += values.prediction[i] != values.label[i];
    }
  }

  void Judge(const StepContext& step, const ClassValues& values, const Counted& counted,
             std::vector<Finding>* findings) const {
    const auto by_count = [](const auto& a, const auto& b) { return a.second.count < b.second.count; };
    const auto [smallest, largest] =
        std::minmax_element(counted.classes.begin(), counted.classes.end(), by_count);
    const double ratio =
        static_cast<double>(largest->second.count) / static_cast<double>(smallest->second.count);
    if (ratio > limits_.imbalance) {
      Finding finding = At(step, values.labels, values.worker);
      finding.measure = "largest_over_smallest_class";
      finding.value = ratio;
      finding.threshold = limits_.imbalance;
      finding.text =
          fmt::format("class {}: {} of {}, class {}: {}", largest->first, largest->second.count,
                      base::Counted(counted.samples, "label"), smallest->first, smallest->second.count);
      findings->push_back(std::move(finding));
    }
    for (const auto& [number, of_label] : counted.classes) {
      if (of_label.predicted == 0) continue;
      const double share = static_cast<double>(of_label.wrong) / static_cast<double>(of_label.predicted);
      if (share <= limits_.misprediction) continue;
      Finding finding = At(step, values.predictions, values.worker);
      finding.measure = "share_mispredicted";
      finding.value = share;
      finding.threshold = limits_.misprediction;
      finding.text = fmt::format("class {}, {} of {}", number, of_label.wrong, of_label.predicted);
      findings->push_back(std::move(finding));
    }
  }

  static Finding At(const StepContext& step, TensorIndex tensor, WorkerIndex worker) {
    Finding finding = FindingAt(step, tensor, worker);
    finding.comparison = ">";
    return finding;
  }

  ClassReader reader_;
  Limits limits_;
  int64_t most_ = 0;
  std::map<std::tuple<TensorIndex, TensorIndex, WorkerIndex, ModeKey>, Counted> counted_;
};

}  // namespace

void RegisterClassImbalance(RuleRegistry* registry) {
  RuleInfo info;
  info.class_name = "ClassImbalance";
  info.snake_name = "class_imbalance";
  info.scope = "any";
  info.summary = "One class has many times the labels of another, or a class is mostly predicted wrongly.";
  ParameterSpec labels = TensorRegexParameter("The labels, by name.");
  labels.name = "labels_regex";
  labels.default_value = ".*labels";
  ParameterSpec predictions = TensorRegexParameter("The predictions, by name.");
  predictions.name = "predictions_regex";
  predictions.default_value = ".*predictions";
  info.parameters = {
      NumberParameter("threshold_imbalance", "float", "10", 0, "",
                      "A larger ratio of the largest class to the smallest is a hit."),
      NumberParameter("threshold_misprediction", "float", "0.7", 0, "share of a class's labels",
                      "A larger share of wrong predictions is a hit."),
      NumberParameter("samples", "int", "500", 1, "labels", "So many are counted before anything is judged."),
      BoolParameter("argmax", "False",
                    "Predictions are scores of each class along the last axis, not class numbers."),
      labels,
      predictions,
  };
  registry->Add(std::move(info), [](const Parameters& parameters) -> Result<std::unique_ptr<Rule>> {
    TDBG_ASSIGN_OR_RETURN(Selector label, Selector::Make({}, parameters.List("labels_regex")));
    TDBG_ASSIGN_OR_RETURN(Selector prediction, Selector::Make({}, parameters.List("predictions_regex")));
    ClassReader reader(std::move(label), std::move(prediction),
                       parameters.Bool("argmax") ? PredictionForm::kScores : PredictionForm::kClasses);
    Limits limits;
    limits.imbalance = parameters.Float("threshold_imbalance");
    limits.misprediction = parameters.Float("threshold_misprediction");
    limits.samples = parameters.Int("samples");
    return MakeRule<ClassImbalance>(std::move(reader), limits);
  });
}

}  // namespace tdbg::rules
