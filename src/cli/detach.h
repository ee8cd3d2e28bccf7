// Continues in the background, once everything that can fail before a training has succeeded.
#pragma once

#include <optional>
#include <string>

#include "base/posix.h"
#include "tdbg/status.h"

namespace tdbg::cli {

/// Forks. The parent waits until the child says that the training has begun, or how it failed, and exits
/// accordingly; the child continues in a session of its own, without the terminal. \pre one thread
class Detached {
 public:
  /// In the parent its exit code; in the child nothing.
  std::optional<int> Split();
  /// The training has begun: the parent exits with 0, and messages go to `log` from now on.
  void LetGo(const std::string& log);

 private:
  base::UniqueFd word_;
};

}  // namespace tdbg::cli
