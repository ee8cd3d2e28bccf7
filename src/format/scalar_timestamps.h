// Topic of the context records in which a script says when its scalars were (docs/format.md, "Timestamps of
// scalars").
#pragma once

#include <string_view>

namespace tdbg::format {

inline constexpr std::string_view kScalarTimestamps = "scalar_timestamps";

}  // namespace tdbg::format
