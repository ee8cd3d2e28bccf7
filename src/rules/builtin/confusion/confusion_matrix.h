// How often each class was predicted as each other one.
#pragma once

#include <cstdint>
#include <vector>

#include "rules/class_values.h"

namespace tdbg::rules {

/// cell(label, prediction); square, `categories` to a side.
class ConfusionMatrix {
 public:
  /// A matrix of more would be looked at by nobody, and its cells grow with the square.
  static constexpr int32_t kMaxCategories = 1024;

  /// As many categories as `values` holds. \pre its class numbers are below kMaxCategories
  explicit ConfusionMatrix(const ClassValues& values, int32_t categories = 0);

  int32_t categories() const { return categories_; }
  int64_t cell(int32_t label, int32_t prediction) const { return cells_[Index(label, prediction)]; }
  /// Labels of a class, those included whose prediction is not finite.
  int64_t row_total(int32_t label) const { return row_totals_[static_cast<size_t>(label)]; }
  /// The largest class number in `values`, -1: there is none.
  static int32_t LargestClass(const ClassValues& values);

 private:
  size_t Index(int32_t label, int32_t prediction) const {
    return static_cast<size_t>(label) * static_cast<size_t>(categories_) + static_cast<size_t>(prediction);
  }

  int32_t categories_;
  std::vector<int64_t> cells_, row_totals_;
};

}  // namespace tdbg::rules
