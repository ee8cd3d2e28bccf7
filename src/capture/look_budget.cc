#include "capture/look_budget.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace tdbg::capture {
namespace {

constexpr int64_t kMemory = 16;   // steps over which times are averaged, and between two divisions
constexpr double kLongest = 4;    // times the average: a pause (a checkpoint) counts as no more
constexpr double kAtLeast = 0.5;  // of the share is large tensors', whatever the small ones take
constexpr int64_t kRarest = 1 << 20;

}  // namespace

void LookBudget::Looked(const std::vector<Look>& looks, uint64_t bytes, int64_t nanos, bool usual) {
  const auto all = static_cast<double>(nanos);
  double of_large = 0;
  for (const Look& look : looks) {
    const double cost =
        all * static_cast<double>(look.bytes) / static_cast<double>(std::max(bytes, look.bytes));
    of_large += cost;
    const auto [at, is_new] = large_.try_emplace(look.id);
    if (!is_new && !usual) continue;
    at->second.nanos = is_new ? cost : (at->second.nanos + cost) / 2;
    news_ |= is_new;
  }
  spent_ += all;
  others_ += std::max(0.0, all - of_large);
}

bool LookBudget::StepEnded(int64_t now) {
  if (!asked_) return false;
  asked_ = false;
  const double spent = spent_, others = others_;
  spent_ = others_ = 0;
  const int64_t before = last_end_;
  last_end_ = now;
  if (before == 0) return false;
  double took = std::max(0.0, static_cast<double>(now - before) - spent);
  ++steps_;
  if (steps_ <= kMemory) {  // the first ones make what later ones have: the shortest is the nearest
    step_ = steps_ == 1 ? took : std::min(took, step_);
    small_ = others;
  } else {
    step_ += (std::min(took, kLongest * step_) - step_) / kMemory;
    small_ += (others - small_) / kMemory;
  }
  if (!news_ && steps_ - divided_at_ < std::min(divided_at_, kMemory)) return false;
  news_ = false;
  divided_at_ = steps_;
  return Divide();
}

/// The largest part for which the sum over all of min(cost, part) is what there is.
bool LookBudget::Divide() {
  double left = share_ * step_;
  left = std::max(left - small_, kAtLeast * left);
  std::vector<double> costs;
  costs.reserve(large_.size());
  for (const auto& entry : large_) costs.push_back(entry.second.nanos);
  std::ranges::sort(costs);
  double part = 0;
  for (size_t i = 0; i < costs.size(); ++i) {
    part = left / static_cast<double>(costs.size() - i);
    if (costs[i] > part) break;
    left -= costs[i];
    part = costs.back();
  }
  bool changed = false;
  for (auto& entry : large_) {
    Large& large = entry.second;
    const double needs = large.nanos / std::max(part, 1e-3);
    const auto every = static_cast<double>(large.every);
    if (needs <= every && (large.every == 1 || needs > every / 4)) continue;  // near enough: it stays
    const double bounded = std::min(std::ceil(needs), static_cast<double>(kRarest));
    const auto wanted = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max(1.0, bounded))));
    changed |= wanted != large.every;
    large.every = wanted;
  }
  return changed;
}

auto LookBudget::rare() const -> std::vector<Rare> {
  std::vector<Rare> out;
  for (const auto& [id, large] : large_) {
    if (large.every > 1) out.push_back({id, large.every, large.nanos});
  }
  std::ranges::sort(
      out, [](const Rare& a, const Rare& b) { return a.nanos != b.nanos ? a.nanos > b.nanos : a.id < b.id; });
  return out;
}

}  // namespace tdbg::capture
