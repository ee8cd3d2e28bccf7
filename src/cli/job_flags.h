// The flags of `tdbg run` that say how the command is looked after, and not what is recorded of it.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "jobs/job.h"
#include "tdbg/status.h"

namespace CLI {
class App;
}

namespace tdbg::cli {

/// After which ends a command is started again, and how often.
struct RestartPolicy {
  int64_t most = 0;
  bool any_failure = true;  ///< an exit code other than 0, or a signal
  bool signal = false;      ///< it was ended by a signal
  bool preempted = false;   ///< SIGTERM or SIGKILL that nobody asked tdbg for
  std::set<int> codes;

  /// What ended by itself, or by somebody else's hand; what a person or a rule stopped never is.
  bool Restarts(const jobs::JobResult& result) const;
};

struct JobFlags {
  bool detach = false, no_log = false;
  std::vector<std::string> secrets, restart_on;
  std::string max_runtime, checkpoint_directory;
  int64_t max_restarts = 0;

  void Define(CLI::App& app);
  /// \error kInvalidArgument
  Result<RestartPolicy> Restarts() const;
  /// In milliseconds; -1: for ever. \error kInvalidArgument
  Result<int64_t> MaxRuntimeMillis() const;
};

}  // namespace tdbg::cli
