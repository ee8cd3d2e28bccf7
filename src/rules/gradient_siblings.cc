#include "rules/gradient_siblings.h"

#include <array>
#include <utility>

namespace tdbg::rules {

std::vector<std::string> WeightNamesBeside(const std::string& bias) {
  // torch's and MXNet's, Keras', and normalisations' in either.
  constexpr std::array<std::pair<const char*, const char*>, 3> kPairs = {
      {{"bias", "weight"}, {"bias", "kernel"}, {"beta", "gamma"}}};
  const size_t module_end = bias.find_last_of("./") == std::string::npos ? 0 : bias.find_last_of("./") + 1;
  std::vector<std::string> names;
  for (const auto& [of_bias, of_weight] : kPairs) {
    const size_t at = bias.rfind(of_bias);
    if (at == std::string::npos || at < module_end) continue;
    names.push_back(bias.substr(0, at) + of_weight + bias.substr(at + 4));
  }
  return names;
}

void GradientSiblings::Update(const StepContext& step, const Selector& gradients) {
  const size_t count = step.tensor_count();
  if (weight_of_.size() == count) return;
  const size_t first = weight_of_.size() < count ? weight_of_.size() : 0;
  weight_of_.resize(count, -1);
  for (size_t i = first; i < count; ++i) {
    const auto tensor = static_cast<TensorIndex>(i);
    if (gradients.contains(tensor)) by_name_[step.tensor(tensor).name] = tensor;
  }
  // A weight may come after its bias.
  for (const auto& [name, tensor] : by_name_) {
    if (weight_of_[tensor] >= 0) continue;
    for (const std::string& weight : WeightNamesBeside(name)) {
      const auto at = by_name_.find(weight);
      if (at != by_name_.end()) weight_of_[tensor] = at->second;
    }
  }
}

}  // namespace tdbg::rules
