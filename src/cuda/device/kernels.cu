// The kernels, by the names and with the arguments of cuda/abi.h.
//
// Blocks a multiprocessor: float32 3, of 80 registers a thread and six loads under way; the 16-bit types and bytes 4, of 64
// registers, with three and five loads. More blocks with fewer loads each were slower on an H100. docs/gpu.md has the numbers.
#include "cuda/device/deliver.cuh"
#include "cuda/device/derive.cuh"
#include "cuda/device/summarize.cuh"

namespace tdbg::cuda {
namespace device {

#define TDBG_SUMMARIZE(name, family, blocks)                                                             \
  extern "C" __global__ void __launch_bounds__(kThreads, blocks)                                         \
      name(TDBG_ARGUMENT(Pointers) pointers, TDBG_ARGUMENT(Plan) plan,                 \
           TDBG_ARGUMENT(Launch) launch) {                                                      \
    __shared__ Shared shared;                                                                            \
    Summarize<family>(pointers, plan, launch, shared);                                                   \
  }
TDBG_SUMMARIZE(tdbg_summarize_float, Family::kFloat, 3)
TDBG_SUMMARIZE(tdbg_summarize_half, Family::kHalf, 4)
TDBG_SUMMARIZE(tdbg_summarize_byte, Family::kByte, 4)
TDBG_SUMMARIZE(tdbg_summarize_double, Family::kDouble, 3)

extern "C" __global__ void __launch_bounds__(kThreads)
    tdbg_derive(TDBG_ARGUMENT(Pointers) pointers, TDBG_ARGUMENT(Plan) plan,
                TDBG_ARGUMENT(Launch) launch) {
  Derive(pointers, plan, launch);
}

extern "C" __global__ void __launch_bounds__(kThreads) tdbg_deliver(TDBG_ARGUMENT(Plan) plan, uint64_t tag) {
  __shared__ DeliverShared shared;
  Deliver(plan, tag, shared);
}

extern "C" __global__ void __launch_bounds__(kThreads) tdbg_reset(TDBG_ARGUMENT(Plan) plan) { Reset(plan); }

/// What memory can do: 16 bytes a load and nothing made of them.
extern "C" __global__ void __launch_bounds__(kThreads) tdbg_read_only(const void* data, uint64_t bytes, uint32_t* out) {
  const auto* v = static_cast<const Vector16*>(data);
  const uint64_t n = bytes / 16, step = static_cast<uint64_t>(gridDim.x) * kThreads;
  uint32_t x = 0;
  for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += 4 * step) {
    Vector16 r[4];
    TDBG_UNROLL
    for (int u = 0; u < 4; ++u) r[u] = i + u * step < n ? LoadOnce(v + i + u * step) : Vector16{{0, 0, 0, 0}};
    TDBG_UNROLL
    for (int u = 0; u < 4; ++u) x ^= r[u].w[0] ^ r[u].w[1] ^ r[u].w[2] ^ r[u].w[3];
  }
  if (x == 0x12345678u) *out = x;  // so that the loads are needed
}

}  // namespace device
}  // namespace tdbg::cuda
