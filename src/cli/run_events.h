// Events that the launcher writes about its job, and reads back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/run_summary.h"
#include "jobs/job.h"
#include "tdbg/status.h"

namespace tdbg::cli {

/// Appends a line to <run>/events.jsonl.
Status AppendEvent(const std::string& run_directory, const std::string& kind, const Json& fields);
/// The job_ended of an attempt. Of several the last one is right: a job may be stopped when its command has
/// ended, and is about to be started again. \param restarts  it is to be started again
Status AppendJobEnded(const std::string& run_directory, int64_t attempt, const jobs::JobResult& result,
                      bool restarts);
/// The last job_ended, if there is one.
std::optional<JobEnding> LastJobEnding(const std::string& run_directory);
/// Why no worker has written anything, as far as the run directory tells: one sentence and what to do.
/// \param alive  the job goes on: what has not come may still come
std::string WhyNothingWasCaptured(const std::string& run_directory, const std::vector<int64_t>& attempts,
                                  bool alive);

}  // namespace tdbg::cli
