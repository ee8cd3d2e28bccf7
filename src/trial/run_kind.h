// Which directories are runs, whoever wrote them.
#pragma once

#include <string>

namespace tdbg {

enum class RunKind {
  kNone = 0,
  kTdbg = 1,     ///< ours: there is a run.json
  kSmdebug = 2,  ///< smdebug wrote it
};
RunKind RunKindAt(const std::string& path);

}  // namespace tdbg
