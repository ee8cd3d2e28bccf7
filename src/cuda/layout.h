// Where everything of a plan lies, on the device and in a slot, and which launches make a step of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cuda/abi.h"
#include "tdbg/statistic.h"
#include "tdbg/status.h"
#include "tdbg/tensor.h"

namespace tdbg::cuda {

/// A tensor as the host knows it: dense in memory, in any order of its axes.
struct TensorSpec {
  uint64_t elements = 0;
  DType dtype = DType::kInvalid;
  uint32_t flags = kStatistics;  ///< TensorFlag
};

/// A derived statistic of tensor `tensor`, which lies in memory as [outer, units, inner].
struct DerivedSpec {
  uint32_t tensor = 0;
  uint64_t outer = 1, units = 1, inner = 1;
  Statistic statistic = {};
};

/// One kernel of a step: what cuLaunchKernel is given. Its first argument has the pointers of `pointers`
/// tensors from launch.first_tensor on.
struct KernelLaunch {
  const char* kernel = nullptr;
  uint32_t grid = 0;
  uint32_t pointers = 0;
  Launch launch = {};
};

/// One plan's memory: `constants`, to be uploaded once, and behind them zeroed memory, in one piece on the
/// device; and a ring of slots in mapped host memory, zeroed.
struct Layout {
  std::vector<std::byte> constants;
  uint64_t device_bytes = 0;  ///< all, `constants` among them; aligned to 256
  uint64_t ring_bytes = 0;
  /// In this order, then kDeliver with a grid of deliver_grid().
  std::vector<KernelLaunch> launches;
  std::vector<Tensor> tensors;  ///< Tensor::values: where kValues are
  std::vector<uint32_t>
      derived;     ///< per DerivedSpec: index of its first double among a slot's derived values
  Plan plan = {};  ///< its addresses are offsets until At()

  uint32_t deliver_grid() const { return plan.tensor_count == 0 ? 1 : plan.tensor_count; }
  /// The kernels' argument, for memory at these addresses of the device.
  Plan At(uint64_t device_memory, uint64_t ring) const;
};

/// Room for the buckets of a step in which every tensor is spread over 40 octaves of both signs. The most
/// there can be is 2,216 a tensor (16,784 of float64); those that do not fit are lost for the step, and the
/// row says so.
uint32_t TypicalBuckets(std::span<const TensorSpec> tensors);

/// \param slots  of the ring, at least 1
/// \error kUnimplemented    a type without statistics, or more than kMaxElements; the message names the
/// tensor's number
/// \error kInvalidArgument  kValues of more than kMaxValueBytes, kHistogram alone, a statistic of another
/// number of
///                          elements than its tensor has, more slots or chunks than can be numbered
Result<Layout> MakeLayout(std::span<const TensorSpec> tensors, std::span<const DerivedSpec> derived,
                          uint32_t slots, uint32_t bucket_capacity);

}  // namespace tdbg::cuda
