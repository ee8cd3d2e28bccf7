// Whether what the registry says of a job is still so: a launcher that was killed wrote no end.
#pragma once

#include <cstdint>
#include <string>

#include "jobs/registry.h"

namespace tdbg::jobs {

enum class JobLife : uint8_t {
  kEnded,      ///< and the registry says how
  kWatched,    ///< its launcher lives
  kUnwatched,  ///< its launcher is gone, its command trains on
  kGone,       ///< both are
  kElsewhere,  ///< on another machine, of which nothing can be told from here
};

JobLife LifeOf(const JobRecord& job);

/// Writes down the end of a job that is kGone, as far as its run tells, and leaves any other as it is.
Status Reconcile(Registry& registry, JobRecord* job, int64_t wall_nanos);

/// As a person says it: "training", "stopping", "completed", "training, without a launcher" ...
std::string StateText(const JobRecord& job, JobLife life);

}  // namespace tdbg::jobs
