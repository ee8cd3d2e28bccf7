// A training's output on its way through tdbg-log, as the launcher sees it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/posix.h"
#include "base/process.h"
#include "jobs/log_messages.h"
#include "tdbg/status.h"

namespace tdbg::jobs {

struct TrainingLogOptions {
  std::string run_directory;
  int64_t attempt = 0, node = 0;
  uint64_t limit_bytes = 256u << 20;
  std::vector<std::string> secrets;
  bool forward = true;  ///< what is printed also goes to our own standard output and error
};

/// For each of the two streams that is open, gives the command a terminal if ours is one, otherwise a pipe.
/// If both lead to the same place they share one, so that their order is kept. \threadsafety One thread.
class TrainingLog {
 public:
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
  /// Call this periodically: replaces a tdbg-log that was killed. Only what that one held is lost.
  void Tend();
  /// Waits until everything that the command printed was handed on, at most this long.
  void Finish(int64_t longest_millis);

 private:
  TrainingLog() = default;
  Status StartKeeper();
  void Listen();
  Status Add(int target, uint32_t stream, base::UniqueFd* command_end);

  LogTask task_;
  Status kept_;
  base::UniqueFd output_, error_;
  std::vector<base::UniqueFd> read_ends_;
  base::UniqueFd socket_;
  std::optional<base::Child> keeper_;
  pid_t command_ = 0;
  bool same_ = false, forward_ = true;
  int restarts_ = 0;
};

}  // namespace tdbg::jobs
