#include "cli/registration.h"

#include "base/clock.h"
#include "cli/output.h"
#include "cli/terminal.h"

namespace tdbg::cli {
namespace {

int64_t WallNow() { return base::SystemClock().WallNanos(); }

}  // namespace

void Registration::Say(const Status& status) {
  if (status.ok()) return;
  // A job that somebody settled behind our back is theirs; the run says what became of it.
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
}

void Registration::Training(int64_t pid, const std::string& message) {
  if (!registry_) return;
  Say(registry_->SetProcess(run_id_, jobs::IdentityOf(pid)));
  Move(jobs::JobPhase::kTraining, message);
}

void Registration::Move(jobs::JobPhase phase, const std::string& message) {
  if (registry_) Say(registry_->Move(run_id_, phase, message, WallNow()));
}

void Registration::BeginAttempt(int64_t attempt) {
  if (registry_) Say(registry_->BeginAttempt(run_id_, attempt, WallNow()));
}

void Registration::EndAttempt(int64_t attempt, int64_t exit_code, const std::string& message) {
  if (registry_) Say(registry_->EndAttempt(run_id_, attempt, exit_code, message, WallNow()));
}

}  // namespace tdbg::cli
