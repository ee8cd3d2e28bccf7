// Biases and the weights beside them, among gradients.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "rules/selector.h"
#include "rules/step_context.h"

namespace tdbg::rules {

/// Which gradient belongs to the weight of the same module. What reaches a module's output is summed over
/// positions for its bias, and multiplied by the input for its weight. In front of a normalisation, or in an
/// attention's keys, that sum is zero by mathematics and what is left of it is rounding noise: where the
/// weight's gradient lives, a bias without one says nothing.
class GradientSiblings {
 public:
  /// Looks at tensors that are new since the last call.
  void Update(const StepContext& step, const Selector& gradients);
  /// The gradient of the weight beside a bias; -1: `tensor` is no bias, or no such weight has a gradient.
  int64_t WeightOf(TensorIndex tensor) const { return weight_of_[tensor]; }

 private:
  std::vector<int64_t> weight_of_;
  std::map<std::string, TensorIndex> by_name_;
};

/// What the weight beside a bias may be called: "fc.bias" -> "fc.weight", "fc.kernel"; nothing for other
/// names.
std::vector<std::string> WeightNamesBeside(const std::string& bias);

}  // namespace tdbg::rules
