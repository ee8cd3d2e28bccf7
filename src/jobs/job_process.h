// The process that a launcher looks after: its own child, or one that another launcher left behind.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>

#include "base/posix.h"
#include "base/process.h"
#include "jobs/registry.h"
#include "tdbg/status.h"

namespace tdbg::jobs {

/// The leader of a process group. Same interface as base::Child.
class JobProcess {
 public:
  virtual ~JobProcess() = default;
  virtual pid_t pid() const = 0;
  /// How it ended; nothing while it runs. \param timeout_millis  0 polls
  virtual std::optional<base::ExitState> Wait(int timeout_millis) = 0;
  /// Is it known how it ended? Of a process that is not our child we only learn that it has ended.
  virtual bool exit_is_known() const = 0;
  virtual void SignalGroup(int signal_number) = 0;
  virtual bool GroupAlive() const = 0;
};

std::unique_ptr<JobProcess> OwnProcess(base::Child child);
/// \error kNotFound  it is gone
Result<std::unique_ptr<JobProcess>> AdoptProcess(const ProcessIdentity& process);

}  // namespace tdbg::jobs
