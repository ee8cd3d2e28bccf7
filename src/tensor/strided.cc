#include "tensor/strided.h"

#include <algorithm>
#include <cstring>

namespace tdbg {
namespace {

template <typename Word>
void CopyStrided(const std::byte* in, int64_t stride, int64_t n, std::byte* out) {
  const int64_t step = stride * static_cast<int64_t>(sizeof(Word));
  for (int64_t i = 0; i < n; ++i) {
    std::memcpy(out + i * static_cast<int64_t>(sizeof(Word)), in + i * step, sizeof(Word));
  }
}

struct Word16 {
  uint64_t half[2];
};

void CopyRun(const std::byte* in, int64_t stride, int64_t n, size_t item_size, std::byte* out) {
  if (stride == 1) {
    std::memcpy(out, in, static_cast<size_t>(n) * item_size);
    return;
  }
  switch (item_size) {
    case 1:
      return CopyStrided<uint8_t>(in, stride, n, out);
    case 2:
      return CopyStrided<uint16_t>(in, stride, n, out);
    case 4:
      return CopyStrided<uint32_t>(in, stride, n, out);
    case 8:
      return CopyStrided<uint64_t>(in, stride, n, out);
    case 16:
      return CopyStrided<Word16>(in, stride, n, out);
    default:
      break;
  }
}

// Walking a transposed matrix along its far stride touches one cache line per element and returns to
// the line only a row later, when it is gone. Tiles of 32 x 32 use each line while it is there.
template <typename Word>
void CopyTransposed(const std::byte* in, Axis rows, Axis columns, int64_t out_row_elements, std::byte* out) {
  constexpr int64_t kTile = 32;
  constexpr auto kSize = static_cast<int64_t>(sizeof(Word));
  for (int64_t r0 = 0; r0 < rows.length; r0 += kTile) {
    const int64_t r1 = std::min(rows.length, r0 + kTile);
    for (int64_t c0 = 0; c0 < columns.length; c0 += kTile) {
      const int64_t c1 = std::min(columns.length, c0 + kTile);
      for (int64_t r = r0; r < r1; ++r) {
        for (int64_t c = c0; c < c1; ++c) {
          std::memcpy(out + (r * out_row_elements + c) * kSize,
                      in + (r * rows.stride + c * columns.stride) * kSize, sizeof(Word));
        }
      }
    }
  }
}

void CopyPlane(const std::byte* in, Axis rows, Axis columns, int64_t out_row_elements, size_t item_size,
               std::byte* out) {
  switch (item_size) {
    case 1:
      return CopyTransposed<uint8_t>(in, rows, columns, out_row_elements, out);
    case 2:
      return CopyTransposed<uint16_t>(in, rows, columns, out_row_elements, out);
    case 4:
      return CopyTransposed<uint32_t>(in, rows, columns, out_row_elements, out);
    case 8:
      return CopyTransposed<uint64_t>(in, rows, columns, out_row_elements, out);
    case 16:
      return CopyTransposed<Word16>(in, rows, columns, out_row_elements, out);
    default:
      break;
  }
}

int64_t Magnitude(int64_t stride) { return stride < 0 ? -stride : stride; }

}  // namespace

void AxisList::push_back(Axis axis) {
  if (rest_.empty() && size_ < kFew) {
    few_[size_++] = axis;
    return;
  }
  if (rest_.empty()) rest_.assign(few_.begin(), few_.end());
  rest_.push_back(axis);
}

void AxisList::resize_down(size_t n) {
  if (rest_.empty()) {
    size_ = n;
  } else if (n > kFew) {
    rest_.resize(n);
  } else {
    std::copy_n(rest_.begin(), n, few_.begin());
    rest_.clear();
    size_ = n;
  }
}

AxisList CoalescedAxes(const TensorView& view) {
  AxisList axes;
  const bool c_order = view.strides.empty();
  int64_t dense_stride = 1;
  if (c_order) {
    // Without strides the whole tensor is one run, whatever its rank.
    for (const int64_t length : view.shape) dense_stride *= length;
    if (dense_stride > 1) axes.push_back({dense_stride, 1});
    return axes;
  }
  for (size_t i = 0; i < view.shape.size(); ++i) {
    const Axis axis{view.shape[i], view.strides[i]};
    if (axis.length == 1) continue;
    if (axes.size() > 0 && axes.back().stride == axis.stride * axis.length) {
      axes.back() = {axes.back().length * axis.length, axis.stride};
    } else {
      axes.push_back(axis);
    }
  }
  return axes;
}

int64_t UnorderedWalk::element_count() const {
  int64_t n = 1;
  for (size_t i = 0; i < axes.size(); ++i) n *= axes[i].length;
  return n;
}

UnorderedWalk MakeUnorderedWalk(const TensorView& view) {
  UnorderedWalk walk;
  walk.data = static_cast<const std::byte*>(view.data);
  AxisList given = CoalescedAxes(view);
  const auto item_size = static_cast<int64_t>(ItemSize(view.dtype));
  AxisList kept;
  for (size_t i = 0; i < given.size(); ++i) {
    Axis axis = given[i];
    if (axis.stride == 0) {
      walk.multiplicity *= axis.length;
      continue;
    }
    if (axis.stride < 0) {
      walk.data += axis.stride * (axis.length - 1) * item_size;
      axis.stride = -axis.stride;
    }
    // Insertion sort, largest stride first: ranks are small and usually sorted already.
    kept.push_back(axis);
    for (size_t j = kept.size() - 1; j > 0 && kept[j - 1].stride < kept[j].stride; --j) {
      std::swap(kept[j - 1], kept[j]);
    }
  }
  for (size_t i = 0; i < kept.size(); ++i) {
    const Axis axis = kept[i];
    if (walk.axes.size() > 0 && walk.axes.back().stride == axis.stride * axis.length) {
      walk.axes.back() = {walk.axes.back().length * axis.length, axis.stride};
    } else {
      walk.axes.push_back(axis);
    }
  }
  return walk;
}

RunReader::RunReader(const std::byte* data, const AxisList& axes, size_t item_size)
    : row_(data), axes_(axes), item_size_(item_size) {
  if (axes_.size() == 0) axes_.push_back({1, 1});
  outer_ = axes_.size() - 1;
  if (outer_ > few_.size()) many_.assign(outer_, 0);
}

void RunReader::NextRow() {
  const auto item = static_cast<int64_t>(item_size_);
  in_row_ = 0;
  int64_t* at = index();
  for (size_t i = outer_; i-- > 0;) {
    if (++at[i] < axes_[i].length) {
      row_ += axes_[i].stride * item;
      return;
    }
    row_ -= axes_[i].stride * (axes_[i].length - 1) * item;
    at[i] = 0;
  }
  done_ = true;
}

size_t RunReader::Read(std::byte* out, size_t max_elements) {
  const Axis inner = axes_.back();
  size_t written = 0;
  while (!done_ && written < max_elements) {
    const int64_t n = std::min(inner.length - in_row_, static_cast<int64_t>(max_elements - written));
    CopyRun(row_ + in_row_ * inner.stride * static_cast<int64_t>(item_size_), inner.stride, n, item_size_,
            out + written * item_size_);
    written += static_cast<size_t>(n);
    in_row_ += n;
    if (in_row_ == inner.length) NextRow();
  }
  return written;
}

bool TensorView::is_contiguous() const {
  if (strides.empty() || element_count() == 0) return true;
  int64_t expected = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] != 1 && strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

void CopyContiguous(const TensorView& view, std::byte* out) {
  if (view.element_count() == 0) return;
  const size_t item_size = ItemSize(view.dtype);
  const AxisList axes = CoalescedAxes(view);
  const auto* data = static_cast<const std::byte*>(view.data);
  const size_t rank = axes.size();

  size_t near = rank;  // the axis that walks memory most closely
  for (size_t i = 0; i < rank; ++i) {
    if (axes[i].stride != 0 && (near == rank || Magnitude(axes[i].stride) <= Magnitude(axes[near].stride))) {
      near = i;
    }
  }
  const bool transposed = rank >= 2 && near + 1 < rank && Magnitude(axes[rank - 1].stride) > 1;
  if (!transposed) {
    RunReader reader(data, axes, item_size);
    reader.Read(out, static_cast<size_t>(view.element_count()));
    return;
  }

  const auto item = static_cast<int64_t>(item_size);
  const Axis columns = axes[rank - 1];
  int64_t out_row_elements = 1;
  for (size_t i = near + 1; i < rank; ++i) out_row_elements *= axes[i].length;
  std::vector<int64_t> out_stride(rank, 1);
  for (size_t i = rank - 1; i-- > 0;) out_stride[i] = out_stride[i + 1] * axes[i + 1].length;
  std::vector<int64_t> index(rank, 0);
  int64_t in_offset = 0;
  int64_t out_offset = 0;
  while (true) {
    CopyPlane(data + in_offset * item, axes[near], columns, out_row_elements, item_size,
              out + out_offset * item);
    size_t i = rank - 1;
    while (i-- > 0) {
      if (i == near) continue;
      if (++index[i] < axes[i].length) {
        in_offset += axes[i].stride;
        out_offset += out_stride[i];
        break;
      }
      in_offset -= axes[i].stride * (axes[i].length - 1);
      out_offset -= out_stride[i] * (axes[i].length - 1);
      index[i] = 0;
    }
    if (i == static_cast<size_t>(-1)) return;
  }
}

}  // namespace tdbg
