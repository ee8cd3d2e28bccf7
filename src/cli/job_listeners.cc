#include "cli/job_listeners.h"

#include <string>

#include "base/file.h"

namespace tdbg::cli {
namespace {

// How long handlers may take for the remaining events when the job has ended.
constexpr int64_t kHandlersGraceMillis = 60'000;
constexpr int64_t kMetricsGraceMillis = 15'000;

}  // namespace

Result<std::function<void(const rules::RuleStatus&, int64_t)>> JobListeners::Prepare(const JobFlags& flags) {
  TDBG_ASSIGN_OR_RETURN(files_, FindHandlers(flags.on_event, !flags.no_handlers));
  TDBG_RETURN_IF_ERROR(CheckFiles(files_));
  return std::function([this](const rules::RuleStatus& status, int64_t global_step) {
    changes_->RuleMoved(RuleStateOf(status), global_step);
  });
}

void JobListeners::Start(const JobFlags& flags, const jobs::PreparedAttempt& attempt,
                         const std::vector<rules::RuleStatus>& statuses, Registration* registration,
                         bool speaks) {
  const std::string& run = attempt.run_directory;
  const std::string& name = registration->name();
  changes_ = JournalChanges(run, name.empty() ? base::BaseName(run) : name, attempt.attempt, statuses);
  if (!speaks) return;
  Hear(flags, attempt);
  TellOf(registration);
  if (!flags.adopt) registration->Move(jobs::JobPhase::kStarting, "starting");
}

void JobListeners::Hear(const JobFlags& flags, const jobs::PreparedAttempt& attempt) {
  const std::string& run = attempt.run_directory;
  if (!files_.handlers.empty()) delivering_.Start(DeliverArguments(files_, run), "delivering events");
  const std::vector<std::string> metrics = flags.MetricsArguments(run);
  if (!metrics.empty()) exporting_metrics_.Start(metrics, "exporting metrics");
}

void JobListeners::Finish() {
  delivering_.Finish(kHandlersGraceMillis);
  exporting_metrics_.Finish(kMetricsGraceMillis);
}

}  // namespace tdbg::cli
