// A page about an XGBoost training, made while it grows. README.md beside this file.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "rules/builtin/confusion/confusion_matrix.h"
#include "rules/builtin/create_xgboost_report/report_data.h"
#include "rules/class_values.h"
#include "rules/judging.h"
#include "rules/kept_values.h"
#include "rules/loss_values.h"
#include "rules/rule.h"
#include "rules/selector.h"
#include "rules/step_context.h"
#include "rules/text_values.h"

namespace tdbg::rules {
namespace {

constexpr int64_t kRawInterval = 5;  // smdebug's for this rule
constexpr char kFileName[] = "xgboost_report.html";

struct Inputs {
  Selector hyperparameters, labels, predictions;
  LossReader metrics, importance;
  ClassReader classes;
};

std::string Behind(const std::string& name, char mark) {
  const size_t at = name.find(mark);
  return at == std::string::npos ? name : name.substr(at + 1);
}

/// The library that trains, where it is none of boosted trees; empty otherwise, and where the run does not
/// say (C++, a directory of smdebug's). Others have metrics, labels and predictions, too.
std::string OtherLibrary(const StepContext& step) {
  const std::string* const text = step.Context("versions");
  if (text == nullptr) return {};
  const nlohmann::ordered_json versions =
      nlohmann::ordered_json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!versions.is_object() || versions.contains("xgboost") || versions.contains("lightgbm")) return {};
  for (const char* library : {"keras", "torch", "mxnet", "jax", "optax", "tensorflow"}) {
    if (versions.contains(library)) return library;
  }
  return {};
}

class CreateXgboostReport : public Rule {
 public:
  explicit CreateXgboostReport(Inputs inputs) : inputs_(std::move(inputs)) {}

  plan::Need Needs() const override {
    plan::Need need;
    need.collections = {"metrics", "feature_importance"};
    need.raw_collections = {"hyperparameters", "labels", "predictions"};
    need.raw_schedule.emplace().interval = kRawInterval;
    return need;
  }

  Result<Judged> Invoke(const StepContext& step, std::vector<Finding>*) override {
    if (!asked_) {
      asked_ = true;
      other_library_ = OtherLibrary(step);
    }
    if (!other_library_.empty()) return Judged::kNotDue;
    bool readable = true;
    // All three are called, whatever the first returns: no short circuit.
    const bool numbers = TakeNumbers(step);
    const bool hyperparameters = TakeHyperparameters(step, &readable);
    const bool predictions = TakePredictions(step, &readable);
    if (!readable) return Judged::kIncomplete;
    if (!numbers && !hyperparameters && !predictions) return Judged::kNotDue;
    data_.last_step = step.global_step();
    is_new_ = true;
    return Judged::kJudged;
  }

  Result<Judged> AtEnd(const StepContext&, std::vector<Finding>*) override {
    data_.final = true;
    is_new_ = other_library_.empty();
    return Judged::kNotDue;
  }

  std::optional<Report> MakeReport() override {
    if (!std::exchange(is_new_, false) || data_.last_step < 0) return std::nullopt;
    return Report{kFileName, ReportHtml(data_)};
  }

  std::string WouldHaveNeeded() const override {
    if (!other_library_.empty()) {
      return "a training of XGBoost or LightGBM: its page is about boosted trees, and this is one of " +
             other_library_;
    }
    return "a tensor of the collections metrics, feature_importance, labels or predictions";
  }

 private:
  // Of several workers, which hold the same model, the first is shown.
  bool TakeNumbers(const StepContext& step) {
    bool seen = false;
    std::vector<TensorIndex> taken;
    for (const LossValue& metric : inputs_.metrics.Read(step)) {
      if (std::ranges::count(taken, metric.tensor) > 0) continue;
      taken.push_back(metric.tensor);
      data_.metrics[step.tensor(metric.tensor).name].emplace_back(step.global_step(), metric.value);
      seen = true;
    }
    for (const LossValue& importance : inputs_.importance.Read(step)) {
      // "feature_importance/weight/f0"
      const std::string rest = Behind(step.tensor(importance.tensor).name, '/');
      const size_t slash = rest.find('/');
      if (slash == std::string::npos) continue;
      data_.importance[rest.substr(0, slash)][rest.substr(slash + 1)] = importance.value;
      seen = true;
    }
    return seen;
  }

  bool TakeHyperparameters(const StepContext& step, bool* readable) {
    inputs_.hyperparameters.Update(step);
    bool seen = false;
    *readable &= ForEachKeptValue(
        step, inputs_.hyperparameters, [](TensorIndex, WorkerIndex) { return true; },
        [&](TensorIndex tensor, WorkerIndex, const TensorValue& value) {
          std::vector<std::string> words;
          if (auto texts = TextElements(value)) {
            words = *std::move(texts);
          } else {
            std::vector<double> numbers(ElementCount(value));
            if (numbers.size() > 64 || !LoadElements(value, 0, numbers)) return;
            for (const double number : numbers) words.push_back(fmt::format("{:g}", number));
          }
          data_.hyperparameters[Behind(step.tensor(tensor).name, '/')] =
              fmt::format("{}", fmt::join(words, ", "));
          seen = true;
        });
    return seen;
  }

  // The first tensor of numbers that the selector finds here.
  std::vector<double> Numbers(const StepContext& step, Selector& selector, bool* readable) {
    selector.Update(step);
    std::vector<double> numbers;
    *readable &= ForEachKeptValue(
        step, selector, [&](TensorIndex, WorkerIndex) { return numbers.empty(); },
        [&](TensorIndex, WorkerIndex, const TensorValue& value) {
          numbers.resize(ElementCount(value));
          if (numbers.empty() || !LoadElements(value, 0, numbers)) numbers.clear();
        });
    return numbers;
  }

  bool IsRegression() const {
    const auto objective = data_.hyperparameters.find("objective");
    if (objective == data_.hyperparameters.end()) return false;
    const std::string& name = objective->second;
    return (name.starts_with("reg:") && name != "reg:logistic") || name.starts_with("count:") ||
           name.starts_with("survival:") || name.starts_with("rank:");
  }

  bool TakePredictions(const StepContext& step, bool* readable) {
    std::vector<double> labels = Numbers(step, inputs_.labels, readable);
    if (labels.empty()) return false;
    data_.labels = std::move(labels);
    data_.predictions = Numbers(step, inputs_.predictions, readable);
    data_.predictions_step = step.global_step();
    data_.classes.reset();
    if (IsRegression()) return true;
    // Labels that are no classes mean a regression, which is not an error here.
    auto classes = inputs_.classes.Read(step, readable);
    if (!classes.ok() || classes->empty() || !classes->front().has_predictions) return true;
    const int32_t largest = ConfusionMatrix::LargestClass(classes->front());
    if (largest < 0 || largest >= ConfusionMatrix::kMaxCategories) return true;
    data_.classes = std::move(classes->front());
    const ConfusionMatrix matrix(*data_.classes);
    for (int32_t label = 0; label < matrix.categories(); ++label) {
      if (matrix.row_total(label) == 0) continue;
      const double share =
          static_cast<double>(matrix.cell(label, label)) / static_cast<double>(matrix.row_total(label));
      data_.class_accuracy[label].emplace_back(step.global_step(), share);
    }
    return true;
  }

  Inputs inputs_;
  ReportData data_;
  std::string other_library_;
  bool asked_ = false;
  bool is_new_ = false;
};

}  // namespace

void RegisterCreateXgboostReport(RuleRegistry* registry) {
  RuleInfo info;
  info.class_name = "CreateXgboostReport";
  info.snake_name = "create_xgboost_report";
  info.scope = "xgboost";
  info.summary = "Writes a page about the training beside the run; never a hit.";
  registry->Add(std::move(info), [](const Parameters&) -> Result<std::unique_ptr<Rule>> {
    const auto collection = [](const char* name) { return Selector::Make({name}, {}); };
    Inputs inputs;
    TDBG_ASSIGN_OR_RETURN(inputs.hyperparameters, collection("hyperparameters"));
    TDBG_ASSIGN_OR_RETURN(inputs.labels, collection("labels"));
    TDBG_ASSIGN_OR_RETURN(inputs.predictions, collection("predictions"));
    TDBG_ASSIGN_OR_RETURN(Selector metrics, collection("metrics"));
    TDBG_ASSIGN_OR_RETURN(Selector importance, collection("feature_importance"));
    inputs.metrics = LossReader(std::move(metrics));
    inputs.importance = LossReader(std::move(importance));
    inputs.classes = ClassReader(inputs.labels, inputs.predictions, PredictionForm::kByShape);
    return MakeRule<CreateXgboostReport>(std::move(inputs));
  });
}

}  // namespace tdbg::rules
