// This launcher's part in a job on several machines: who judges, what is said of the others, and how the job
// ended as a whole. Where the job is on one machine it is not there.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/run_events.h"
#include "jobs/job.h"
#include "jobs/nodes.h"
#include "jobs/run_directory.h"
#include "rules/engine.h"
#include "tdbg/status.h"
#include "watch/watcher.h"

namespace tdbg::cli {

class NodeRun {
 public:
  /// Joins the launch, or begins it.
  /// \param adopts  its command runs already, since only its launcher was killed
  /// \error as jobs::NodeLaunch::Join
  static Result<std::unique_ptr<NodeRun>> Join(const jobs::NodePlace& place, int64_t timeout_millis,
                                               const jobs::PrepareOptions& prepare, bool adopts, bool quiet,
                                               jobs::PreparedAttempt* prepared);

  int64_t node() const { return launch_->place().node; }
  int64_t nodes() const { return launch_->place().nodes; }
  bool judges() { return launch_->judges(); }
  /// "node 1 of 2"
  std::string Name() const;

  /// Of the watcher: may_speak.
  Status MaySpeak() { return launch_->MayJudge(); }
  /// Asks the launchers of all nodes to stop theirs.
  static Status StopAll(const std::string& run_directory, const std::string& rule);
  /// On the watching thread: follows the run as soon as this node is to judge, if it ever is.
  /// \param taking_over  called before it judges in another's place
  Status Follow(watch::Watcher& watcher, const std::function<void()>& taking_over);
  /// The command has ended. Waits for the others, says how all of it ended where this node judges.
  rules::JobEnd End(const jobs::PreparedAttempt& prepared, const jobs::JobResult& result,
                    const std::string& stop);
  /// What this node's watcher said, else what the judge's did.
  std::vector<rules::RuleStatus> Statuses(const watch::Watcher& watcher, const std::string& run_directory);
  bool took_over() const { return took_over_; }

  bool MayBeginNext() const { return launch_->MayBeginNext(); }
  Status BeginNext(jobs::PreparedAttempt* prepared, int64_t wall_nanos) {
    return launch_->BeginNext(prepared, wall_nanos);
  }

 private:
  NodeRun() = default;

  std::unique_ptr<jobs::NodeLaunch> launch_;
  bool adopts_ = false, judged_ = false, took_over_ = false;
};

}  // namespace tdbg::cli
