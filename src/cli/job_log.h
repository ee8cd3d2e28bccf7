// The log of a job's output, from attempt to attempt, and what its user is told of it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cli/job_flags.h"
#include "jobs/run_directory.h"
#include "jobs/training_log.h"

namespace tdbg::cli {

class JobLog {
 public:
  /// Null: the command gets our own streams, because --no-log was said or nothing else is to be had.
  /// \pre  flags.LogLimit() is no error
  std::unique_ptr<jobs::TrainingLog> Start(const JobFlags& flags, const std::vector<std::string>& command,
                                           const jobs::PreparedAttempt& attempt, int64_t node);
  /// Waits until the last output has reached the terminal or pipe. \return TrainingLog::output_error()
  std::string Finish(jobs::TrainingLog& log);

 private:
  void SayNotKept(const Status& kept);

  bool told_ = false;
};

}  // namespace tdbg::cli
