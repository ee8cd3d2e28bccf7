// Where a run may be laid out, for launchers that must agree before one of them does it.
#pragma once

#include <string>

#include "base/file.h"
#include "tdbg/status.h"

namespace tdbg::jobs {

/// In a run: what launchers on several machines say to each other.
inline constexpr char kNodesFolder[] = "nodes";

/// Makes the directory where it is missing. \error kAlreadyExists  it is not empty and is not a run
Status CheckPlace(const std::string& run_directory, bool shared,
                  base::FileSystem& files = base::LocalFileSystem());

}  // namespace tdbg::jobs
