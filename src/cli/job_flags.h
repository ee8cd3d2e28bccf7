// The flags of `tdbg run` that concern the job (restarts, limits, handlers), not what is recorded.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "jobs/job.h"
#include "jobs/nodes.h"
#include "tdbg/status.h"

namespace tdbg::cli {

class Flags;

/// After which kinds of end a command is started again, and how often.
struct RestartPolicy {
  int64_t most = 0;
  bool any_failure = true;  ///< an exit code other than 0, or a signal
  bool signal = false;      ///< it was ended by a signal
  bool preempted = false;   ///< SIGTERM or SIGKILL that nobody asked tdbg for
  std::set<int> codes;

  /// Should a command that ended so be started again? Never if the user or a rule stopped it.
  bool Restarts(const jobs::JobResult& result) const;
};

/// Rehearsals of reclaims: --interrupt-every.
struct Rehearsal {
  int64_t every_millis = -1, every_steps = -1;  ///< one of them, or neither
  int64_t left = -1;                            ///< how many are left; -1: no limit
  bool wipe = false;                            ///< the checkpoint directory is lost with the machine

  bool is_on() const { return every_millis >= 0 || every_steps >= 0; }
};

/// For Flag::Check.
std::string IsHttpUrl(const std::string& text);

struct JobFlags {
  bool detach = false, no_log = false, no_handlers = false, wipe = false;
  bool adopt = false;    ///< `tdbg resume`: the command still runs, and only its launcher is gone
  bool resumes = false;  ///< `tdbg resume`: the run is to be brought back from its bucket
  std::vector<std::string> secrets, restart_on, on_event, breaks;
  std::string max_runtime, checkpoint_directory, interrupt_every, upload, prometheus, otlp;
  std::string node, node_timeout, log_limit;
  int64_t max_restarts = 0, interruptions = -1;

  void Define(Flags& flags);
  /// \error kInvalidArgument
  Result<RestartPolicy> Restarts() const;
  /// Arguments of the job's `tdbg metrics` process; empty: metrics are not wanted.
  std::vector<std::string> MetricsArguments(const std::string& run_directory) const;
  /// In milliseconds; -1: no limit. \error kInvalidArgument
  Result<int64_t> MaxRuntimeMillis() const;
  /// \error kInvalidArgument
  Result<Rehearsal> InterruptEvery() const;
  /// Nothing for a job on one machine. \error kInvalidArgument
  Result<std::optional<jobs::NodePlace>> Node() const;
  Result<int64_t> NodeTimeoutMillis() const;
  /// Of an attempt's log. \error kInvalidArgument
  Result<uint64_t> LogLimit() const;
  /// The directory for checkpoints, where one is wanted: absolute from here on, and there.
  Status MakeCheckpointDirectory();
  /// --break. \error kInvalidArgument  a condition, or an action
  Status CheckBreaks() const;
  /// Sets them for this attempt and later ones.
  Status SetBreaks(const std::string& run_directory, int64_t attempt) const;
};

}  // namespace tdbg::cli
