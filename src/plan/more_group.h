// The one group of a TensorPlan's masks that no schedule has.
#pragma once

#include <cstdint>

namespace tdbg::plan {

/// Due while a request for more detail holds (src/capture/capture_more.cc).
inline constexpr uint64_t kMoreGroup = uint64_t{1} << 63;

}  // namespace tdbg::plan
