#pragma once

namespace tdbg::cli {

#ifdef TDBG_VERSION
inline constexpr char kVersion[] = TDBG_VERSION;
#else
inline constexpr char kVersion[] = "0.1.0";
#endif

}  // namespace tdbg::cli
