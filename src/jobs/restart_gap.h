// The time between two attempts: how long it is, and what may end the job in it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "jobs/control_file.h"
#include "jobs/job.h"

namespace tdbg::jobs {

/// A command that fails as soon as it is started fails again: the gap doubles with each such attempt, from a
/// tenth of a second to a minute. One that ran for a while begins again at the least.
class RestartGap {
 public:
  /// \param ran_nanos  how long the attempt ran that has ended
  int64_t Millis(int64_t ran_nanos);

 private:
  int64_t next_millis_ = 0;
};

/// Waits so long. Nobody else hears requests and signals in this time.
/// \param asked  who of this process asked for a stop; empty: nobody
/// \param ends_nanos  monotonic, when the job's time is over; -1: never
/// \return false where the job is not to be started again; `result` says why then
/// \pre BlockForwardedSignals()
bool WaitForRestart(int64_t millis, ControlFollower& control, const std::function<std::string()>& asked,
                    int64_t ends_nanos, JobResult* result);

}  // namespace tdbg::jobs
