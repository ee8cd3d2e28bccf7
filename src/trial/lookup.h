// Finding a step's items in lists that are in step order.
#pragma once

#include <algorithm>
#include <utility>

#include "trial/access.h"

namespace tdbg {

/// Which of a step's values to return: the step's own, else the latest micro-step's, else one of a point.
/// `last_counts`: the latest of all (Trial::Impl::LastCounts).
inline int Preference(SubKey key, bool last_counts = false) {
  if (key == SubKey{}) return last_counts ? 0 : 1 << 20;
  return key.point == Point::kNone ? key.sub : -1;
}

template <typename Items, typename StepOf>
auto StepRange(const Items& items, int64_t step, StepOf step_of) {
  const auto first = std::lower_bound(items.begin(), items.end(), step,
                                      [&](const auto& item, int64_t s) { return step_of(item) < s; });
  auto last = first;
  while (last != items.end() && step_of(*last) == step) ++last;
  return std::pair(first, last);
}

}  // namespace tdbg
