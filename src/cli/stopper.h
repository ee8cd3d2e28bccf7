// Passes requests to stop on to the attempt that trains.
#pragma once

#include <mutex>
#include <string>

#include "jobs/job.h"
#include "tdbg/status.h"

namespace tdbg::cli {

/// The watcher is made before the job, so that a bad rule is found before anything starts; it can ask for a
/// stop only once there is a job.
/// \threadsafety Any thread.
class Stopper {
 public:
  /// \param rule  which rule asks; empty: a caller
  /// \error kUnavailable  nothing has been started, or it has ended
  Status Stop(const std::string& rule);
  /// Who was the first to ask for a stop, empty if nothing did. Kept here, because between two attempts there
  /// is no Job to remember it.
  std::string asked();
  /// The command has ended and is about to be started again.
  void BeginGap();
  /// \param job  the attempt that trains now, and must outlive this until Set(nullptr)
  void Set(jobs::Job* job);

 private:
  std::mutex mutex_;
  jobs::Job* job_ = nullptr;  ///< guarded by mutex_, as all of these
  bool begun_ = false, in_gap_ = false;
  std::string asked_;
};

}  // namespace tdbg::cli
