// Partials as one: chunks of a large tensor in groups, as soon as a group is complete, and what then is left by `deliver`.
#pragma once

#include "cuda/device/block.cuh"

namespace tdbg::cuda {
namespace device {

/// Chunks of a group. One block, `deliver`'s, takes a tensor's partials: of 1 G elements there are 17,000, too many to be
/// read and merged by it alone. So of a tensor that has more than this, the block that is the last of its group to come
/// merges the group's, into the place of the first.
inline constexpr uint32_t kGroup = kThreads;

struct Merged {
  Moments moments;  ///< in units of 2^exponent
  double min, max, abs_min, abs_max;
  double nan, pos_inf, neg_inf, zero, redone;  ///< whole numbers below 2^53
  int32_t exponent;
};

struct MergeShared {
  Moments moments[kWarps];
  double extremes[kWarps][4];
  double counts[kWarps][5];
  Merged merged;
};

TDBG_DEVICE double ShuffleDown(double x, int o) { return TDBG_SHUFFLE_DOWN(x, o); }
TDBG_DEVICE Moments ShuffleDown(const Moments& m, int o) {
  return {ShuffleDown(m.n, o),  ShuffleDown(m.mean, o), ShuffleDown(m.m2, o),
          ShuffleDown(m.m3, o), ShuffleDown(m.m4, o),   ShuffleDown(m.l1, o)};
}

/// A partial's moments in units of 2^exponent.
TDBG_DEVICE Moments MomentsOf(const Partial& p, int exponent) {
  const int e = p.exponent - exponent;
  Moments m = {static_cast<double>(p.finite), p.mean, p.m2, p.m3, p.m4, p.l1};
  if (e != 0) {
    m.mean = Scale(m.mean, e);
    m.m2 = Scale(m.m2, 2 * e);
    m.m3 = Scale(m.m3, 3 * e);
    m.m4 = Scale(m.m4, 4 * e);
    m.l1 = Scale(m.l1, e);
  }
  return m;
}

/// Every `stride`-th of `count` partials as one, in s.merged, for thread 0. Thread t takes every 256th of them from t on, then
/// threads of a warp and warps of the block merge pairwise, neighbours last.
TDBG_SHARED_CODE void MergePartials(const Partial* partials, uint32_t count, uint32_t stride, MergeShared& s) {
  const uint32_t tid = threadIdx.x, warp = tid >> 5, lane = tid & 31;
  double min = WideInfinity(), max = -WideInfinity(), abs_min = WideInfinity(), abs_max = 0;
  double nan = 0, pos_inf = 0, neg_inf = 0, zero = 0, redone = 0;  // a double adds such numbers exactly, in any order
  TDBG_NO_UNROLL
  for (uint32_t c = tid; c < count; c += kThreads) {
    const Partial& p = partials[c * stride];
    nan += p.nan;
    pos_inf += p.pos_inf;
    neg_inf += p.neg_inf;
    zero += p.zero;
    redone += p.redone;
    if (p.finite == 0) continue;
    min = fmin(min, p.min);
    max = fmax(max, p.max);
    abs_min = fmin(abs_min, p.abs_min);
    abs_max = fmax(abs_max, p.abs_max);
  }
  const double extremes[4] = {WarpMin(min), -WarpMin(-max), WarpMin(abs_min), -WarpMin(-abs_max)};
  const double counts[5] = {WarpSum(nan), WarpSum(pos_inf), WarpSum(neg_inf), WarpSum(zero), WarpSum(redone)};
  if (lane == 0) {
    for (int i = 0; i < 4; ++i) s.extremes[warp][i] = extremes[i];
    for (int i = 0; i < 5; ++i) s.counts[warp][i] = counts[i];
  }
  __syncthreads();
  double largest = 0;
  TDBG_NO_UNROLL
  for (uint32_t w = 0; w < kWarps; ++w) largest = fmax(largest, s.extremes[w][3]);
  const int exponent = UnitFor(largest);  // one for all
  Moments m = {0, 0, 0, 0, 0, 0};
  TDBG_NO_UNROLL
  for (uint32_t c = tid; c < count; c += kThreads) m = Merge(m, MomentsOf(partials[c * stride], exponent));
  TDBG_NO_UNROLL
  for (int o = 16; o > 0; o >>= 1) {
    const Moments other = ShuffleDown(m, o);
    if (lane + o < 32) m = Merge(m, other);
  }
  if (lane == 0) s.moments[warp] = m;
  __syncthreads();
  if (warp != 0) return;
  m = s.moments[lane % kWarps];
  TDBG_NO_UNROLL
  for (int o = kWarps / 2; o > 0; o >>= 1) {
    const Moments other = ShuffleDown(m, o);
    if (lane + o < kWarps) m = Merge(m, other);
  }
  if (lane != 0) return;
  Merged r = {};
  r.moments = m;
  r.exponent = exponent;
  r.min = WideInfinity();
  r.max = -WideInfinity();
  r.abs_min = WideInfinity();
  r.abs_max = largest;
  TDBG_NO_UNROLL
  for (uint32_t w = 0; w < kWarps; ++w) {
    r.min = fmin(r.min, s.extremes[w][0]);
    r.max = fmax(r.max, s.extremes[w][1]);
    r.abs_min = fmin(r.abs_min, s.extremes[w][2]);
    r.nan += s.counts[w][0];
    r.pos_inf += s.counts[w][1];
    r.neg_inf += s.counts[w][2];
    r.zero += s.counts[w][3];
    r.redone += s.counts[w][4];
  }
  s.merged = r;
}

/// All but `arrived`, which other blocks count.
TDBG_DEVICE void Store(Partial* to, const Partial& p) {
  to->mean = p.mean;
  to->m2 = p.m2;
  to->m3 = p.m3;
  to->m4 = p.m4;
  to->l1 = p.l1;
  to->min = p.min;
  to->max = p.max;
  to->abs_min = p.abs_min;
  to->abs_max = p.abs_max;
  to->finite = p.finite;
  to->nan = p.nan;
  to->pos_inf = p.pos_inf;
  to->neg_inf = p.neg_inf;
  to->zero = p.zero;
  to->exponent = p.exponent;
  to->redone = p.redone;
  to->present = p.present;
}

/// The `size` partials of a group, which are all there, as one in the place of the first.
TDBG_SHARED_CODE void MergeGroup(Partial* group, uint32_t size, MergeShared& s) {
  MergePartials(group, size, 1, s);
  if (threadIdx.x != 0) return;
  const Merged& m = s.merged;
  Partial p = {};
  p.mean = m.moments.mean;
  p.m2 = m.moments.m2;
  p.m3 = m.moments.m3;
  p.m4 = m.moments.m4;
  p.l1 = m.moments.l1;
  p.min = m.min;
  p.max = m.max;
  p.abs_min = m.abs_min;
  p.abs_max = m.abs_max;
  p.finite = static_cast<uint32_t>(m.moments.n);
  p.nan = static_cast<uint32_t>(m.nan);
  p.pos_inf = static_cast<uint32_t>(m.pos_inf);
  p.neg_inf = static_cast<uint32_t>(m.neg_inf);
  p.zero = static_cast<uint32_t>(m.zero);
  p.exponent = static_cast<int16_t>(m.exponent);
  p.redone = static_cast<uint16_t>(m.redone);
  p.present = 1;
  *group = p;  // `arrived` is 0 again
}

}  // namespace device
}  // namespace tdbg::cuda
