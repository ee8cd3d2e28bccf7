#include "page/resolution.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <vector>

namespace tdbg::page {
namespace {

TEST(Resolution, EverythingOnceAlignedAndFineWhereItMatters) {
  for (const size_t positions : {1u, 7u, 64u, 1000u, 4097u, 1'000'000u}) {
    for (const std::vector<size_t>& focus :
         {std::vector<size_t>{}, {0}, {positions / 3, positions / 3 + 1, positions - 1}}) {
      const auto segments = SegmentsOf(positions, focus, 128, 16);
      size_t at = 0, buckets = 0;
      for (const Segment& segment : segments) {
        EXPECT_EQ(segment.begin, at);
        EXPECT_LT(segment.begin, segment.end);
        EXPECT_TRUE(std::has_single_bit(segment.width));
        EXPECT_EQ(segment.begin % segment.width, 0u);
        at = segment.end;
        buckets += segment.buckets();
      }
      EXPECT_EQ(at, positions);
      EXPECT_LE(buckets, 128 + focus.size() * 2 * 16 * (std::bit_width(positions) + 2));
      for (const size_t f : focus) {
        for (size_t step = f < 16 ? 0 : f - 16; step < std::min(f + 16, positions); ++step) {
          const auto* const home = &*std::ranges::find_if(
              segments, [&](const Segment& s) { return s.begin <= step && step < s.end; });
          EXPECT_EQ(home->width, 1u) << "step " << step << " near " << f;
        }
      }
    }
  }
}

TEST(Resolution, WithoutAFocusThereAreAtMostSoManyBuckets) {
  for (const size_t columns : {1u, 3u, 100u}) {
    size_t buckets = 0;
    for (const Segment& segment : SegmentsOf(12'345, {}, columns, 16)) buckets += segment.buckets();
    EXPECT_LE(buckets, columns);
    EXPECT_GT(2 * buckets + 1, columns / 2);
  }
}

}  // namespace
}  // namespace tdbg::page
