// Per-tensor lists in step order that survive the move of rows from the journal into segments.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace tdbg::store {

/// How much of the worker's data a list contains so far.
struct IndexProgress {
  size_t segments = 0, live = 0;
  size_t live_commits = 0;  ///< of those live batches
  uint64_t resealed = 0;
};

/// One list per tensor, built when the tensor is first asked for. Its prefix comes from segments and never
/// changes; its tail comes from the journal, and is cut off and rebuilt whenever a segment takes over those
/// rows.
template <typename T>
struct TensorLists {
  struct List {
    std::vector<T> items;
    size_t sealed = 0;
    IndexProgress progress;

    void CutTail() { items.resize(sealed); }
    /// Declares all current items to be the prefix.
    void Seal() { sealed = items.size(); }
  };
  List& Of(size_t tensor) {
    if (tensor >= lists.size()) lists.resize(tensor + 1);
    return lists[tensor];
  }
  std::vector<List> lists;
};

/// Items of a batch by tensor, ascending.
class ByTensor {
 public:
  /// `tensor_of(i)` for i < `items`. Does nothing the second time.
  template <typename TensorOf>
  void Build(size_t items, TensorOf tensor_of) {
    if (built_) return;
    built_ = true;
    order_.resize(items);
    std::iota(order_.begin(), order_.end(), 0);
    std::sort(order_.begin(), order_.end(), [&](uint32_t a, uint32_t b) {
      return std::pair(tensor_of(a), a) < std::pair(tensor_of(b), b);
    });
    for (uint32_t at = 0; at < items; ++at) {
      const uint32_t tensor = tensor_of(order_[at]);
      if (tensors_.empty() || tensors_.back() != tensor) {
        tensors_.push_back(tensor);
        begins_.push_back(at);
      }
    }
    begins_.push_back(static_cast<uint32_t>(items));
  }
  std::span<const uint32_t> Of(uint32_t tensor) const {
    const auto at = std::lower_bound(tensors_.begin(), tensors_.end(), tensor);
    if (at == tensors_.end() || *at != tensor) return {};
    const auto i = static_cast<size_t>(at - tensors_.begin());
    return std::span(order_).subspan(begins_[i], begins_[i + 1] - begins_[i]);
  }

 private:
  bool built_ = false;
  std::vector<uint32_t> order_, tensors_, begins_;
};

}  // namespace tdbg::store
