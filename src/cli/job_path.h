// JOB on the command line -> its entry in the registry.
#pragma once

#include <string>

#include "jobs/registry.h"
#include "tdbg/status.h"

namespace tdbg::cli {

/// A job's name, or anything that ResolveRun accepts. The registry's entry is brought up to date first
/// (job_life.h).
/// \error kNotFound  no such job; names the nearest
Result<jobs::JobRecord> ResolveJob(jobs::Registry& registry, const std::string& text);

}  // namespace tdbg::cli
