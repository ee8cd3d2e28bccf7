#include "actions/actions.h"
#include "actions/control_request.h"

namespace tdbg::actions {
namespace {

Status StopNow(const JobControl& job, const Notice& notice) {
  return job.stop ? job.stop(notice) : RequestStop(notice.run, notice.rule, notice.at_step);
}

class Stop : public Action {
 public:
  explicit Stop(JobControl job) : job_(std::move(job)) {}
  std::string name() const override { return "stop"; }
  bool needs_job() const override { return true; }
  Status Perform(const Notice& notice) override { return StopNow(job_, notice); }

 private:
  const JobControl job_;
};

class CheckpointStop : public Action {
 public:
  CheckpointStop(JobControl job, int64_t seconds) : job_(std::move(job)), seconds_(seconds) {}
  std::string name() const override { return "checkpoint_stop"; }
  bool needs_job() const override { return true; }
  std::string output() const override { return output_; }

  // If no checkpoint can be saved the job is stopped all the same: somebody asked for an end.
  Status Perform(const Notice& notice) override {
    const Status saved =
        job_.checkpoint ? job_.checkpoint(notice, seconds_) : FailedPrecondition("nobody to ask");
    output_ = saved.ok() ? "checkpoint saved" : "no checkpoint: " + saved.message();
    return StopNow(job_, notice);
  }

 private:
  const JobControl job_;
  const int64_t seconds_;
  std::string output_;
};

}  // namespace

std::unique_ptr<Action> MakeStop(std::function<Status(const Notice&)> stop) {
  JobControl job;
  job.stop = std::move(stop);
  return std::make_unique<Stop>(std::move(job));
}

std::unique_ptr<Action> MakeCheckpointStop(JobControl job, int64_t seconds) {
  return std::make_unique<CheckpointStop>(std::move(job), seconds);
}

}  // namespace tdbg::actions
