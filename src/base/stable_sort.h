// std::stable_sort, without the temporary buffer of libstdc++ 12, which clang calls deprecated at every use:
// a page of warnings each, in which one that matters is not seen.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

namespace tdbg::base {

/// Items that are equal by `less` keep their order. Costs an index per item, and a move of each.
template <typename T, typename Less>
void StableSort(std::vector<T>* items, Less less) {
  std::vector<size_t> order(items->size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (less((*items)[a], (*items)[b])) return true;
    return !less((*items)[b], (*items)[a]) && a < b;
  });
  std::vector<T> sorted;
  sorted.reserve(items->size());
  for (const size_t i : order) sorted.push_back(std::move((*items)[i]));
  std::move(sorted.begin(), sorted.end(), items->begin());
}

}  // namespace tdbg::base
