// Is what the registry says of a job still true? A launcher that was killed could not record the end.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "jobs/registry.h"

namespace tdbg::jobs {

enum class JobLife : uint8_t {
  kEnded,      ///< the registry says how
  kWatched,    ///< its launcher lives
  kUnwatched,  ///< its launcher is gone, its command still runs
  kGone,       ///< both are gone
  kElsewhere,  ///< on another machine: not known here
};

/// What the attempt's workers recorded at their end: "completed", "exception", ... Empty: one recorded
/// nothing, or there were none.
/// \param host  if not empty, only those that ran there
std::string WorkersEnd(const std::string& run_directory, int64_t attempt, const std::string& host = {});

JobLife LifeOf(const JobRecord& job);

/// Records the ends of those jobs that are kGone, as far as their runs tell, in one write; leaves any other
/// job as it is.
Status Reconcile(Registry& registry, std::span<JobRecord> jobs, int64_t wall_nanos);

/// In words: "training", "stopping", "completed", "training, without a launcher" ...
std::string StateText(const JobRecord& job, JobLife life);

}  // namespace tdbg::jobs
