#pragma once

namespace tdbg::cli {

/// pyproject.toml has it.
inline constexpr char kVersion[] = TDBG_VERSION;

}  // namespace tdbg::cli
