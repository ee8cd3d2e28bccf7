// The states of a job, and which may follow which.
//
//   InProgress: Starting -> Training -> (Interrupted -> Restarting -> Training ...) -> Completed | Failed
//        |
//        +----> Stopping: Stopping -> Stopped: Stopped | MaxRuntimeExceeded
//
// The words are those of SageMaker's training jobs, so that an interface with those words needs no
// translation. A job that has ended becomes InProgress again only when it is resumed.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tdbg::jobs {

/// Stored by name.
enum class JobStatus : uint8_t { kInProgress, kStopping, kCompleted, kFailed, kStopped };

/// What a status is about; stored by name.
enum class JobPhase : uint8_t {
  kStarting,
  kPending,
  kDownloading,
  kTraining,
  kInterrupted,
  kRestarting,
  kUpdating,
  kUploading,
  kStopping,
  kCompleted,
  kFailed,
  kStopped,
  kMaxRuntimeExceeded,
  kMaxWaitTimeExceeded,
};

std::string_view JobStatusName(JobStatus status);
std::string_view JobPhaseName(JobPhase phase);
std::optional<JobStatus> JobStatusOf(std::string_view name);
std::optional<JobPhase> JobPhaseOf(std::string_view name);

/// The status that a phase belongs to. Uploading keeps the status of the phase before it: \param before
JobStatus StatusOfPhase(JobPhase phase, JobStatus before);
/// True for Completed, Failed, Stopped.
bool HasEnded(JobStatus status);
/// May `to` follow? Nothing may follow an end; to start again, see Registry::Launch.
bool MayFollow(JobStatus status, JobPhase to);

}  // namespace tdbg::jobs
