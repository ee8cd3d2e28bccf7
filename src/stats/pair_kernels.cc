// Emptying the counters of pairs (counters.h): half a megabyte, for each large tensor once.
#include "stats/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stats/pair_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tdbg::stats::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DU32 = hn::ScalableTag<uint32_t>;

void TakePairsKernel(PairCounter::Cell (*tables)[PairCounter::kIndices], const int* used, int groups,
                     uint64_t* counts) {
  constexpr int kIds = PairCounter::kIds;
  constexpr int kGroup = PairCounter::kGroup;
  constexpr int kVectors = kGroup / static_cast<int>(hn::MaxLanes(DU32()));
  const DU32 d;
  HWY_ALIGN uint32_t low[kIds] = {};
  for (int i = 0; i < groups * kGroup; ++i) {
    const int high = used[i / kGroup] * kGroup + i % kGroup;
    hn::Vec<DU32> sum = hn::Zero(d);
    for (int group = 0; group < groups; ++group) {
      const int id = used[group] * kGroup;
      const int from = high * kIds + (id ^ (high & 15) << 4);
      hn::Vec<DU32> both[kVectors];
      hn::Vec<DU32> any = hn::Zero(d);
      for (int v = 0; v < kVectors; ++v) {
        const size_t at = static_cast<size_t>(from) + static_cast<size_t>(v) * hn::Lanes(d);
        both[v] = hn::Add(hn::LoadU(d, tables[0] + at), hn::LoadU(d, tables[1] + at));
        any = hn::Or(any, both[v]);
      }
      if (hn::AllTrue(d, hn::Eq(any, hn::Zero(d)))) continue;  // most
      for (int v = 0; v < kVectors; ++v) {
        const size_t in_group = static_cast<size_t>(v) * hn::Lanes(d);
        uint32_t* const at = low + static_cast<size_t>(id) + in_group;
        hn::Store(hn::Add(hn::Load(d, at), both[v]), d, at);
        sum = hn::Add(sum, both[v]);
        for (int t = 0; t < 2; ++t)
          hn::StoreU(hn::Zero(d), d, tables[t] + static_cast<size_t>(from) + in_group);
      }
    }
    counts[high] += hn::GetLane(hn::SumOfLanes(d, sum));
  }
  for (int id = 0; id < kIds; ++id) counts[id] += low[id];
}

}  // namespace tdbg::stats::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tdbg::stats {

HWY_EXPORT(TakePairsKernel);

void TakePairs(PairCounter::Cell (*tables)[PairCounter::kIndices], const int* used, int groups,
               uint64_t* counts) {
  HWY_DYNAMIC_DISPATCH(TakePairsKernel)(tables, used, groups, counts);
}

}  // namespace tdbg::stats
#endif
