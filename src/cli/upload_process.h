// The process that uploads a job's run to a bucket while it trains (`tdbg-store upload --follow`).
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/posix.h"
#include "base/process.h"
#include "tdbg/status.h"

namespace tdbg::cli {

/// A run's directory on this machine, and the bucket it is uploaded to.
struct Destination {
  std::string directory;  ///< empty: the default, as for any run
  std::string url;        ///< empty: no upload
  bool spool = false;     ///< remove `directory` once all of it is in the bucket
};
/// \param directory, upload  --dir, which may be a bucket, and --upload
/// \error kInvalidArgument  a bucket in both; kFailedPrecondition  no home for the spool
Result<Destination> DestinationOf(const std::string& directory, const std::string& upload);
/// Call when everything is in the bucket: removes the directory if it is a spool.
void LetGoOfSpool(const Destination& destination);

/// Can a run be uploaded there? The bucket exists and we may write to it, and the prefix is empty or has this
/// run. Called before anything is made or started.
/// \param run_id  of an existing run; otherwise empty
/// \error tdbg-store's message; the error's class follows from its exit code
Status CheckUpload(const std::string& url, const std::string& run_id);

/// Starts the uploader, and starts it again where it was killed: a machine without memory kills one process,
/// and not the job.
class UploadProcess {
 public:
  UploadProcess() = default;
  ~UploadProcess();
  UploadProcess(const UploadProcess&) = delete;

  /// Returns once the prefix is claimed for this run. \error it is not, and nothing was started
  /// \param log  what it has to say goes to this file's end; empty: to our standard error, which a job in the
  /// background must not hold open
  /// \param beside  a training that runs already, and is to be looked after whatever the store does: waits
  /// for an uploader that a dead launcher has left; where it cannot be started then, that is said, and is no
  /// error
  /// \pre jobs::BlockForwardedSignals(): what is sent to the job is not for our thread
  Status Start(const std::string& run_directory, const std::string& url, const std::string& log, bool beside);
  /// The job is over and everything is on disk: lets it send the rest, which it tries for ten minutes while
  /// the store fails. It has said by then what is left; where it was killed too often, that is said here.
  /// \return whether everything is there
  bool Finish();
  /// After Finish: what the store was then found to have of the run, "42 files, 3.1 MB".
  const std::string& there() const { return there_; }

 private:
  Status Claim();
  /// Until the uploader has ended by itself, or is killed whenever it is started.
  void Keep();
  /// false: the job is over, and so is the pause.
  bool Pause(int64_t millis);

  std::string run_directory_, url_, log_;
  std::string uploader_;  ///< whose the prefix is: the first process's name for itself, and its successors'
  std::optional<base::Child> process_;
  std::optional<base::ExitState> ended_;  ///< of the last process
  base::UniqueFd answers_;                ///< of the last process
  std::string there_;
  bool given_up_ = false;
  std::mutex mutex_;
  std::condition_variable job_is_over_;
  bool over_ = false;            ///< guarded by mutex_, as is the next
  base::UniqueFd job_is_alive_;  ///< closed: it is not
  std::thread keeper_;
};

}  // namespace tdbg::cli
