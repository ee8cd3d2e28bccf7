#include "rules/profile/compared.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

namespace tdbg::rules::profile {

std::optional<Compared> ComparedAt(const Digest& step, int number) {
  const auto finite = [&](std::string name) {
    if (number > 0) name.insert(name.find('/'), "/" + std::to_string(number));
    const auto value = step.series(name);
    return value && std::isfinite(*value) ? value : std::nullopt;
  };
  Compared one;
  one.between = finite("predictions/between");
  if (!one.between) return std::nullopt;
  one.target_mean = finite("targets/mean");
  one.target_std = finite("targets/std");
  one.target_between = finite("targets/between");
  one.mean = finite("predictions/mean");
  one.std = finite("predictions/std");
  one.guess = finite("targets/guess");
  one.loss = finite("predictions/loss");
  one.correlation = finite("predictions/correlation");
  return one;
}

Comparison Comparison::Of(const Digest& step) {
  Comparison found;
  const std::string* const text = step.topic("predictions");
  if (text == nullptr) return found;
  const auto json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("function") || !json["function"].is_string()) return found;
  const auto function = json["function"].get<std::string>();
  found.kind = function.starts_with("binary")                          ? kBinary
               : function == "cross_entropy" || function == "nll_loss" ? kClasses
                                                                       : kElements;
  found.single = json.contains("single") && json["single"].is_boolean() && json["single"].get<bool>();
  return found;
}

int64_t Rate::StepsSinceRise(const Digest& step) {
  double rate = 0;
  for (const Group& group : step.groups()) rate = std::max(rate, group.lr.value_or(0));
  since_ = rate > rate_ * 1.0001 ? 0 : since_ + 1;
  rate_ = rate;
  return since_;
}

void SeldomFeatures::See(const Digest& step) {
  constexpr double kSeldom = 0.2;
  touched_.resize(step.parameters().size());
  const Parameter* first = nullptr;
  for (const Parameter& parameter : step.parameters()) {
    if (parameter.matrix() && (first == nullptr || parameter.order < first->order)) first = &parameter;
  }
  for (size_t i = 0; i < touched_.size(); ++i) {
    const Parameter& parameter = step.parameters()[i];
    if (parameter.group < 0 || parameter.shape.size() != 2 || !parameter.gradient_now) continue;
    const bool table = parameter.module_kind == "embedding";
    if (!table && &parameter != first) continue;
    if (table && static_cast<double>(parameter.shape[0]) == step.classes().value_or(0)) continue;
    double elements = 1;
    for (const int64_t size : parameter.shape) elements *= static_cast<double>(size);
    const Numbers& now = *parameter.gradient_now;  // of a sparse gradient its rows alone
    const double share = static_cast<double>(now.count - now.zeros) / std::max(elements, 1.0);
    // Half of a layer's rows may be those of units that are off.
    touched_[i].sum += share < kSeldom ? share : 1;
    ++touched_[i].steps;
  }
}

double SeldomFeatures::LeastTouched() const {
  double least = std::numeric_limits<double>::infinity();
  for (const Touched& touched : touched_) {
    if (touched.steps > 0) least = std::min(least, touched.sum);
  }
  return least;
}

void AgainstGuessing::See(const Digest& step) {
  const auto now = ComparedAt(step);
  if (!now || !now->guess || !now->loss || !(*now->guess > 0)) return;
  guesses_.Add(*now->guess);
  losses_.Add(*now->loss);
}

bool AgainstGuessing::IsBetterThan(double times) const {
  return IsKnown() && losses_.Mean(kLooks) < times * guesses_.Mean(kLooks);
}

}  // namespace tdbg::rules::profile
