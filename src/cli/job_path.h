// JOB on the command line -> its entry in the registry.
#pragma once

#include <string>

#include "jobs/registry.h"
#include "tdbg/status.h"

namespace tdbg::cli {

/// What ResolveRunOfJob accepts: what is here comes before a job's name, as for every command. The registry's
/// entry is brought up to date first (job_life.h).
/// \error kNotFound         no such job; names the nearest
/// \error kInvalidArgument  the word names two of them
Result<jobs::JobRecord> ResolveJob(jobs::Registry& registry, const std::string& text);

}  // namespace tdbg::cli
