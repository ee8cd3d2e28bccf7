// A launcher's entry in the registry of jobs. Nothing here fails: if the registry cannot be written, the user
// is told once, and the job runs unregistered.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "events/change.h"
#include "jobs/registry.h"

namespace tdbg::cli {

class Registration {
 public:
  /// \param job  as for Registry::Launch
  void Launch(const jobs::JobRecord& job);
  /// Takes over the entry of a job whose launcher is gone. \return the entry; nothing if the job is not
  /// registered
  std::optional<jobs::JobRecord> Adopt(const std::string& run_id);
  /// When the job was first started, as wall-clock time; 0: not known.
  int64_t StartedWallNanos() const;
  /// Empty if it is not registered.
  const std::string& name() const { return name_; }

  /// Reports every change to it from now on. It must outlive this object.
  void TellChanges(events::ChangeJournal* changes) { changes_ = changes; }

  void Training(int64_t pid, const std::string& message);
  void Move(jobs::JobPhase phase, const std::string& message);
  void BeginAttempt(int64_t attempt);
  void EndAttempt(int64_t attempt, int64_t exit_code, const std::string& message);

 private:
  void Say(const Status& status);

  std::optional<jobs::Registry> registry_;
  std::string run_id_, name_;
  events::ChangeJournal* changes_ = nullptr;
  jobs::JobStatus status_ = jobs::JobStatus::kInProgress;  ///< the last one that was reported to changes_
  bool said_ = false;
};

}  // namespace tdbg::cli
