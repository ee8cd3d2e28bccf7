// Coarse rows of a run, made and kept within a budget: by hand (`tdbg compact`), and beside a job.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "store/compactor/compactor.h"
#include "tdbg/status.h"

namespace tdbg::cli {

struct CompactionRequest {
  uint64_t budget_bytes = 0;  ///< of each worker; 0: nothing is dropped
  uint64_t slack_bytes = 0;   ///< what has outgrown it is brought so far below it
  int64_t around =
      500;  ///< so many steps stay at the beginning, at the end, and around what was found or marked
};

struct CompactedWorker {
  std::string name;  ///< "0/worker_0"
  store::CompactResult result;
};

/// What a follower knows from pass to pass.
struct CompactionPasses {
  std::map<std::string, std::string> last_segment;  ///< by worker: where it has nothing new it is not opened
  bool job_is_over = false;                         ///< the last pass
};

/// Every worker of every attempt, one after the other.
/// \param passes  of a follower. It leaves out workers that have nothing new, or that another compactor is at
///                work on, and goes on after a failure; the first one is returned.
/// \error kFailedPrecondition  another compactor is at work (not to a follower); kNotFound; CompactWorker's
Result<std::vector<CompactedWorker>> CompactRun(const std::string& run_directory,
                                                const CompactionRequest& request,
                                                CompactionPasses* passes = nullptr);

/// The run's own budget as its plan has it, less a quarter: at 80 % the writer begins to leave raw values
/// out. 0: it has none.
/// \error  no plan can be read
Result<uint64_t> OwnBudget(const std::string& run_directory);

/// Beside a job, all its attempts: starts `tdbg compact --follow` once there is something worth it.
class Compaction {
 public:
  Compaction();
  ~Compaction();
  Compaction(const Compaction&) = delete;
  /// Does nothing if it was started.
  void Start(const std::string& run_directory);
  /// The job is over: a last pass, for `grace_millis` at most. What it did not get to, `tdbg compact` does.
  void Finish(int64_t grace_millis);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tdbg::cli
