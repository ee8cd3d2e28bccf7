#pragma once

namespace tdbg::cli {

/// As CMakeLists.txt says it.
inline constexpr char kVersion[] = TDBG_VERSION;

}  // namespace tdbg::cli
