// Derived statistics: a number per unit, over pieces of the tensor whose parts `deliver` adds up.
#pragma once

#include "cuda/device/block.cuh"

namespace tdbg::cuda {
namespace device {

TDBG_DEVICE void Accumulate(const Derived& d, const Tile& tile, const unsigned char* data, uint32_t code, double* parts) {
  const auto inner_slices = static_cast<uint32_t>((d.inner + d.inner_a_slice - 1) / d.inner_a_slice);
  const uint64_t first_outer = static_cast<uint64_t>(tile.slice / inner_slices) * d.outer_a_slice;
  const uint64_t first_inner = static_cast<uint64_t>(tile.slice % inner_slices) * d.inner_a_slice;
  const uint64_t outer_rest = d.outer - first_outer, inner_rest = d.inner - first_inner;
  const uint64_t end_outer = first_outer + (outer_rest < d.outer_a_slice ? outer_rest : d.outer_a_slice);
  const uint64_t end_inner = first_inner + (inner_rest < d.inner_a_slice ? inner_rest : d.inner_a_slice);
  const bool warp_a_unit = d.units_a_block == kWarps;
  const uint32_t lane = threadIdx.x & 31;
  const uint64_t unit = tile.first_unit + (warp_a_unit ? threadIdx.x >> 5 : threadIdx.x);
  const uint32_t step = warp_a_unit ? 32 : 1;
  double sum = 0;
  if (unit < d.units) {
    TDBG_NO_UNROLL
    for (uint64_t o = first_outer; o < end_outer; ++o) {
      const uint64_t row = (o * d.units + unit) * d.inner;
      TDBG_NO_UNROLL
      for (uint64_t i = first_inner + (warp_a_unit ? lane : 0); i < end_inner; i += step) {
        const double x = NumberAt<true>(data, code, row + i);
        sum += d.kind == kSums ? x : d.above < x && x <= d.at_most ? 1.0 : 0.0;
      }
    }
  }
  if (warp_a_unit) sum = WarpSum(sum);
  if (unit < d.units && (!warp_a_unit || lane == 0)) parts[tile.slice * d.units + unit] = sum;
}

TDBG_DEVICE void Derive(const Pointers& pointers, const Plan& plan, const Launch& launch) {
  const Tile tile = plan.tiles[launch.first_block + blockIdx.x];
  const Derived d = plan.derived[tile.derived];
  const uint32_t code = plan.tensors[d.tensor].code;
  const void* const data = pointers.p[d.tensor - launch.first_tensor];
  double* const parts = plan.parts + d.first_part;
  if (data == nullptr || d.outer * d.units * d.inner == 0) {
    for (uint32_t i = threadIdx.x; i < d.units_a_block; i += kThreads) {
      if (tile.first_unit + i < d.units) parts[tile.slice * d.units + tile.first_unit + i] = 0;
    }
    return;
  }
  Accumulate(d, tile, static_cast<const unsigned char*>(data), code, parts);
}

}  // namespace device
}  // namespace tdbg::cuda
