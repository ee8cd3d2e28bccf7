// A training's output on its way through tdbg-log, as the launcher sees it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/posix.h"
#include "base/process.h"
#include "jobs/log_messages.h"
#include "jobs/output_pump.h"
#include "jobs/training_output.h"
#include "tdbg/status.h"

namespace tdbg::jobs {

struct TrainingLogOptions {
  std::string run_directory;
  int64_t attempt = 0, node = 0;
  uint64_t limit_bytes = kDefaultLogBytes;
  std::vector<std::string> secrets;
  bool forward = true;  ///< what is printed also goes to our own standard output and error
};

/// For each of the two streams that is open, gives the command a terminal if ours is one, otherwise a pipe.
/// If both lead to the same place they share one, so that their order is kept.
///
/// A thread of its own replaces a tdbg-log that is killed, whatever the launcher is doing meanwhile: as long
/// as we hold the reading end of a pipe that nobody reads, whoever prints waits for ever. Only what the
/// killed one held is lost. If no tdbg-log is to be had, that thread's process hands the output on itself.
/// \threadsafety One thread.
class TrainingLog {
 public:
  /// \pre    BlockForwardedSignals() was called, SIGPIPE is ignored
  /// \error  tdbg-log is missing or cannot be started: then give the command our own streams
  static Result<std::unique_ptr<TrainingLog>> Start(const TrainingLogOptions& options);
  ~TrainingLog();

  /// Why output is handed on but not kept; OK: it is kept.
  const Status& kept() const { return kept_; }
  /// The command's standard output and error; -1: our own.
  int output_fd() const { return output_.get(); }
  int error_fd() const { return same_ ? output_.get() : error_.get(); }
  /// Call when the command has them: closes our copies, so that readers get the end of file.
  void Started(pid_t command);
  /// Waits until everything that the command printed was handed on, at most this long.
  void Finish(int64_t longest_millis);
  /// After Finish(). Why what the command printed could not be written where our standard output or error
  /// leads ("standard output: No space left on device"); empty: it could, or its reader went away.
  const std::string& output_error() const { return output_error_; }
  /// After Finish(). How much of the output is not in the log: its disk was full, or stalled.
  uint64_t lost_bytes() const { return lost_bytes_; }

 private:
  TrainingLog() = default;
  Status StartKeeper();
  Status Add(int target, uint32_t stream, base::UniqueFd* command_end);
  void Tend();
  void StopTending();
  void WaitForNews(int64_t millis);
  void Look();
  void Listen();
  void OutputGone(size_t index, int error);
  void HandOnOurselves();

  LogTask task_;
  Status kept_;
  base::UniqueFd output_, error_;
  bool same_ = false, forward_ = true;
  std::string output_error_;
  uint64_t lost_bytes_ = 0;

  std::mutex mutex_;
  std::vector<base::UniqueFd> read_ends_;  // guarded by mutex_, as all of these
  base::UniqueFd socket_;
  std::optional<base::Child> keeper_;
  std::vector<OutputPump> pumps_;  ///< where there is no keeper; as many as sources that are left
  std::vector<size_t> pumped_;     ///< their sources
  pid_t command_ = 0;
  int restarts_ = 0;
  bool done_ = false, end_ = false;
  base::UniqueFd wake_;
  std::thread tender_;
};

}  // namespace tdbg::jobs
