#include "cli/job_path.h"

#include "base/clock.h"
#include "cli/run_path.h"
#include "jobs/job_life.h"
#include "jobs/run_directory.h"

namespace tdbg::cli {

Result<jobs::JobRecord> ResolveJob(jobs::Registry& registry, const std::string& text) {
  auto job = registry.Find(text);
  if (!job.ok()) {
    if (job.status().code() != Code::kNotFound) return job.status();
    TDBG_ASSIGN_OR_RETURN(const std::string directory, ResolveRun(text));
    job = registry.FindRun(jobs::RunId(directory));
    if (!job.ok() && job.status().code() == Code::kNotFound)
      return NotFound("the run was not started by tdbg run, or by another user: " + directory);
    if (!job.ok()) return job.status();
    job->run_directory = directory;  // it may have been moved
  }
  TDBG_RETURN_IF_ERROR(jobs::Reconcile(registry, &*job, base::SystemClock().WallNanos()));
  return job;
}

}  // namespace tdbg::cli
