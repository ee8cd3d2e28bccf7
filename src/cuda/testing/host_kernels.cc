#include "cuda/testing/host_kernels.h"

#include <array>
#include <tuple>
#include <utility>

#define TDBG_CUDA_ON_HOST
#include "cuda/device/kernels.cu"

namespace tdbg::cuda {
namespace {

template <typename... Args>
class LaunchOf : public HostLaunch {
 public:
  using Kernel = void (*)(Args...);
  LaunchOf(Kernel kernel, uint32_t grid, void* const* params)
      : LaunchOf(kernel, grid, params, std::index_sequence_for<Args...>()) {}

  void Run(uint64_t seed) const override {
    emulation::RunGrid(grid_, seed, [this] { std::apply(kernel_, args_); });
  }

 private:
  template <size_t... I>
  LaunchOf(Kernel kernel, uint32_t grid, void* const* params, std::index_sequence<I...>)
      : kernel_(kernel), grid_(grid), args_(*static_cast<const std::remove_cvref_t<Args>*>(params[I])...) {}

  Kernel kernel_;
  uint32_t grid_;
  std::tuple<std::remove_cvref_t<Args>...> args_;
};

template <typename... Args>
std::unique_ptr<HostLaunch> Launched(void (*kernel)(Args...), uint32_t grid, void* const* params) {
  return std::make_unique<LaunchOf<Args...>>(kernel, grid, params);
}

}  // namespace

std::unique_ptr<HostLaunch> HostLaunch::Make(std::string_view kernel, uint32_t grid, void* const* params) {
  if (kernel == kSummarize[0]) return Launched(device::tdbg_summarize_float, grid, params);
  if (kernel == kSummarize[1]) return Launched(device::tdbg_summarize_half, grid, params);
  if (kernel == kSummarize[2]) return Launched(device::tdbg_summarize_byte, grid, params);
  if (kernel == kSummarize[3]) return Launched(device::tdbg_summarize_double, grid, params);
  if (kernel == kDerive) return Launched(device::tdbg_derive, grid, params);
  if (kernel == kDeliver) return Launched(device::tdbg_deliver, grid, params);
  if (kernel == kReset) return Launched(device::tdbg_reset, grid, params);
  if (kernel == kReadOnly) return Launched(device::tdbg_read_only, grid, params);
  return nullptr;
}

}  // namespace tdbg::cuda
