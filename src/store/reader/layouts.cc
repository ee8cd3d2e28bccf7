#include "store/reader/layouts.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/hash.h"

namespace tdbg::store {

Layout::Layout(std::vector<format::IndexRow> rows) : rows_(std::move(rows)), order_(rows_.size()) {
  std::iota(order_.begin(), order_.end(), 0);
  const auto before = [this](uint32_t a, uint32_t b) {
    return std::pair(rows_[a].tensor, a) < std::pair(rows_[b].tensor, b);
  };
  if (!std::is_sorted(order_.begin(), order_.end(), before)) std::sort(order_.begin(), order_.end(), before);
}

std::span<const uint32_t> Layout::Of(uint32_t tensor) const {
  const auto first = std::partition_point(order_.begin(), order_.end(),
                                          [&](uint32_t place) { return rows_[place].tensor < tensor; });
  auto last = first;
  while (last != order_.end() && rows_[*last].tensor == tensor) ++last;
  return {first, last};
}

std::shared_ptr<const Layout> LayoutPool::Get(std::span<const format::IndexRow> rows) {
  const uint64_t hash = base::Hash64(std::as_bytes(rows));
  const auto [first, last] = by_hash_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    if (std::equal(rows.begin(), rows.end(), it->second->rows().begin(), it->second->rows().end()))
      return it->second;
  }
  auto layout = std::make_shared<const Layout>(std::vector(rows.begin(), rows.end()));
  by_hash_.emplace(hash, layout);
  return layout;
}

}  // namespace tdbg::store
