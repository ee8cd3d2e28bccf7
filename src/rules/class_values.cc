#include "rules/class_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/text.h"
#include "rules/kept_values.h"

namespace tdbg::rules {
namespace {

using Values = std::map<WorkerIndex, std::vector<std::pair<TensorIndex, TensorValue>>>;

// Each tensor once: one with a single element may be kept twice, as a raw value and as statistics. What
// adaptors note about a step (`context/labels/max`) is about labels, and holds none.
Values ValuesOf(const StepContext& step, Selector& selector, bool* readable) {
  Values values;
  selector.Update(step);
  const auto wanted = [&](TensorIndex tensor, WorkerIndex worker) {
    return !step.tensor(tensor).name.starts_with("context/") &&
           std::ranges::none_of(values[worker], [&](const auto& seen) { return seen.first == tensor; });
  };
  *readable &= ForEachKeptValue(step, selector, wanted,
                                [&](TensorIndex tensor, WorkerIndex worker, TensorValue value) {
                                  values[worker].emplace_back(tensor, std::move(value));
                                });
  for (auto& [worker, list] : values) {
    std::ranges::sort(list, [&](const auto& a, const auto& b) {
      return step.tensor(a.first).name < step.tensor(b.first).name;
    });
  }
  return values;
}

Result<std::vector<double>> Elements(const StepContext& step, TensorIndex tensor, const TensorValue& value) {
  std::vector<double> elements(ElementCount(value));
  if (!elements.empty() && !LoadElements(value, 0, elements)) {
    return InvalidArgument(fmt::format("{} holds {}, and classes are numbers", step.tensor(tensor).name,
                                       DTypeName(value.dtype)));
  }
  return elements;
}

bool IsClass(double value) { return value >= 0 && value < kMaxClasses && value == std::floor(value); }

// `padded`: a negative number stands where there is no label, as torch's ignore_index of -100 does.
Result<std::vector<int32_t>> Classes(const StepContext& step, TensorIndex tensor,
                                     const std::vector<double>& elements, bool padded,
                                     const char* otherwise) {
  std::vector<int32_t> classes;
  classes.reserve(elements.size());
  for (const double element : elements) {
    if (padded && element < 0 && element == std::floor(element)) {
      classes.push_back(kNoClass);
      continue;
    }
    if (std::isfinite(element) && !IsClass(element)) {
      return InvalidArgument(fmt::format("{} holds {:g} at step {}, which is no class number{}",
                                         step.tensor(tensor).name, element, step.global_step(), otherwise));
    }
    classes.push_back(std::isfinite(element) ? static_cast<int32_t>(element) : kNoClass);
  }
  return classes;
}

// The first of the largest, as numpy.argmax; a row with NaN has none.
std::vector<int32_t> LargestOf(const std::vector<double>& scores, size_t width) {
  std::vector<int32_t> classes;
  for (size_t row = 0; row + width <= scores.size(); row += width) {
    const auto first = scores.begin() + static_cast<ptrdiff_t>(row);
    const auto last = first + static_cast<ptrdiff_t>(width);
    const bool known = std::none_of(first, last, [](double score) { return std::isnan(score); });
    classes.push_back(known ? static_cast<int32_t>(std::max_element(first, last) - first) : kNoClass);
  }
  return classes;
}

// XGBoost's binary:logistic predicts the probability of class 1.
bool AreProbabilities(const std::vector<int32_t>& labels, const std::vector<double>& predictions) {
  const bool binary = std::ranges::all_of(labels, [](int32_t label) { return label <= 1; });
  const bool shares =
      std::ranges::all_of(predictions, [](double p) { return !std::isfinite(p) || (p >= 0 && p <= 1); });
  return binary && shares &&
         !std::ranges::all_of(predictions, [](double p) { return !std::isfinite(p) || IsClass(p); });
}

Result<std::vector<int32_t>> Predicted(const StepContext& step, PredictionForm form,
                                       const std::vector<int32_t>& labels, TensorIndex tensor,
                                       const TensorValue& value) {
  TDBG_ASSIGN_OR_RETURN(const std::vector<double> elements, Elements(step, tensor, value));
  const size_t width = value.shape.empty() ? 1 : static_cast<size_t>(value.shape.back());
  const std::string name = step.tensor(tensor).name;
  const bool fits_scores = width > 1 && elements.size() == labels.size() * width;
  const bool fits_classes = elements.size() == labels.size();
  if (form == PredictionForm::kScores ? !fits_scores
                                      : !fits_classes && !(form == PredictionForm::kByShape && fits_scores)) {
    const char* const hint = form == PredictionForm::kClasses && fits_scores
                                 ? "; with argmax=True the largest along the last axis counts"
                                 : "";
    return InvalidArgument(fmt::format("{} holds {} (last axis {}) for {} at step {}{}", name,
                                       base::Counted(elements.size(), "value"), width,
                                       base::Counted(labels.size(), "label"), step.global_step(), hint));
  }
  if (form == PredictionForm::kScores || !fits_classes) return LargestOf(elements, width);
  if (AreProbabilities(labels, elements)) {
    std::vector<int32_t> classes;
    for (const double p : elements) classes.push_back(std::isfinite(p) ? p > 0.5 : kNoClass);
    return classes;
  }
  return Classes(step, tensor, elements, /*padded=*/false, ", and no probability of class 1 of two");
}

}  // namespace

plan::Need ClassReader::Need(int64_t interval) const {
  plan::Need need = labels_.Need();
  const plan::Need predictions = predictions_.Need();
  need.collections.insert(need.collections.end(), predictions.collections.begin(),
                          predictions.collections.end());
  need.tensor_regex.insert(need.tensor_regex.end(), predictions.tensor_regex.begin(),
                           predictions.tensor_regex.end());
  need.raw = true;
  need.raw_schedule.emplace().interval = interval;
  return need;
}

Result<std::vector<ClassValues>> ClassReader::Read(const StepContext& step, bool* readable) {
  const Values labels = ValuesOf(step, labels_, readable);
  Values predictions;
  if (!labels.empty()) predictions = ValuesOf(step, predictions_, readable);
  std::vector<ClassValues> all;
  for (const auto& [worker, of_labels] : labels) {
    const auto& of_predictions = predictions[worker];
    if (of_labels.empty()) continue;
    if (of_predictions.size() > 1 && of_labels.size() > 1 && of_predictions.size() != of_labels.size()) {
      return InvalidArgument(fmt::format(
          "{} tensors of labels and {} of predictions at step {}: name those that belong together",
          of_labels.size(), of_predictions.size(), step.global_step()));
    }
    const size_t count = std::max(of_labels.size(), of_predictions.size());
    for (size_t i = 0; i < count; ++i) {
      const auto& [label_tensor, label_value] = of_labels[std::min(i, of_labels.size() - 1)];
      ClassValues values;
      values.labels = label_tensor;
      values.worker = worker;
      TDBG_ASSIGN_OR_RETURN(const std::vector<double> elements, Elements(step, label_tensor, label_value));
      TDBG_ASSIGN_OR_RETURN(values.label, Classes(step, label_tensor, elements, /*padded=*/true, ""));
      if (i < of_predictions.size()) {
        const auto& [tensor, value] = of_predictions[i];
        values.has_predictions = true;
        values.predictions = tensor;
        TDBG_ASSIGN_OR_RETURN(values.prediction, Predicted(step, form_, values.label, tensor, value));
      }
      all.push_back(std::move(values));
    }
  }
  return all;
}

}  // namespace tdbg::rules
