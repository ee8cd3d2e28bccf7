// Programs that are told of a job while it runs: handlers of its events, and monitoring of its metrics.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "cli/event_handlers.h"
#include "cli/job_flags.h"
#include "cli/registration.h"
#include "cli/tended_process.h"
#include "jobs/run_directory.h"
#include "rules/engine.h"
#include "tdbg/status.h"

namespace tdbg::cli {

class JobListeners {
 public:
  /// Before anything is laid out. \return  for watch::WatchOptions: to be called after Start, and borrows
  /// this
  /// \error kInvalidArgument  what is wrong with a file of handlers
  Result<std::function<void(const rules::RuleStatus& status, int64_t global_step)>> Prepare(
      const JobFlags& flags);
  /// Before the command, so that a handler's imports do not wait for the first event.
  /// \param registration  tells of the job's changes from now on
  /// \param speaks  false: another node tells of this job, until Hear and TellOf are called
  void Start(const JobFlags& flags, const jobs::PreparedAttempt& attempt,
             const std::vector<rules::RuleStatus>& statuses, Registration* registration, bool speaks = true);
  /// Handlers and exporters of metrics are started here from now on. From any one thread.
  void Hear(const JobFlags& flags, const jobs::PreparedAttempt& attempt);
  /// The registration tells of changes from now on.
  void TellOf(Registration* registration) { registration->TellChanges(changes_.get()); }
  /// The job is over and said so: lets them finish.
  void Finish();

 private:
  HandlerFiles files_;
  std::unique_ptr<events::ChangeJournal> changes_;
  TendedProcess delivering_, exporting_metrics_;
};

}  // namespace tdbg::cli
