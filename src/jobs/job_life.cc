#include "jobs/job_life.h"

#include <optional>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/process.h"
#include "format/json_fields.h"
#include "format/version.h"
#include "jobs/nodes.h"
#include "jobs/run_directory.h"

namespace tdbg::jobs {
namespace {

// Which of several machines' parts this is; -1: the job is on one machine.
int64_t NodeOf(const JobRecord& job) {
  int64_t node = -1;
  if (const auto settings = format::ParseJsonObject(job.settings, "settings"); settings.ok())
    format::GetField(*settings, "node", &node);
  return node;
}

std::string HostOf(const std::string& worker) {
  std::string host;
  const auto text = base::LocalFileSystem().ReadFile(base::JoinPath(worker, format::kWorkerFile), 1u << 20);
  if (!text.ok()) return host;
  if (const auto json = format::ParseJsonObject(*text, "worker.json"); json.ok())
    format::GetField(*json, "host", &host);
  return host;
}

struct End {
  JobPhase phase = JobPhase::kFailed;
  std::string message = "the launcher was killed, and the command is gone; how it ended is not known";
};

End EndOfGone(const JobRecord& job) {
  End found;
  const std::string end =
      WorkersEnd(job.run_directory, job.attempt, NodeOf(job) >= 0 ? job.host : std::string());
  if (RunId(job.run_directory) != job.run_id) {
    found.message = "the launcher and the run directory are gone";
  } else if (end == "completed") {
    found.phase = JobPhase::kCompleted;
    found.message = "the launcher was killed; the training said that it was complete";
  } else if (!end.empty()) {
    found.message = "the launcher was killed; the training ended with '" + end + "'";
  }
  return found;
}

}  // namespace

std::string WorkersEnd(const std::string& run_directory, int64_t attempt, const std::string& host) {
  std::string end;
  for (const std::string& worker : ListWorkers(run_directory, attempt)) {
    if (!host.empty() && HostOf(worker) != host) continue;
    const auto text = base::LocalFileSystem().ReadFile(base::JoinPath(worker, "ended.json"), 1u << 20);
    std::string reason;
    if (text.ok()) {
      if (const auto json = format::ParseJsonObject(*text, "ended.json"); json.ok())
        format::GetField(*json, "reason", &reason);
    }
    if (reason.empty()) return "";
    if (end.empty() || reason != "completed") end = reason;
  }
  return end;
}

JobLife LifeOf(const JobRecord& job) {
  if (HasEnded(job.status)) return JobLife::kEnded;
  if (job.host != base::HostName()) return JobLife::kElsewhere;
  // If the run was removed and another one made in its place, that is another job's.
  if (const int64_t node = NodeOf(job); node >= 0 && RunId(job.run_directory) == job.run_id) {
    // The other machines' launchers and workers say nothing of this part.
    if (NodeLauncherAlive(job.run_directory, node)) return JobLife::kWatched;
  } else if (RunId(job.run_directory) == job.run_id) {
    if (LauncherAlive(job.run_directory)) return JobLife::kWatched;
    if (AnyWorkerAlive(job.run_directory, job.attempt)) return JobLife::kUnwatched;
  }
  return IsAlive(job.process) ? JobLife::kUnwatched : JobLife::kGone;
}

Status Reconcile(Registry& registry, std::span<JobRecord> jobs, int64_t wall_nanos) {
  std::vector<std::pair<JobRecord*, End>> gone;
  for (JobRecord& job : jobs) {  // before the registry is locked: a run's disk may be slow to answer
    if (LifeOf(job) == JobLife::kGone) gone.emplace_back(&job, EndOfGone(job));
  }
  if (gone.empty()) return OkStatus();
  TDBG_ASSIGN_OR_RETURN(Transaction together, registry.Together());
  for (const auto& [job, end] : gone) {
    // It may have ended after the registry answered and before we looked.
    auto now = registry.FindRun(job->run_id);
    if (!now.ok() && now.status().code() == Code::kNotFound) continue;  // forgotten meanwhile
    TDBG_RETURN_IF_ERROR(now.status());
    *job = *std::move(now);
    if (HasEnded(job->status)) continue;
    TDBG_RETURN_IF_ERROR(
        registry.EndAttempt(job->run_id, job->attempt, std::nullopt, end.message, wall_nanos));
    const Status moved = registry.Move(job->run_id, end.phase, end.message, wall_nanos);
    if (!moved.ok() && moved.code() != Code::kFailedPrecondition) return moved;
    TDBG_ASSIGN_OR_RETURN(*job, registry.FindRun(job->run_id));
  }
  return together.Commit();
}

std::string StateText(const JobRecord& job, JobLife life) {
  std::string text;
  switch (job.phase) {
    case JobPhase::kMaxRuntimeExceeded:
      text = "stopped (max runtime)";
      break;
    case JobPhase::kMaxWaitTimeExceeded:
      text = "stopped (max wait)";
      break;
    default:
      text = JobPhaseName(job.phase);
      for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  if (life == JobLife::kUnwatched) text += ", without a launcher";
  if (life == JobLife::kElsewhere) text += " on " + job.host;
  return text;
}

}  // namespace tdbg::jobs
