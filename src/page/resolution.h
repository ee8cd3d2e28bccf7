// Which steps a report keeps one by one, and which it keeps in buckets.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace tdbg::page {

/// Step positions [begin, end) in buckets of `width`, a power of two of which `begin` is a multiple: a matrix
/// that is asked for these steps has these buckets.
struct Segment {
  size_t begin = 0, end = 0, width = 1;
  size_t buckets() const { return (end - begin + width - 1) / width; }
};

/// All `positions`, in order and once, in at most some `columns` buckets but for those near a focus: a bucket
/// is halved while a focus is nearer to it than `around` times its width. So the 2 x `around` steps next to
/// one stand alone, and what lies twice as far is half as fine.
std::vector<Segment> SegmentsOf(size_t positions, std::span<const size_t> focus, size_t columns,
                                size_t around);

}  // namespace tdbg::page
