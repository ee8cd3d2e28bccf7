#include "cli/compaction.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <limits>
#include <mutex>
#include <thread>

#include "base/background.h"
#include "base/file.h"
#include "cli/output.h"
#include "cli/tended_process.h"
#include "format/level.h"
#include "format/marks.h"
#include "format/version.h"
#include "plan/plan.h"
#include "rules/incidents.h"
#include "watch/events.h"
#include "watch/origins.h"

namespace tdbg::cli {
namespace {

/// Below this a worker's segments are read in no time and crowd out nothing.
constexpr uint64_t kWorthIt = uint64_t{64} << 20;
constexpr auto kLook = std::chrono::seconds(2);
constexpr const char* kWhat = "coarse rows (tdbg compact)";

/// Around what the run's events say was found, and what somebody marked.
/// \error  what may not be dropped cannot be read
Result<std::vector<store::Retention::Steps>> StepsToKeep(const std::string& run_directory, int64_t around) {
  std::vector<store::Retention::Steps> kept;
  const auto add = [&](int64_t first, int64_t last) {
    if (first < 0) return;
    constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();
    kept.push_back({std::max<int64_t>(first - around, 0), last > kEnd - around ? kEnd : last + around});
  };
  const auto statuses = watch::ReadStatuses(run_directory);
  if (!statuses.ok() && statuses.status().code() != Code::kNotFound) return statuses.status();
  if (statuses.ok()) {
    for (const rules::RuleStatus& status : *statuses) {
      add(status.nonfinite_since, status.nonfinite_since);
      for (const rules::Finding& finding : status.findings) add(finding.global_step, finding.global_step);
    }
    for (const rules::Incident& incident : rules::IncidentsOf(*statuses))
      add(incident.first_step, incident.first_step);
  }
  const auto marks = base::LocalFileSystem().ReadFile(base::JoinPath(run_directory, format::kMarksFile));
  if (!marks.ok() && marks.status().code() != Code::kNotFound) return marks.status();
  for (const format::Mark& mark : format::ParseMarks(marks.ok() ? *marks : std::string()))
    add(mark.first, mark.last);
  return kept;
}

std::string AttemptOf(const std::string& worker) { return std::filesystem::path(worker).parent_path(); }

/// The newest segment's name; empty: there is none.
std::string LastSegmentOf(const std::string& worker) {
  const auto segments = base::LocalFileSystem().List(base::JoinPath(worker, format::kSegmentsDir));
  std::string last;
  for (const base::DirEntry& entry : segments.ok() ? *segments : std::vector<base::DirEntry>()) {
    if (!entry.name.starts_with('.')) last = entry.name;
  }
  return last;
}

}  // namespace

Result<std::vector<CompactedWorker>> CompactRun(const std::string& run_directory,
                                                const CompactionRequest& request, CompactionPasses* passes) {
  store::CompactOptions options;
  options.retention.budget_bytes = request.budget_bytes;
  options.retention.slack_bytes = request.slack_bytes;
  options.retention.first = options.retention.newest = request.around;
  if (request.budget_bytes != 0) {
    TDBG_ASSIGN_OR_RETURN(options.retention.kept, StepsToKeep(run_directory, request.around));
  }
  TDBG_ASSIGN_OR_RETURN(const std::vector<std::string> workers, store::WorkerDirectoriesOf(run_directory));
  std::vector<CompactedWorker> out;
  Status first_error;
  for (const std::string& worker : workers) {
    const std::string last = passes == nullptr ? std::string() : LastSegmentOf(worker);
    if (passes != nullptr) {
      // What waited for more steps to come waits no longer when the job is over.
      const bool ends = passes->job_is_over && AttemptOf(worker) == AttemptOf(workers.back());
      if (!ends && passes->last_segment[worker] == last) continue;
    }
    const std::string name = worker.substr(run_directory.size() + 1);
    const auto result = store::CompactWorker(worker, options);
    if (result.ok()) {
      out.push_back({name, *result});
      if (passes != nullptr) passes->last_segment[worker] = last;
      continue;
    }
    if (passes == nullptr) return result.status().Annotate(name);
    if (result.status().code() != Code::kFailedPrecondition && first_error.ok())
      first_error = result.status().Annotate(name);
  }
  if (!first_error.ok()) return first_error;
  return out;
}

Result<uint64_t> OwnBudget(const std::string& run_directory) {
  TDBG_ASSIGN_OR_RETURN(const std::string text,
                        base::LocalFileSystem().ReadFile(base::JoinPath(run_directory, format::kPlanFile)));
  TDBG_ASSIGN_OR_RETURN(const plan::Plan plan, plan::Plan::FromJson(text));
  return plan.budget_bytes / 4 * 3;
}

struct Compaction::Impl {
  std::string run_directory;
  std::thread looking;
  std::mutex mutex;
  std::condition_variable over;
  bool is_over = false, has_begun = false;
  TendedProcess process;

  bool IsWorthIt() const {
    const auto workers = store::WorkerDirectoriesOf(run_directory);
    for (const std::string& worker : workers.ok() ? *workers : std::vector<std::string>()) {
      uint64_t bytes = 0;
      const auto segments = base::LocalFileSystem().List(base::JoinPath(worker, format::kSegmentsDir));
      for (const base::DirEntry& entry : segments.ok() ? *segments : std::vector<base::DirEntry>())
        bytes += entry.size;
      if (bytes >= kWorthIt) return true;
    }
    return false;
  }
  void Begin() { process.Start({"compact", run_directory, "--follow", "--budget", "own"}, kWhat); }
  void Look() {
    std::unique_lock lock(mutex);
    while (!over.wait_for(lock, kLook, [this] { return is_over; })) {
      if (!IsWorthIt()) continue;
      Begin();
      has_begun = true;
      return;
    }
  }
};

Compaction::Compaction() = default;
Compaction::~Compaction() { Finish(0); }

void Compaction::Start(const std::string& run_directory) {
  if (impl_) return;
  auto impl = std::make_unique<Impl>();
  impl->run_directory = run_directory;
  auto looking = base::StartInBackground("tdbg-compact", [impl = impl.get()] { impl->Look(); });
  if (!looking.ok()) return Note(fmt::format("{}: {}", kWhat, looking.status().message()));
  impl->looking = *std::move(looking);
  impl_ = std::move(impl);
}

void Compaction::Finish(int64_t grace_millis) {
  if (!impl_) return;
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->is_over = true;
  }
  impl_->over.notify_all();
  impl_->looking.join();
  if (!impl_->has_begun && grace_millis > 0 && impl_->IsWorthIt()) impl_->Begin();
  impl_->process.Finish(grace_millis);
  impl_.reset();
}

}  // namespace tdbg::cli
