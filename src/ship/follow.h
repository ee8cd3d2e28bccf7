// Moves a run's steps into a destination: all that there are, or as they come.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "ship/destination.h"
#include "tdbg/status.h"
#include "tdbg/trial.h"

namespace tdbg::ship {

/// Everything the trial shows now. Flushes and finishes the destination.
/// \param progress  called with (steps done, steps in all) now and then; an error from it ends the export
///                  with that error. May be empty.
Status ShipAll(Trial& trial, Destination& destination,
               const std::function<Status(size_t done, size_t total)>& progress);

struct FollowOptions {
  std::string run;       ///< path; may not exist yet
  int64_t attempt = -1;  ///< as TrialOptions
  /// Somebody else knows when the job is over and calls JobEnded; its workers' goodbyes in between say
  /// nothing. False: the run is followed until its workers are gone.
  bool wait_for_job_end = false;
  /// Between two looks at the run, however often its doorbell rings: whoever looks at a chart does not see
  /// the difference, and the training keeps its processor.
  int64_t nap_millis = 1000;
};

/// One run, followed into one destination. Uses no CPU while nothing happens.
class Follower {
 public:
  explicit Follower(FollowOptions options) : options_(std::move(options)) {}

  /// Until the run has ended and everything of it is shipped.
  /// \error what the destination said first (it is not called again); kNotFound  there never was a run
  Status Follow(Destination& destination);
  /// After Follow: what of the run could not be read, one line each.
  const std::vector<std::string>& damage() const { return damage_; }
  /// From any thread: the job is gone; ship what there is, then return.
  void JobEnded();

 private:
  Status Open(std::unique_ptr<Trial>* trial);
  bool job_ended();
  void Nap(int64_t until_millis);

  const FollowOptions options_;
  std::vector<std::string> damage_;
  std::mutex mutex_;
  std::condition_variable ended_changed_;
  bool ended_ = false;         // guarded by mutex_
  Trial* wakeable_ = nullptr;  // guarded by mutex_
};

}  // namespace tdbg::ship
