// The time between two attempts: how long it is, and what may end the job in it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "jobs/control_file.h"
#include "jobs/job.h"

namespace tdbg::jobs {

/// A command that failed right after its start will probably fail again: the gap doubles with each such
/// attempt, from a tenth of a second to a minute. After an attempt that ran for a while the gap is the
/// shortest again.
class RestartGap {
 public:
  /// \param ran_nanos  how long the attempt ran that has ended
  int64_t Millis(int64_t ran_nanos);

 private:
  int64_t next_millis_ = 0;
};

/// Waits for the gap, and handles requests and signals meanwhile.
/// \param asked  who in this process asked for a stop; empty: nobody
/// \param ends_nanos  monotonic, when the job's time is over; -1: never
/// \return false if the job must not be started again; `result` then says why
/// \pre BlockForwardedSignals()
bool WaitForRestart(int64_t millis, ControlFollower& control, const std::function<std::string()>& asked,
                    int64_t ends_nanos, JobResult* result);

}  // namespace tdbg::jobs
