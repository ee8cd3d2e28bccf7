#include "cli/job_path.h"

#include "base/clock.h"
#include "cli/run_path.h"
#include "jobs/job_life.h"
#include "jobs/run_directory.h"

namespace tdbg::cli {

Result<jobs::JobRecord> ResolveJob(jobs::Registry& registry, const std::string& text) {
  const auto place = PlaceOfRun(text);
  // Where it is in a bucket only, there is none.
  const auto directory =
      place.ok() && place->directory.empty()
          ? Result<std::string>(NotFound("no job of this machine is uploaded to " + place->url))
          : ResolveRunOfJob(text);
  if (!directory.ok() && directory.status().code() != Code::kNotFound) return directory.status();
  const bool is_run = directory.ok() && jobs::IsRunDirectory(*directory);
  // A job whose run is gone, or in a bucket by now, has a name all the same.
  auto job = is_run ? registry.FindRun(jobs::RunId(*directory)) : registry.Find(text);
  if (!job.ok() && place.ok() && place->directory.empty()) job = registry.FindUrl(place->url);
  if (!job.ok()) {
    if (job.status().code() != Code::kNotFound) return job.status();
    if (!directory.ok()) return directory.status();
    return NotFound("the run was not started by tdbg run, or by another user: " + *directory);
  }
  if (is_run) job->run_directory = *directory;  // it may have been moved
  TDBG_RETURN_IF_ERROR(jobs::Reconcile(registry, {&*job, 1}, base::SystemClock().WallNanos()));
  return job;
}

}  // namespace tdbg::cli
