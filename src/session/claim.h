// Where a worker's part of a run lies: which directory, which attempt, which journal; and the small files
// that make a directory a run.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "plan/plan.h"
#include "tdbg/run.h"
#include "tdbg/status.h"

namespace tdbg::session {

/// What a worker has of a run directory from Run::Open on: its attempt, its files, its steps' numbers.
struct Claim {
  std::string directory;  ///< the run's, absolute
  int64_t attempt = 0;
  int64_t step_base = 0;
  std::string step_base_from;  ///< who says so; kBehind: nobody does, and it lies behind what was there
  std::vector<std::pair<ModeKey, int64_t>> mode_step_bases;
  std::optional<int64_t> step_base_said;  ///< what was asked for, where another worker had begun elsewhere
  std::string worker;                     ///< "worker_0"
  std::string worker_directory;
  std::string journal_path;
  std::vector<std::string> earlier;  ///< this worker's directories in earlier attempts
  std::string run_id;
  plan::Plan plan;
  /// Held while a worker claims its directory: attempts are numbered and shared files made by one process at
  /// a time.
  std::unique_ptr<base::FileLock> opening;
};

/// Chooses and lays out the directory. Candidates are the directory itself, then "<directory>-2", "-3", ...
/// (RunOptions::sibling_if_locked), each of which is passed over where this worker's place in it is taken:
/// its lock is held, or it ended in good order within the same start of the job ($TDBG_ATTEMPT). The search
/// begins at RunOptions::first_sibling.
/// \error kInvalidArgument (plan), kFailedPrecondition (taken), kAlreadyExists (a directory of something
/// else)
Result<Claim> ClaimDirectory(const RunOptions& options, base::FileSystem& files, const base::Clock& clock);

/// The attempt in which a worker that opens the run now would record, by RunOptions' `directory` and `rank`;
/// -1: its place there is taken, so that it would get a run beside it. Nothing is made or locked.
/// \error kInvalidArgument: no directory is said, or $TDBG_ATTEMPT is no number
Result<int64_t> NextAttempt(const std::string& directory, int64_t rank, base::FileSystem& files);

/// Writes ended.json: how the worker ended, for the next one that is started in the same attempt.
void LeaveWord(const Claim& claim, std::string_view reason, base::FileSystem& files);

/// The journal needs memory-mapped writes that survive this process. Network file systems and FUSE promise
/// neither.
bool IsOnLocalDisk(const std::string& path);

}  // namespace tdbg::session
