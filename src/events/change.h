// Changes of the statuses of a job and its rules, as events in the form that EventBridge delivers.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "tdbg/status.h"

namespace tdbg::events {

/// The kind of these lines in events.jsonl (docs/format.md).
inline constexpr const char* kStateChange = "state_change";

struct RuleState {
  std::string name;     ///< configuration name
  std::string rule;     ///< class
  std::string status;   ///< "InProgress", "NoIssuesFound", "IssuesFound", "Error", "Stopped"
  std::string details;  ///< for people
  int64_t changed_wall_nanos = 0;
  std::string processing_job = {};  ///< that stands for it in ARNs; empty: "<job>-<name>"
};

struct JobTransition {
  std::string status;  ///< a phase: "Starting", "Training", "Stopping", ...
  std::string message;
  int64_t began_wall_nanos = 0;
  int64_t ended_wall_nanos = 0;  ///< 0: it has not ended
};

/// Everything that an event contains.
struct JobState {
  std::string name, run;  ///< run: the directory
  std::string status, phase;
  std::string failure_reason;
  int64_t attempt = 0;
  int64_t created_wall_nanos = 0, training_wall_nanos = 0, ended_wall_nanos = 0;  ///< 0: not yet
  std::vector<JobTransition> transitions;
  std::vector<RuleState> rules;
  // A job of this machine has neither, and handlers take the ARN apart.
  std::string account = "000000000000", region = "us-east-1";
  std::string more_detail = {};  ///< further members of `detail`, a JSON object; empty: none
};

/// What changed.
struct Change {
  const RuleState* rule = nullptr;  ///< null: the job
  int64_t global_step = -1;         ///< of a rule's finding, else the last step it judged; -1: none
};

/// One event: docs/events.md, "What an event says". \param id  a UUID
std::string EventJson(const JobState& job, const Change& change, const std::string& id, int64_t wall_nanos);

/// Follows a job's and its rules' statuses and writes each change down as one event, in order.
/// \threadsafety Any thread; `write` is never called by two threads at once.
class ChangeJournal {
 public:
  /// \param write  appends a line of this kind to the run's events
  using Write =
      std::function<void(const std::string& kind, int64_t wall_nanos, const std::string& fields_json)>;
  ChangeJournal(JobState job, Write write) : job_(std::move(job)), write_(std::move(write)) {}

  /// Forgets the rules' statuses of before.
  void SetAttempt(int64_t attempt);
  /// \param failure_reason  of a job that has failed
  void JobMoved(const std::string& status, const std::string& phase, const std::string& message,
                const std::string& failure_reason = {});
  /// Writes nothing if the rule already had this status.
  void RuleMoved(const RuleState& rule, int64_t global_step);
  std::string job_status() const;

 private:
  void Tell(const Change& change, int64_t wall_nanos);

  mutable std::mutex mutex_;
  JobState job_;  // guarded by mutex_
  const Write write_;
};

/// A random UUID, version 4.
std::string NewUuid();

}  // namespace tdbg::events
