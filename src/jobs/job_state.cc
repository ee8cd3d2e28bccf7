#include "jobs/job_state.h"

#include <array>
#include <utility>

namespace tdbg::jobs {
namespace {

constexpr std::array<std::string_view, 5> kStatusNames = {"InProgress", "Stopping", "Completed", "Failed",
                                                          "Stopped"};
constexpr std::array<std::string_view, 14> kPhaseNames = {
    "Starting",   "Pending",  "Downloading",        "Training",           "Interrupted",
    "Restarting", "Updating", "Uploading",          "Stopping",           "Completed",
    "Failed",     "Stopped",  "MaxRuntimeExceeded", "MaxWaitTimeExceeded"};

template <typename Enum, size_t N>
std::optional<Enum> Named(const std::array<std::string_view, N>& names, std::string_view name) {
  for (size_t i = 0; i < N; ++i) {
    if (names[i] == name) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

}  // namespace

std::string_view JobStatusName(JobStatus status) { return kStatusNames[static_cast<size_t>(status)]; }
std::string_view JobPhaseName(JobPhase phase) { return kPhaseNames[static_cast<size_t>(phase)]; }
std::optional<JobStatus> JobStatusOf(std::string_view name) { return Named<JobStatus>(kStatusNames, name); }
std::optional<JobPhase> JobPhaseOf(std::string_view name) { return Named<JobPhase>(kPhaseNames, name); }

JobStatus StatusOfPhase(JobPhase phase, JobStatus before) {
  switch (phase) {
    case JobPhase::kUploading:
      return before;
    case JobPhase::kStopping:
      return JobStatus::kStopping;
    case JobPhase::kCompleted:
      return JobStatus::kCompleted;
    case JobPhase::kFailed:
      return JobStatus::kFailed;
    case JobPhase::kStopped:
    case JobPhase::kMaxRuntimeExceeded:
    case JobPhase::kMaxWaitTimeExceeded:
      return JobStatus::kStopped;
    default:
      return JobStatus::kInProgress;
  }
}

bool HasEnded(JobStatus status) { return status != JobStatus::kInProgress && status != JobStatus::kStopping; }

bool MayFollow(JobStatus status, JobPhase to) {
  if (HasEnded(status)) return false;
  // A job that is stopping never trains again; it may still complete or fail before it obeys.
  return status == JobStatus::kInProgress || StatusOfPhase(to, status) != JobStatus::kInProgress;
}

}  // namespace tdbg::jobs
