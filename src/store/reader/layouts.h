// The layouts of segments' indexes, each held once however many steps and segments have it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "format/segment_index.h"

namespace tdbg::store {

/// Which tensor each row of a commit belongs to, in order. Immutable.
class Layout {
 public:
  explicit Layout(std::vector<format::IndexRow> rows);
  std::span<const format::IndexRow> rows() const { return rows_; }  ///< tensor: the reader's id
  /// Places of one tensor, ascending.
  std::span<const uint32_t> Of(uint32_t tensor) const;

 private:
  std::vector<format::IndexRow> rows_;
  std::vector<uint32_t> order_;  // places by tensor, then ascending
};

/// \threadsafety One thread.
class LayoutPool {
 public:
  std::shared_ptr<const Layout> Get(std::span<const format::IndexRow> rows);

 private:
  std::unordered_multimap<uint64_t, std::shared_ptr<const Layout>> by_hash_;
};

}  // namespace tdbg::store
