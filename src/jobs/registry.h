// All jobs of this user: what was started where, what became of it and when. One SQLite file in the user's
// state directory, written by each launcher for its own job and read by `tdbg jobs`.
//
// It is only an index: the data of a run are in its directory, and no training depends on this file. A
// launcher that cannot open it says so once and continues without.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "jobs/job_state.h"
#include "jobs/sqlite.h"
#include "tdbg/status.h"

namespace tdbg::jobs {

/// Identifies a process: its number alone may have been reused.
struct ProcessIdentity {
  int64_t pid = 0;  ///< 0: none
  int64_t start_ticks = 0;
  std::string boot_id;
};

struct JobRecord {
  // Given to Launch.
  std::string run_id;             ///< run.json's: a run directory that was moved is the same job
  std::string run_directory;      ///< absolute
  std::string url;                ///< of the bucket into which the run is uploaded; empty: none
  std::string working_directory;  ///< absolute
  std::vector<std::string> command;
  std::vector<std::string> flags;  ///< of `tdbg run`, in front of the command
  std::map<std::string, std::string> environment;
  /// JSON: rules with their actions, restarts, limits, the checkpoint directory. Readers keep members that
  /// they do not know.
  std::string settings = "{}";
  std::string host;
  bool detached = false;
  int64_t attempt = 0;  ///< the latest

  // Filled in by the registry.
  int64_t id = 0;
  std::string name;  ///< the run directory's last part, with "-2", ... if another job has that name
  JobStatus status = JobStatus::kInProgress;
  JobPhase phase = JobPhase::kStarting;
  std::string message;
  ProcessIdentity process;  ///< leads the command's process group
  int64_t created_wall_nanos = 0;
  int64_t changed_wall_nanos = 0;
  int64_t ended_wall_nanos = 0;  ///< 0: it has not
  std::optional<int64_t> exit_code;
};

struct JobTransition {
  JobStatus status = JobStatus::kInProgress;
  JobPhase phase = JobPhase::kStarting;
  std::string message;
  int64_t began_wall_nanos = 0;
  /// When the next phase began; of the last phase 0 or, if it is an end, its beginning.
  int64_t ended_wall_nanos = 0;
};

struct JobAttempt {
  int64_t attempt = 0;
  int64_t began_wall_nanos = 0;
  int64_t ended_wall_nanos = 0;  ///< 0: it has not
  std::optional<int64_t> exit_code;
  std::string message;
};

struct JobQuery {
  std::optional<JobStatus> status;
  int64_t limit = 100;
  int64_t offset = 0;
};

class Registry {
 public:
  /// jobs.sqlite in the user's state directory; empty: the user has no home.
  static std::string DefaultPath();
  /// Created if it is missing.
  /// \error kUnimplemented  a newer tdbg made it
  /// \error kDataLoss, kUnavailable, kResourceExhausted  as Database::Open
  static Result<Registry> Open(const std::string& path = DefaultPath(), int64_t wait_millis = 2000);
  /// For reading only; creates nothing. \error kNotFound  no job was registered yet
  static Result<Registry> OpenExisting(const std::string& path = DefaultPath());

  /// Records that a job starts, or is resumed: Starting, with its attempt. \return its name
  Result<std::string> Launch(const JobRecord& job, const std::string& message, int64_t wall_nanos);
  /// Records a further attempt of a running job. \error kNotFound
  Status BeginAttempt(const std::string& run_id, int64_t attempt, int64_t wall_nanos);
  Status EndAttempt(const std::string& run_id, int64_t attempt, std::optional<int64_t> exit_code,
                    const std::string& message, int64_t wall_nanos);
  Status SetProcess(const std::string& run_id, const ProcessIdentity& process);
  /// Moves to the next phase. The same phase with a new message is a transition, too; with the same message
  /// it is not.
  /// \error kNotFound            no such job
  /// \error kFailedPrecondition  it has ended, or is stopping
  Status Move(const std::string& run_id, JobPhase phase, const std::string& message, int64_t wall_nanos);

  /// How long to wait for another process that writes, from now on.
  void WaitAtMost(int64_t millis) { database_.WaitAtMost(millis); }
  /// Removes a job from the registry, not its run. \error kNotFound, kFailedPrecondition  it runs
  Status Forget(const std::string& run_id);

  /// By name. \error kNotFound
  Result<JobRecord> Find(const std::string& name) const;
  /// The job whose run this is. \error kNotFound
  Result<JobRecord> FindRun(const std::string& run_id) const;
  /// The job that was started last of those whose run is uploaded to this URL. \error kNotFound
  Result<JobRecord> FindUrl(const std::string& url) const;
  /// The job that was started last in this directory (absolute), whether it is there or not. \error kNotFound
  Result<JobRecord> FindDirectory(const std::string& run_directory) const;
  /// The one started last first.
  Result<std::vector<JobRecord>> List(const JobQuery& query = {}) const;
  Result<std::vector<std::string>> Names() const;
  Result<std::vector<JobTransition>> Transitions(int64_t job) const;
  Result<std::vector<JobAttempt>> Attempts(int64_t job) const;
  /// Until its Commit, what is recorded here is one write: a thousand ends wait for the disk once. Others who
  /// would write wait meanwhile, so nothing slow belongs in it.
  Result<Transaction> Together() const { return Transaction::Begin(database_); }
  /// The query plans of Find, FindRun, FindUrl, FindDirectory and List, for a test that none reads a whole
  /// table.
  Result<std::vector<std::string>> QueryPlans() const;

 private:
  explicit Registry(Database database) : database_(std::move(database)) {}
  Status Prepare();
  Result<JobRecord> One(const std::string& condition, const std::string& value,
                        const std::string& what) const;
  Status Append(int64_t job, JobStatus status, JobPhase phase, const std::string& message,
                int64_t wall_nanos) const;

  Database database_;
};

/// Identity of a living process of this machine; pid 0 if there is none.
ProcessIdentity IdentityOf(int64_t pid);
bool IsAlive(const ProcessIdentity& process);

}  // namespace tdbg::jobs
