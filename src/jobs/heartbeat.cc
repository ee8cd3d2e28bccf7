#include "jobs/heartbeat.h"

#include <cstddef>
#include <span>

#include "base/clock.h"
#include "format/journal.h"
#include "format/run_files.h"
#include "format/version.h"
#include "jobs/run_directory.h"

namespace tdbg::jobs {
namespace {

// How often to look for new workers and replaced journals.
constexpr int64_t kLookNanos = 200'000'000;
constexpr int64_t kLookAgainNanos = 5'000'000'000;

}  // namespace

Heartbeat::Heartbeat(std::string run_directory, int64_t attempt)
    : run_directory_(std::move(run_directory)), attempt_(attempt) {}

void Heartbeat::Look(int64_t now_nanos) {
  next_look_nanos_ = now_nanos + (journal_ ? kLookAgainNanos : kLookNanos);
  base::FileSystem& files = base::LocalFileSystem();
  for (const std::string& worker : ListWorkers(run_directory_, attempt_)) {
    const auto text = files.ReadFile(base::JoinPath(worker, format::kWorkerFile), 1u << 20);
    if (!text.ok()) continue;
    const auto info = format::WorkerInfo::FromJson(*text);
    if (!info.ok()) continue;
    const std::string& path = info->journal_path;
    auto journal = files.OpenReadable(path.starts_with('/') ? path : base::JoinPath(worker, path));
    if (!journal.ok()) continue;
    journal_ = *std::move(journal);
    next_look_nanos_ = now_nanos + kLookAgainNanos;
    return;
  }
}

int64_t Heartbeat::Step() {
  const int64_t now = base::SystemClock().MonotonicNanos();
  if (now >= next_look_nanos_) Look(now);
  int64_t step = -1;
  if (!journal_) return step_;
  const auto got = journal_->ReadAt(offsetof(format::JournalHeader, last_seen_step),
                                    std::as_writable_bytes(std::span(&step, 1)));
  if (got.ok() && *got == sizeof(step) && step > step_) step_ = step;
  return step_;
}

}  // namespace tdbg::jobs
