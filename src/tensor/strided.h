// Walking strided tensors: a view reduced to as few axes as describe it, and a reader of runs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tdbg/tensor.h"

namespace tdbg {

/// One axis of a walk. \pre length >= 1
struct Axis {
  int64_t length = 1;
  int64_t stride = 0;  ///< in elements
};

/// The axes of a view, few enough in practice to live without allocation.
class AxisList {
 public:
  size_t size() const { return rest_.empty() ? size_ : rest_.size(); }
  Axis& operator[](size_t i) { return rest_.empty() ? few_[i] : rest_[i]; }
  const Axis& operator[](size_t i) const { return rest_.empty() ? few_[i] : rest_[i]; }
  Axis& back() { return (*this)[size() - 1]; }
  void push_back(Axis axis);
  void resize_down(size_t n);

 private:
  static constexpr size_t kFew = 8;
  std::array<Axis, kFew> few_;
  size_t size_ = 0;
  std::vector<Axis> rest_;  ///< takes over all axes once there are more than kFew
};

/// \pre view.element_count() > 0.
/// Axes outermost first; length-1 axes dropped, neighbours merged where one stride walks both.
AxisList CoalescedAxes(const TensorView& view);

/// The same elements in whatever order reads memory best, for callers to whom order is nothing.
struct UnorderedWalk {
  const std::byte* data = nullptr;  ///< the lowest address that is read
  int64_t multiplicity = 1;         ///< how often each element counts: the product of stride-0 axes
  AxisList axes;                    ///< descending strides, all positive; empty: one element
  bool contiguous() const { return axes.size() == 0 || (axes.size() == 1 && axes[0].stride == 1); }
  int64_t element_count() const;  ///< without multiplicity
};
/// \pre view.element_count() > 0
UnorderedWalk MakeUnorderedWalk(const TensorView& view);

/// Copies the next elements of a walk to a dense buffer, call by call.
///
/// Ownership: borrows the memory of the walk; copies its axes.
class RunReader {
 public:
  RunReader(const std::byte* data, const AxisList& axes, size_t item_size);
  /// \return elements written, at most `max_elements`; 0 at the end.
  size_t Read(std::byte* out, size_t max_elements);

 private:
  void NextRow();
  int64_t* index() { return many_.empty() ? few_.data() : many_.data(); }

  const std::byte* row_;
  AxisList axes_;
  size_t item_size_;
  size_t outer_ = 0;                 ///< axes but the innermost
  std::array<int64_t, 8> few_ = {};  ///< where we are on them
  std::vector<int64_t> many_;        ///< instead, if there are more
  int64_t in_row_ = 0;
  bool done_ = false;
};

}  // namespace tdbg
