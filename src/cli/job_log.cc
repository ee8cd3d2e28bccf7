#include "cli/job_log.h"

#include <utility>

#include "base/text.h"
#include "cli/job_environment.h"
#include "cli/output.h"
#include "jobs/secret_mask.h"

namespace tdbg::cli {
namespace {

constexpr int64_t kFinishMillis = 10'000;

}  // namespace

void JobLog::SayNotKept(const Status& kept) {
  if (!kept.ok() && !std::exchange(told_, true)) Note("the command's output is not kept: " + kept.message());
}

std::unique_ptr<jobs::TrainingLog> JobLog::Start(const JobFlags& flags,
                                                 const std::vector<std::string>& command,
                                                 const jobs::PreparedAttempt& attempt, int64_t node) {
  if (flags.no_log) return nullptr;
  jobs::TrainingLogOptions options;
  options.run_directory = attempt.run_directory;
  options.attempt = attempt.attempt;
  options.node = node;
  if (const auto limit = flags.LogLimit(); limit.ok()) options.limit_bytes = *limit;
  options.secrets = jobs::SecretsOf(command, EnvironmentVariables(), flags.secrets);
  options.forward = !flags.detach;
  auto log = jobs::TrainingLog::Start(options);
  SayNotKept(log.ok() ? (*log)->kept() : log.status());
  return log.ok() ? *std::move(log) : nullptr;
}

std::string JobLog::Finish(jobs::TrainingLog& log) {
  log.Finish(kFinishMillis);
  SayNotKept(log.kept());
  if (log.lost_bytes() > 0 && !std::exchange(told_, true)) {
    Note("the disk could not take all that the command printed: " + base::FormatBytes(log.lost_bytes()) +
         " are missing in the log, and are marked there");
  }
  // Whatever the command made of its failed write, what it has printed is not whole.
  if (!log.output_error().empty())
    Note("what the command printed is cut short, it cannot be written: " + log.output_error());
  return log.output_error();
}

}  // namespace tdbg::cli
