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
  int64_t attempt = 0;
  uint64_t limit_bytes = 256u << 20;
  std::vector<std::string> secrets;
  bool forward = true;  ///< what is printed also goes to our own standard output and error
};

/// Gives the command a terminal where ours is one, else a pipe, for each of the two streams that is open; one
/// for both where both lead to the same place, so that their order stays. \threadsafety One thread.
class TrainingLog {
 public:
  /// \error  tdbg-log is missing or cannot be started: the command is to have our own streams
  static Result<std::unique_ptr<TrainingLog>> Start(const TrainingLogOptions& options);
  ~TrainingLog();

  /// Why nothing of it is kept although it passes through; OK: it is.
  const Status& kept() const { return kept_; }
  /// What the command gets as standard output and error; -1: what we have.
  int output_fd() const { return output_.get(); }
  int error_fd() const { return same_ ? output_.get() : error_.get(); }
  /// The command has them: closes ours, so that their end is seen.
  void Started(pid_t command);
  /// To be called now and then. A tdbg-log that somebody killed is replaced; nothing is lost meanwhile but
  /// what it held.
  void Tend();
  /// Waits until what the command printed has arrived, for at most so long.
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
