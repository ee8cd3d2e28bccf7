// Finds, among gradients, the weight that belongs to a bias.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "rules/selector.h"
#include "rules/step_context.h"

namespace tdbg::rules {

/// Finds the gradient of the weight of the same module. A bias's gradient is the gradient of the module's
/// output, summed over positions; the weight's is that gradient times the input. In front of a normalisation,
/// or in an attention's keys, the sum is mathematically zero, and only rounding noise is left. So if the
/// weight has a gradient, a vanishing gradient of its bias means nothing.
class GradientSiblings {
 public:
  /// Takes in tensors that are new since the last call.
  void Update(const StepContext& step, const Selector& gradients);
  /// The gradient of the weight that belongs to a bias; -1: `tensor` is no bias, or no such weight has a
  /// gradient.
  int64_t WeightOf(TensorIndex tensor) const { return weight_of_[tensor]; }

 private:
  std::vector<int64_t> weight_of_;
  std::map<std::string, TensorIndex> by_name_;
};

/// Possible names of the weight that belongs to a bias: "fc.bias" -> "fc.weight", "fc.kernel"; nothing for
/// other names.
std::vector<std::string> WeightNamesBeside(const std::string& bias);

}  // namespace tdbg::rules
