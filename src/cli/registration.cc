#include "cli/registration.h"

#include "base/clock.h"
#include "cli/output.h"
#include "cli/terminal.h"

namespace tdbg::cli {
namespace {

// How long to wait for the registry. Short while a training runs, when the user may press ctrl-C; longer at
// the end, which nobody else can record.
constexpr int64_t kWaitMillis = 1000, kWaitForEndMillis = 2000;

int64_t WallNow() { return base::SystemClock().WallNanos(); }

}  // namespace

void Registration::Say(const Status& status) {
  if (status.ok()) return;
  // If another process has recorded the job's end meanwhile, leave it; the run itself says how it ended.
  if (!said_) {
    Tell("tdbg: `tdbg jobs` will not know all of this job, which runs all the same: {}\n",
         Printable(status.message()));
  }
  said_ = true;
}

void Registration::Launch(const jobs::JobRecord& job) {
  run_id_ = job.run_id;
  auto registry = jobs::Registry::Open();
  if (!registry.ok()) return Say(registry.status());
  const auto name = registry->Launch(job, "starting", WallNow());
  if (!name.ok()) return Say(name.status());
  name_ = *name;
  registry_ = *std::move(registry);
  registry_->WaitAtMost(kWaitMillis);
}

std::optional<jobs::JobRecord> Registration::Adopt(const std::string& run_id) {
  run_id_ = run_id;
  auto registry = jobs::Registry::Open();
  if (!registry.ok()) {
    Say(registry.status());
    return std::nullopt;
  }
  const auto job = registry->FindRun(run_id);
  if (!job.ok()) {
    Say(job.status());
    return std::nullopt;
  }
  name_ = job->name;
  registry_ = *std::move(registry);
  registry_->WaitAtMost(kWaitMillis);
  return *job;
}

int64_t Registration::StartedWallNanos() const {
  if (!registry_) return 0;
  const auto job = registry_->FindRun(run_id_);
  if (!job.ok()) return 0;
  const auto transitions = registry_->Transitions(job->id);
  int64_t started = 0;
  for (const jobs::JobTransition& transition :
       transitions.ok() ? *transitions : std::vector<jobs::JobTransition>()) {
    if (transition.phase == jobs::JobPhase::kStarting) started = transition.began_wall_nanos;
  }
  return started;
}

void Registration::Training(int64_t pid, const std::string& message) {
  if (registry_) Say(registry_->SetProcess(run_id_, jobs::IdentityOf(pid)));
  Move(jobs::JobPhase::kTraining, message);
}

void Registration::Move(jobs::JobPhase phase, const std::string& message) {
  if (registry_) {
    if (jobs::HasEnded(jobs::StatusOfPhase(phase, jobs::JobStatus::kInProgress)))
      registry_->WaitAtMost(kWaitForEndMillis);
    Say(registry_->Move(run_id_, phase, message, WallNow()));
  }
  if (!changes_ || !jobs::MayFollow(status_, phase)) return;
  status_ = jobs::StatusOfPhase(phase, status_);
  changes_->JobMoved(std::string(jobs::JobStatusName(status_)), std::string(jobs::JobPhaseName(phase)),
                     message, status_ == jobs::JobStatus::kFailed ? message : "");
}

void Registration::BeginAttempt(int64_t attempt) {
  if (changes_) changes_->SetAttempt(attempt);
  if (registry_) Say(registry_->BeginAttempt(run_id_, attempt, WallNow()));
}

void Registration::EndAttempt(int64_t attempt, int64_t exit_code, const std::string& message) {
  if (registry_) Say(registry_->EndAttempt(run_id_, attempt, exit_code, message, WallNow()));
}

}  // namespace tdbg::cli
