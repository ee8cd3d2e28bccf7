// The step's end: chunks become rows, bins become buckets, and all of it is written where the host can read it.
#pragma once

#include "cuda/device/merge.cuh"

namespace tdbg::cuda {
namespace device {

struct DeliverShared {
  uint32_t group[(kWideBins.padded / 32 + 31) / 32 * 32];  ///< buckets in each 32 bins; then where the first of them goes
  MergeShared merge;
  uint32_t total, first;
  Row row;
};

/// All of a tensor's partials as one, in shared.row.
TDBG_DEVICE void MergeTensor(const Partial* partials, uint32_t chunks, DeliverShared& s) {
  if (chunks > kGroup) {
    MergePartials(partials, (chunks + kGroup - 1) / kGroup, kGroup, s.merge);  // groups have been merged
  } else {
    MergePartials(partials, chunks, 1, s.merge);
  }
  if (threadIdx.x != 0) return;
  const Merged& all = s.merge.merged;
  const Moments& m = all.moments;
  const int exponent = all.exponent;
  Row& r = s.row;
  r.nan_count = static_cast<uint64_t>(all.nan);
  r.pos_inf_count = static_cast<uint64_t>(all.pos_inf);
  r.neg_inf_count = static_cast<uint64_t>(all.neg_inf);
  r.zero_count = static_cast<uint64_t>(all.zero);
  r.redone_chunks = static_cast<uint32_t>(all.redone);
  if (m.n == 0) {
    r.min = r.max = r.mean = r.variance = r.m3 = r.m4 = r.l1 = r.l2 = r.abs_min = r.abs_max = NotANumber();
    return;
  }
  r.min = all.min + 0.0;  // a zero is +0
  r.max = all.max + 0.0;
  r.abs_min = all.abs_min;
  r.abs_max = all.abs_max;
  const double variance = m.m2 / m.n;
  r.mean = Scale(m.mean, exponent);
  r.variance = Scale(variance, 2 * exponent);
  r.m3 = Scale(m.m3 / m.n, 3 * exponent);
  r.m4 = Scale(m.m4 / m.n, 4 * exponent);
  r.l1 = Scale(m.l1, exponent);
  // No sum of squares is kept: n (variance + mean^2) is one, and its two terms cannot cancel.
  r.l2 = Scale(sqrt(m.n) * sqrt(variance + m.mean * m.mean), exponent);
}

/// Writes a tensor's buckets in ascending order, and empties its bins for the next step.
TDBG_DEVICE void PackBuckets(const Plan& plan, const Tensor& tensor, Bucket* buckets, DeliverShared& s) {
  const uint32_t tid = threadIdx.x, warp = tid >> 5, lane = tid & 31;
  const Bins bins = BinsOf(tensor.code);
  uint32_t* const masks = plan.tables + tensor.table;
  uint32_t* const counts = masks + bins.masks;
  const uint32_t groups = bins.padded / 32;
  TDBG_NO_UNROLL
  for (uint32_t g = warp; g < groups; g += kWarps) {
    const bool some = (masks[g >> 5] >> (g & 31u) & 1u) != 0;  // the same for the warp
    const uint32_t yes = some ? Ballot(counts[g * 32 + lane] != 0) : 0;
    if (lane == 0) s.group[g] = PopulationCount(yes);
  }
  __syncthreads();
  if (warp == 0) {
    uint32_t total = 0;
    TDBG_NO_UNROLL
    for (uint32_t g = lane; g < (groups + 31) / 32 * 32; g += 32) {
      const uint32_t n = g < groups ? s.group[g] : 0;
      uint32_t up_to = n;
      for (int o = 1; o < 32; o <<= 1) {
        const uint32_t y = TDBG_SHUFFLE_UP(up_to, o);
        if (lane >= static_cast<uint32_t>(o)) up_to += y;
      }
      s.group[g] = total + up_to - n;
      total += TDBG_SHUFFLE(up_to, 31);
    }
    if (lane == 0) {
      s.total = total;
      s.first = total != 0 ? atomicAdd(&plan.state->buckets, total) : 0;
    }
  }
  __syncthreads();
  const uint32_t first = s.first, total = s.total;
  const bool fits = first <= plan.bucket_capacity && total <= plan.bucket_capacity - first;
  TDBG_NO_UNROLL
  for (uint32_t g = warp; g < groups; g += kWarps) {
    if ((masks[g >> 5] >> (g & 31u) & 1u) == 0) continue;
    const uint32_t bin = g * 32 + lane, n = counts[bin];
    const uint32_t before = Ballot(n != 0) & ((1u << lane) - 1u);
    if (n == 0) continue;
    if (fits) buckets[first + s.group[g] + PopulationCount(before)] = {bins.bucket_of(bin), n};
    counts[bin] = 0;
  }
  __syncthreads();
  if (tid < bins.masks) masks[tid] = 0;
  if (tid == 0) {
    s.row.first_bucket = first;
    s.row.bucket_count = total;
    if (!fits) s.row.flags |= kBucketsLost;
  }
}

/// Adds up the parts of derived statistics, in the order of their slices; all blocks share the units.
TDBG_DEVICE void DeliverDerived(const Plan& plan, double* results) {
  for (uint32_t i = 0; i < plan.derived_count; ++i) {
    const Derived& d = plan.derived[i];
    const double* const parts = plan.parts + d.first_part;
    const uint64_t step = static_cast<uint64_t>(gridDim.x) * kThreads;
    for (uint64_t u = static_cast<uint64_t>(blockIdx.x) * kThreads + threadIdx.x; u < d.units; u += step) {
      double sum = 0;
      TDBG_NO_UNROLL
      for (uint32_t slice = 0; slice < d.slices; ++slice) sum += parts[slice * d.units + u];
      results[d.result + u] = sum;
    }
  }
}

TDBG_DEVICE void Deliver(const Plan& plan, uint64_t tag, DeliverShared& s) {
  const uint32_t tid = threadIdx.x, t = blockIdx.x;
  const uint64_t sequence = *static_cast<volatile uint64_t*>(&plan.state->delivered) + 1;
  unsigned char* const slot = plan.ring + (sequence - 1) % plan.slots * plan.slot_bytes;
  if (t < plan.tensor_count) {
    const Tensor tensor = plan.tensors[t];
    const Partial* const partials = plan.partials + tensor.first_partial;
    const bool present = partials[0].present != 0;
    if (tid == 0) {
      s.row = Row{};
      s.row.flags = present ? uint32_t{kPresent} : 0;
      s.row.count = present ? tensor.n : 0;
    }
    __syncthreads();
    if (present && (tensor.flags & kStatistics) != 0) MergeTensor(partials, tensor.chunks, s);
    if (present && (tensor.flags & kHistogram) != 0) {
      auto* buckets = reinterpret_cast<Bucket*>(slot + BucketsAt(plan.tensor_count, plan.derived_values, plan.value_bytes));
      PackBuckets(plan, tensor, buckets, s);
    }
    __syncthreads();
    const auto* from = reinterpret_cast<const uint64_t*>(&s.row);
    auto* to = reinterpret_cast<uint64_t*>(slot + RowsAt() + t * sizeof(Row));
    static_assert(sizeof(Row) % 8 == 0 && sizeof(Row) / 8 <= kThreads);
    if (tid < sizeof(Row) / 8) to[tid] = from[tid];
    if (present && (tensor.flags & kValues) != 0 && tid < tensor.n * ItemBytes(tensor.code)) {
      slot[ValuesAt(plan.tensor_count, plan.derived_values) + tensor.values + tid] = plan.values[tensor.values + tid];
    }
  }
  if (plan.derived_count != 0) DeliverDerived(plan, reinterpret_cast<double*>(slot + DerivedAt(plan.tensor_count)));
  __syncthreads();
  if (tid != 0) return;
  // What this block's other threads have written is behind the barrier, hence before the fence; and what the blocks
  // have that were counted earlier, before ours.
  __threadfence_system();
  if (atomicAdd(&plan.state->arrived, 1u) != gridDim.x - 1) return;
  __threadfence_system();
  auto* const header = reinterpret_cast<SlotHeader*>(slot);
  header->begun = sequence;
  header->tag = tag;
  header->clock = Clock();
  header->version = kAbiVersion;
  header->tensors = plan.tensor_count;
  header->buckets = atomicAdd(&plan.state->buckets, 0u);
  plan.state->buckets = 0;
  plan.state->arrived = 0;
  *static_cast<volatile uint64_t*>(&plan.state->delivered) = sequence;
  __threadfence_system();
  StoreRelease(&header->sequence, sequence);
}

TDBG_DEVICE void Reset(const Plan& plan) {
  const uint64_t step = static_cast<uint64_t>(gridDim.x) * kThreads;
  for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * kThreads + threadIdx.x; i < plan.table_words; i += step) {
    plan.tables[i] = 0;
  }
  for (uint32_t i = blockIdx.x; i < plan.tensor_count; i += gridDim.x) {
    Partial* const partials = plan.partials + plan.tensors[i].first_partial;
    for (uint32_t c = threadIdx.x * kGroup; c < plan.tensors[i].chunks; c += kThreads * kGroup) partials[c].arrived = 0;
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    plan.state->buckets = 0;
    plan.state->arrived = 0;
  }
}

}  // namespace device
}  // namespace tdbg::cuda
