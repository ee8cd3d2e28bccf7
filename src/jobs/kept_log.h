// From pieces of output to the log in the run: without secrets, and with the step at which each was printed.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "jobs/heartbeat.h"
#include "jobs/log_copy.h"
#include "jobs/log_messages.h"
#include "jobs/secret_mask.h"
#include "jobs/training_output.h"

namespace tdbg::jobs {

/// All that tdbg-log does in the run's directory; each call may wait for its disk. \threadsafety One thread.
class KeptLog {
 public:
  explicit KeptLog(LogTask task);
  void Keep(const LogPiece& piece);
  /// How much of what came is not in the log, because the disk was full or stalled.
  uint64_t lost() const { return writer_ ? writer_->all_lost() : 0; }

 private:
  struct Stream {
    OutputStream stream;
    SecretMask mask;
    bool torn = false;  ///< something was left out, and no line has begun since
  };
  struct Reading {
    int64_t monotonic_nanos, step;
  };

  int64_t StepAt(int64_t monotonic_nanos);
  void Write(const Stream& stream, const LogPiece& piece, const std::string& text);

  LogTask task_;
  Heartbeat heartbeat_;
  bool opened_ = false;
  std::optional<OutputWriter> writer_;
  std::vector<Stream> streams_;
  std::deque<Reading> readings_;  ///< each a new step, the oldest first
};

}  // namespace tdbg::jobs
