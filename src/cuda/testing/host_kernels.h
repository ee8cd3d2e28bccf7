// The kernels on the CPU: the device's own source, compiled by the host's compiler. For tests, this room's
// and those of whoever launches kernels.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

namespace tdbg::cuda {

/// A launch, its arguments copied as cuLaunchKernel copies them; to be carried out now, later or more than
/// once.
///
/// \threadsafety  Different launches may run in different threads, as kernels on different streams do.
class HostLaunch {
 public:
  /// \param kernel  one of abi.h's names
  /// \param params  pointers to the arguments, in abi.h's order
  /// \return null: no such kernel
  static std::unique_ptr<HostLaunch> Make(std::string_view kernel, uint32_t grid, void* const* params);
  virtual ~HostLaunch() = default;

  /// Runs all blocks, one after the other. `seed` shuffles their order, and that of the threads between two
  /// barriers; 0: in their order.
  virtual void Run(uint64_t seed) const = 0;
};

}  // namespace tdbg::cuda
