#include "rules/profile/recent.h"

#include <algorithm>
#include <utility>

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

Recent::History Recent::Values::InOrder() const {
  History values = ring_;
  std::rotate(values.begin(), values.begin() + static_cast<ptrdiff_t>(next_), values.end());
  return values;
}

void Recent::Table::Grow(size_t numbers) {
  if (numbers <= seen_.size()) return;
  seen_.resize(numbers);
  for (History& row : rows_) row.resize(numbers);
}

Recent::History Recent::Table::InOrder(size_t number) const {
  History values;
  const uint32_t seen = number < seen_.size() ? seen_[number] : 0;
  const uint32_t first = seen > kMostHistory ? seen - kMostHistory : 0;
  for (uint32_t i = first; i < seen; ++i) values.push_back(rows_[i % kMostHistory][number]);
  return values;
}

void Recent::Take(const Digest& step) {
  const int64_t at = step.global_step();
  for (const LossValue& loss : step.losses_of_ranks())
    losses_[{loss.tensor, step.eval(), loss.worker}].Add(at, loss.value);
  if (!step.train()) return;
  for (const auto& [name, value] : step.all_series()) {
    const std::vector<Digest::OfRank>& ranks = step.by_rank(name);
    if (ranks.empty()) series_[{name, step.first_with_series()}].Add(at, value);
    for (const Digest::OfRank& one : ranks) series_[{name, one.worker}].Add(at, one.value);
  }
  norms_.Grow(2 * step.parameters().size());
  for (size_t i = 0; i < step.parameters().size(); ++i) {
    const Parameter& parameter = step.parameters()[i];
    if (parameter.weight_now) norms_.Add(2 * i, at, parameter.weight_now->l2);
    if (parameter.gradient && parameter.gradient_now) norms_.Add(2 * i + 1, at, parameter.gradient_now->l2);
  }
}

void Recent::Tell(const Digest& step, Finding* finding) const {
  const auto tell = [&](History values, const char* of) {
    finding->history = std::move(values);
    finding->history_of = of;
  };
  // One that is about the model as a whole names the lowest rank, which need not have this tensor.
  const bool of_one = !finding->worker.empty() && finding->worker != step.first_worker();
  const auto is_its = [&](WorkerIndex worker) {
    return !of_one || step.step().worker_name(worker) == finding->worker;
  };
  if (finding->tensor.starts_with(kContext)) {
    const std::string name = finding->tensor.substr(kContext.size());
    for (auto at = series_.lower_bound({name, 0}); at != series_.end() && at->first.first == name; ++at) {
      if (is_its(at->first.second)) return tell(at->second.InOrder(), "value");
    }
    return;
  }
  const DetectorInfo* const info = Find(finding->detector);
  const bool eval = info != nullptr && info->family == Family::kEvaluation;
  for (const auto& [key, values] : losses_) {
    const auto& [tensor, of_eval, worker] = key;
    if (of_eval == eval && is_its(worker) && step.step().tensor(tensor).name == finding->tensor)
      return tell(values.InOrder(), "value");
  }
  for (size_t i = 0; i < step.parameters().size(); ++i) {
    const Parameter& parameter = step.parameters()[i];
    const bool weight = parameter.name == finding->tensor;
    if (!weight && !(parameter.gradient && step.step().tensor(*parameter.gradient).name == finding->tensor))
      continue;
    if (!is_its(weight ? parameter.weight_of : parameter.gradient_of)) return;
    if (History norms = norms_.InOrder(2 * i + (weight ? 0 : 1)); !norms.empty())
      tell(std::move(norms), "l2");
    return;
  }
}

}  // namespace tdbg::rules::profile
