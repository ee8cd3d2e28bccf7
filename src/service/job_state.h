// A job's state while it is looked after: every change becomes an event, and the last event is what others
// see.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "events/change.h"
#include "service/job_files.h"

namespace tdbg::service {

class JobProgress {
 public:
  /// Goes on where the job's events end.
  JobProgress(const JobDocument& job, const JobPaths& paths);

  void Move(const std::string& status, const std::string& phase, const std::string& message,
            const std::string& failure_reason = {});
  /// \param step  of the finding; -1: none
  void MoveRule(const std::string& name, const std::string& rule_class, const std::string& status,
                const std::string& details, int64_t step);
  /// Rules that are still in progress.
  std::vector<std::string> OpenRules() const;
  std::string status() const { return journal_->job_status(); }

 private:
  const JobDocument* job_;
  std::map<std::string, std::string> rules_;  ///< status by name
  std::unique_ptr<events::ChangeJournal> journal_;
};

}  // namespace tdbg::service
