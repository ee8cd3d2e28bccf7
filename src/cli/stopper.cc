#include "cli/stopper.h"

namespace tdbg::cli {

Status Stopper::Stop(const std::string& rule) {
  const std::lock_guard guard(mutex_);
  if (begun_ && asked_.empty()) asked_ = rule.empty() ? "somebody" : rule;
  if (job_) job_->RequestStop(rule);
  if (job_ || in_gap_) return OkStatus();
  return Unavailable("the command has not been started, or has ended");
}

std::string Stopper::asked() {
  const std::lock_guard guard(mutex_);
  return asked_;
}

void Stopper::BeginGap() {
  const std::lock_guard guard(mutex_);
  in_gap_ = true;
}

void Stopper::Set(jobs::Job* job) {
  const std::lock_guard guard(mutex_);
  job_ = job;
  begun_ = true;
  in_gap_ = false;
  if (job_ && !asked_.empty()) job_->RequestStop(asked_);
}

}  // namespace tdbg::cli
