// Going on in the background, once what can go wrong before a training has not.
#pragma once

#include <optional>
#include <string>

#include "base/posix.h"
#include "tdbg/status.h"

namespace tdbg::cli {

/// Splits the process. The first waits for the second's word and ends with it; the second is in a session of
/// its own, out of the terminal's reach, and goes on. \pre one thread
class Detached {
 public:
  /// The exit code, in the process that waits; nothing in the one that goes on.
  std::optional<int> Split();
  /// The training has begun: the waiting process ends with 0, and what is said from here on goes into `log`.
  void LetGo(const std::string& log);

 private:
  base::UniqueFd word_;
};

}  // namespace tdbg::cli
