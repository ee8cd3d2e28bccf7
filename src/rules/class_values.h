// Labels and predictions of a step as class numbers, for rules that count classes.
#pragma once

#include <cstdint>
#include <vector>

#include "rules/selector.h"
#include "rules/step_context.h"
#include "tdbg/status.h"

namespace tdbg::rules {

/// How predictions become classes.
enum class PredictionForm : uint8_t {
  kClasses = 0,  ///< they are class numbers
  kScores = 1,   ///< scores of each class along the last axis: the largest counts (numpy.argmax)
  kByShape =
      2,  ///< scores if they have an axis more than the labels, else classes, or a probability of class 1
};

inline constexpr int32_t kNoClass = -1;
/// More classes than anybody reads a confusion matrix of; limits what a wrong tensor can cost.
inline constexpr int32_t kMaxClasses = 1 << 20;

/// One tensor of labels of one worker, and the predictions that belong to it.
struct ClassValues {
  TensorIndex labels = 0;
  WorkerIndex worker = 0;
  std::vector<int32_t> label;  ///< kNoClass: not finite, so unknown; negative: padding
  bool has_predictions = false;
  TensorIndex predictions = 0;
  std::vector<int32_t> prediction;  ///< as many as labels; kNoClass: not finite
};

/// Reads the step's own raw values. Several tensors of labels are paired with as many tensors of predictions
/// in the order of their names; one tensor of labels serves all predictions.
class ClassReader {
 public:
  ClassReader() = default;
  ClassReader(Selector labels, Selector predictions, PredictionForm form)
      : labels_(std::move(labels)), predictions_(std::move(predictions)), form_(form) {}

  const Selector& labels() const { return labels_; }
  const Selector& predictions() const { return predictions_; }
  /// Labels and predictions of every `interval`-th step.
  plan::Need Need(int64_t interval) const;
  /// \param readable  set to false if a value that was kept cannot be read
  /// \error kInvalidArgument  labels that are no class numbers, predictions that do not fit them
  Result<std::vector<ClassValues>> Read(const StepContext& step, bool* readable);

 private:
  Selector labels_, predictions_;
  PredictionForm form_ = PredictionForm::kClasses;
};

}  // namespace tdbg::rules
