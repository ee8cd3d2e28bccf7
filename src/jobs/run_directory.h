// Run directories before and after training: naming them, laying them out, listing them, and tidying up after
// a job. Runs are found by listing directories, so a run may be copied, renamed or deleted by hand without
// telling anybody. (recent_runs.h only has hints.)
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "tdbg/status.h"

namespace tdbg::jobs {

/// Where runs are by default, below the working directory.
inline constexpr char kRunsRoot[] = "tdbg-runs";

/// What a run is called after its command: the script of `python train.py`, the module of `python -m
/// pkg.train`, else the command's own name; only letters, digits, '.', '_' and '-', at most 60 bytes.
std::string CommandName(const std::vector<std::string>& command);

/// What is trained, whatever its arguments: the script of the command as an absolute path, without links
/// where it is there; of a module or a program "NAME in DIRECTORY".
std::string ScriptOf(const std::vector<std::string>& command, const std::string& working_directory);

/// A new directory, "<below>/<command-name>-<YYYYmmdd-HHMMSS>", local time, with "-2", "-3", ... where that
/// is there already. It is taken by being made: of any number that ask in one second each has its own. Empty
/// at its end, it is removed again.
class FreshRunDirectory {
 public:
  /// \param shared  as PrepareOptions says
  /// \error kUnavailable, kResourceExhausted  nothing can be made there; the message says what to do
  static Result<FreshRunDirectory> Take(const std::string& below, const std::vector<std::string>& command,
                                        int64_t wall_nanos, bool shared);
  FreshRunDirectory(FreshRunDirectory&& other) noexcept;
  FreshRunDirectory& operator=(FreshRunDirectory&&) = delete;
  ~FreshRunDirectory();

  const std::string& path() const { return path_; }

 private:
  FreshRunDirectory(std::string path, std::string root) : path_(std::move(path)), root_(std::move(root)) {}

  std::string path_;
  std::string root_;  // if it was made for this one
};

/// The path made absolute without resolving links: what the user typed stays recognisable in messages.
std::string AbsolutePath(const std::string& path);

/// One start of a job, laid out on disk: run.json, plan.json, the control file, <attempt>/attempt.json.
struct PreparedAttempt {
  std::string run_directory;  ///< absolute
  int64_t attempt = 0;
  std::unique_ptr<base::FileLock>
      launcher_lock;  ///< keeps a second launcher out; dropped when the job is gone
};

struct PrepareOptions {
  std::string run_directory;  ///< made where missing; an existing run gets its next attempt
  std::vector<std::string> command;
  std::string plan_json;
  std::string rules_json;  ///< rules.json: what `tdbg check` and `tdbg watch` repeat
  std::string tdbg_version;
  int64_t wall_nanos = 0;
  bool shared = false;        ///< a new run is for whom the umask lets in, and not for its user alone
  bool start_attempt = true;  ///< false: whoever trains opens the attempt (attach)
};

/// \error kFailedPrecondition  a launcher or a worker of an earlier attempt is alive
/// \error kAlreadyExists       the directory is there, is not empty and is not a run
/// \error kUnimplemented       a run of a newer format version
Result<PreparedAttempt> PrepareAttempt(const PrepareOptions& options,
                                       base::FileSystem& files = base::LocalFileSystem());

/// The latest start of a job whose launcher is gone, for whoever looks after it from here on.
/// \error kFailedPrecondition  a launcher is alive
Result<PreparedAttempt> AdoptAttempt(const std::string& run_directory,
                                     base::FileSystem& files = base::LocalFileSystem());

/// The next start of a job whose launcher still holds its run.
/// \error kFailedPrecondition  a worker of an earlier attempt is alive
Status BeginNextAttempt(PreparedAttempt* prepared, int64_t wall_nanos,
                        base::FileSystem& files = base::LocalFileSystem());

/// run.json's `id`; empty where there is none.
std::string RunId(const std::string& run_directory, base::FileSystem& files = base::LocalFileSystem());

/// Numbers of the attempts in a run directory, ascending.
std::vector<int64_t> ListAttempts(const std::string& run_directory,
                                  base::FileSystem& files = base::LocalFileSystem());
/// Directories of one attempt's workers, sorted.
std::vector<std::string> ListWorkers(const std::string& run_directory, int64_t attempt,
                                     base::FileSystem& files = base::LocalFileSystem());
/// Is there a run.json?
bool IsRunDirectory(const std::string& path, base::FileSystem& files = base::LocalFileSystem());
/// Runs in `root` and in its folders (or `root` itself), by time of creation, oldest first.
std::vector<std::string> ListRuns(const std::string& root, base::FileSystem& files = base::LocalFileSystem());
/// Some worker of the attempt still holds its lock.
bool AnyWorkerAlive(const std::string& run_directory, int64_t attempt,
                    base::FileSystem& files = base::LocalFileSystem());
/// Does a launcher hold this run?
bool LauncherAlive(const std::string& run_directory, base::FileSystem& files = base::LocalFileSystem());

/// Seals what the attempt's dead workers left in their journals. Goes on after a failure; returns the first.
Status SealAttempt(const std::string& run_directory, int64_t attempt,
                   base::FileSystem& files = base::LocalFileSystem());
/// The same for all other attempts of the run: starts that the job made itself, and those that were killed
/// together with their launcher. Attempts that may not be written to are left alone without a word.
Status SealOtherAttempts(const std::string& run_directory, int64_t attempt,
                         base::FileSystem& files = base::LocalFileSystem());

}  // namespace tdbg::jobs
