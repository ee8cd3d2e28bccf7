// A job's checkpoints and the bucket of its run: they are sent while it trains, and brought back where the
// directory is empty. tdbg-store does the work (src/storage/checkpoint_sender.h, checkpoint_restore.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli/json_output.h"
#include "cli/tended_process.h"
#include "jobs/job.h"
#include "tdbg/status.h"

namespace tdbg::cli {

/// A set that came back before an attempt began; an event of the run (docs/format.md).
struct CheckpointReturn {
  int64_t attempt = 0;      ///< that began with it
  int64_t set = 0;          ///< its number in the bucket; 0: none came back
  int64_t of_attempt = -1;  ///< that trained when it was taken; -1: not known
  int64_t step = -1;        ///< what metadata.json in it says; -1: there is none
  int64_t seen_step = -1;   ///< how far the training was; -1: not known
  int64_t taken_wall_nanos = 0, files = 0, bytes = 0;
  bool wiped = false;  ///< the directory had been wiped on purpose (--wipe)

  Json Fields() const;
  /// "step 40, 1.2 MB in 3 files, taken at 2026-11-28T08:00:12.000Z, at step 42 of attempt 1"
  std::string Words() const;
};
/// Those of a run, in the order of its attempts.
std::vector<CheckpointReturn> CheckpointReturns(const std::string& run_directory);

/// Can a checkpoint directory be wiped at all? Not one that holds what was never a checkpoint: the run, the
/// working directory, the home. \error kInvalidArgument  and why
Status CheckMayWipe(const std::string& directory, const std::string& run_directory);

/// \threadsafety One thread.
class Checkpoints {
 public:
  /// \param directory  absolute; empty, or `url` empty: there is nothing to do
  void Configure(const std::string& run_directory, const std::string& directory, const std::string& url,
                 bool quiet);
  bool is_on() const { return !url_.empty(); }

  /// Before an attempt: brings the newest whole set back, if the directory is empty. A training from zero
  /// where a checkpoint exists is the worst that can happen, so an attempt begins only if this succeeds. For
  /// a later attempt than the first the store may be away for ten minutes.
  /// \param go_on  asked ten times a second; false: the job is to end, and this, too
  /// \error kDeadlineExceeded  go_on said so; others: the store fails, or no set is whole
  Status BringBack(int64_t attempt, const std::function<bool()>& go_on, std::string* said = nullptr,
                   bool wiped = false);
  /// Between two attempts: wipes the directory where the interruption is to (result->wipe), then BringBack.
  /// \param said  gets what became of the directory, for people
  /// \return false: the job ends here; result->not_restarted says why, or go_on has
  bool Survive(int64_t next_attempt, jobs::JobResult* result, std::string* said,
               const std::function<bool()>& go_on);
  /// Sends from now on, if it does not yet. Its failures are told and affect nothing else.
  void Start();
  /// The job is over: returns once the last state is in the bucket, or why not was told. \return whether it
  /// is
  bool Finish();

 private:
  bool LooksEmpty() const;
  /// Sends the last state, and deletes what is in the directory. Nothing is deleted unless all of it is in
  /// the bucket.
  /// \error kFailedPrecondition  nothing was deleted, and why
  Status Wipe();
  Result<CheckpointReturn> RestoreOnce(const std::function<bool()>& go_on) const;
  Result<CheckpointReturn> Restore(bool patient, const std::function<bool()>& go_on) const;

  std::string run_directory_, directory_, url_;
  bool quiet_ = false;
  TendedProcess sender_;
  bool started_ = false;
};

}  // namespace tdbg::cli
