#include "page/resolution.h"

#include <algorithm>

namespace tdbg::page {
namespace {

struct Splitter {
  size_t positions, around;
  std::span<const size_t> focus;
  std::vector<Segment> out;

  bool IsNear(size_t begin, size_t width) const {
    return std::ranges::any_of(focus, [&](size_t at) {
      const size_t apart = at < begin ? begin - at : at >= begin + width ? at - (begin + width - 1) : 0;
      return apart < around * width;
    });
  }
  void Take(size_t begin, size_t width) {
    if (begin >= positions) return;
    if (width > 1 && IsNear(begin, width)) {
      Take(begin, width / 2);
      Take(begin + width / 2, width / 2);
      return;
    }
    const size_t end = std::min(begin + width, positions);
    if (!out.empty() && out.back().width == width)
      out.back().end = end;
    else
      out.push_back({begin, end, width});
  }
};

}  // namespace

std::vector<Segment> SegmentsOf(size_t positions, std::span<const size_t> focus, size_t columns,
                                size_t around) {
  size_t width = 1;
  while ((positions + width - 1) / width > std::max<size_t>(columns, 1)) width *= 2;
  Splitter splitter{positions, around, focus, {}};
  for (size_t begin = 0; begin < positions; begin += width) splitter.Take(begin, width);
  return std::move(splitter.out);
}

}  // namespace tdbg::page
