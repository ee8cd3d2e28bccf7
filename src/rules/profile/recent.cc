#include "rules/profile/recent.h"

#include <algorithm>

#include "rules/profile/catalogue.h"

namespace tdbg::rules::profile {
namespace {

constexpr std::string_view kContext = "context/";

}  // namespace

void Recent::Values::Add(int64_t global_step, double value) {
  if (ring_.size() < kMostHistory) {
    ring_.emplace_back(global_step, value);
  } else {
    ring_[next_] = {global_step, value};
    next_ = (next_ + 1) % kMostHistory;
  }
}

std::vector<std::pair<int64_t, double>> Recent::Values::InOrder() const {
  std::vector<std::pair<int64_t, double>> values = ring_;
  std::rotate(values.begin(), values.begin() + static_cast<ptrdiff_t>(next_), values.end());
  return values;
}

void Recent::Take(const Digest& step) {
  const int64_t at = step.global_step();
  for (const Loss& loss : step.losses()) losses_[{loss.name, step.eval()}].Add(at, loss.value);
  if (!step.train()) return;
  for (const auto& [name, value] : step.all_series()) series_[name].Add(at, value);
  for (const Parameter& parameter : step.parameters()) {
    if (parameter.weight_now) norms_[parameter.weight].Add(at, parameter.weight_now->l2);
    if (parameter.gradient && parameter.gradient_now)
      norms_[*parameter.gradient].Add(at, parameter.gradient_now->l2);
  }
}

void Recent::Tell(const Digest& step, Finding* finding) const {
  const auto tell = [&](const Values& values, const char* of) {
    finding->history = values.InOrder();
    finding->history_of = of;
  };
  if (finding->tensor.starts_with(kContext)) {
    const auto series = series_.find(finding->tensor.substr(kContext.size()));
    if (series != series_.end()) tell(series->second, "value");
    return;
  }
  const DetectorInfo* const info = Find(finding->detector);
  const bool eval = info != nullptr && info->family == Family::kEvaluation;
  if (const auto loss = losses_.find({finding->tensor, eval}); loss != losses_.end())
    return tell(loss->second, "value");
  for (const Parameter& parameter : step.parameters()) {
    const bool weight = parameter.name == finding->tensor;
    if (!weight && !(parameter.gradient && step.step().tensor(*parameter.gradient).name == finding->tensor))
      continue;
    const auto norm = norms_.find(weight ? parameter.weight : *parameter.gradient);
    if (norm != norms_.end()) tell(norm->second, "l2");
    return;
  }
}

}  // namespace tdbg::rules::profile
