// What a step tells of the processes that made it, beside what they recorded: for the one detector that asks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tdbg::rules {

/// What became of a worker's process.
struct WorkerFate {
  enum State : uint8_t { kRuns, kEnded, kDied };
  std::string name;
  int64_t attempt = 0;
  int64_t last_step = -1;  ///< global; -1: it committed none
  State state = kRuns;
  /// Somebody asked its attempt to stop: ranks without a handler of SIGTERM are then killed by it.
  bool stopped = false;
};

/// A StepContext that knows of workers is one of these, too.
class SeesWorkers {
 public:
  virtual ~SeesWorkers() = default;
  /// The workers of this attempt and of those before, as they are now and not as they were at this step: of
  /// one that lives yet nothing may be concluded. One that has died, and did not commit this step, is dead
  /// to a replay, too.
  virtual std::vector<WorkerFate> workers() const = 0;
  /// The exception that ended this worker of the latest attempt, "ValueError: ..."; empty: none did.
  virtual std::string ErrorOf(const std::string& worker) const = 0;
};

}  // namespace tdbg::rules
