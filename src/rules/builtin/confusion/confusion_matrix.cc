#include "rules/builtin/confusion/confusion_matrix.h"

#include <algorithm>

namespace tdbg::rules {

int32_t ConfusionMatrix::LargestClass(const ClassValues& values) {
  int32_t largest = kNoClass;
  for (const int32_t label : values.label) largest = std::max(largest, label);
  for (const int32_t prediction : values.prediction) largest = std::max(largest, prediction);
  return largest;
}

ConfusionMatrix::ConfusionMatrix(const ClassValues& values, int32_t categories)
    : categories_(std::max(categories, LargestClass(values) + 1)),
      cells_(static_cast<size_t>(categories_) * static_cast<size_t>(categories_)),
      row_totals_(static_cast<size_t>(categories_)) {
  for (size_t i = 0; i < values.label.size(); ++i) {
    if (values.label[i] == kNoClass) continue;
    ++row_totals_[static_cast<size_t>(values.label[i])];
    if (values.prediction[i] != kNoClass) ++cells_[Index(values.label[i], values.prediction[i])];
  }
}

}  // namespace tdbg::rules
