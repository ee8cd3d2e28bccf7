// Per-tensor lists in step order that survive the move of rows from the journal into segments.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace tdbg::store {

/// One list per tensor: a prefix that came from segments and never changes, then a tail that came from the
/// journal and is cut off and rebuilt whenever a segment takes its place.
template <typename T>
class SealedTailIndex {
 public:
  std::span<const T> Of(size_t tensor) const {
    return tensor < lists_.size() ? std::span<const T>(lists_[tensor].items) : std::span<const T>();
  }
  void Append(size_t tensor, T item) {
    if (tensor >= lists_.size()) lists_.resize(tensor + 1);
    lists_[tensor].items.push_back(item);
  }
  /// Room for `extra` more, growing at least by half so that many small batches stay linear.
  void Reserve(size_t tensor, size_t extra) {
    if (tensor >= lists_.size()) lists_.resize(tensor + 1);
    std::vector<T>& items = lists_[tensor].items;
    const size_t needed = items.size() + extra;
    if (needed > items.capacity()) items.reserve(needed + items.size() / 2);
  }
  void CutTail() {
    for (List& list : lists_) list.items.resize(list.sealed);
  }
  /// What is there now is the prefix.
  void Seal() {
    for (List& list : lists_) list.sealed = list.items.size();
  }

 private:
  struct List {
    std::vector<T> items;
    size_t sealed = 0;
  };
  std::vector<List> lists_;
};

}  // namespace tdbg::store
