// Files that are made once, by whoever is first, also where the file system is a network's.
#pragma once

#include <string>
#include <string_view>

#include "tdbg/status.h"

namespace tdbg::jobs {

/// Makes `path` below `root` with all of its contents at once. \return  false: another was first
/// \error as of the file system, which needs hard links
Result<bool> MakeOnce(const std::string& root, const std::string& path, std::string_view contents);

}  // namespace tdbg::jobs
