#include "tdbg/trial.h"

#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "base/clock.h"
#include "base/durations.h"
#include "base/text.h"
#include "format/drop_details.h"
#include "format/json_fields.h"
#include "format/version.h"
#include "trial/coarse.h"
#include "trial/impl.h"
#include "trial/remote_run.h"
#include "trial/run_kind.h"

namespace tdbg {
namespace {

// How long a new attempt or a late worker may go unnoticed while somebody else keeps the reader busy.
constexpr int64_t kDiscoveryNanos = 500'000'000;
// The same while a worker that was never seen holds up complete steps, and with them findings.
constexpr int64_t kAwaitedNanos = 50'000'000;
// Without notification a worker's death is only noticed by looking: at the latest after this time.
constexpr int64_t kLongestWaitMillis = 1000;

int64_t NowNanos() { return base::SystemClock().MonotonicNanos(); }

std::string WhatIsThere(const std::string& path) {
  base::FileSystem& files = base::LocalFileSystem();
  const auto entries = files.List(path);
  if (!entries.ok()) return entries.status().message();
  std::vector<std::string> runs, names;
  for (const base::DirEntry& entry : *entries) {
    names.push_back(entry.name);
    if (entry.is_directory && RunKindAt(base::JoinPath(path, entry.name)) != RunKind::kNone) {
      runs.push_back(entry.name);
    }
  }
  const std::vector<std::string>& list = runs.empty() ? names : runs;
  std::string text = runs.empty() ? (names.empty() ? "it is empty" : "it holds") : "it holds the runs";
  for (size_t i = 0; i < std::min<size_t>(list.size(), 8); ++i) text += " " + list[i];
  if (list.size() > 8) text += " and " + std::to_string(list.size() - 8) + " more";
  return text;
}

std::string AttemptsThere(const std::string& path) {
  std::string text;
  const auto entries = base::LocalFileSystem().List(path);
  for (const base::DirEntry& entry : entries.ok() ? *entries : std::vector<base::DirEntry>()) {
    if (entry.is_directory && base::ParseInt(entry.name)) text += " " + entry.name;
  }
  return text.empty() ? "the run has none yet" : "there are:" + text;
}

// Where nobody tells when a run appears: once in a while.
Result<std::shared_ptr<RemoteRun>> OpenRemote(const std::string& path, int64_t wait_millis,
                                              int64_t deadline) {
  while (true) {
    auto run = RemoteRun::Open(path);
    const bool not_yet = !run.ok() && run.status().code() == Code::kNotFound;
    if (!not_yet || wait_millis == 0) return run;
    const int64_t left_millis = wait_millis < 0 ? kLongestWaitMillis : (deadline - NowNanos()) / 1'000'000;
    if (left_millis <= 0)
      return Status(Code::kDeadlineExceeded,
                    "no run appeared within " + std::to_string(wait_millis) + " ms: " + path);
    ::usleep(static_cast<useconds_t>(1000 * std::min(left_millis, kLongestWaitMillis)));
  }
}

}  // namespace

Trial::Trial(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Trial::~Trial() = default;

Result<std::unique_ptr<Trial>> Trial::Open(const std::string& path, const TrialOptions& options) {
  base::FileSystem& files = base::LocalFileSystem();
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  while (impl->path.size() > 1 && impl->path.back() == '/') impl->path.pop_back();
  impl->options = options;
  const int64_t deadline = NowNanos() + base::NanosOfMillis(options.wait_millis);
  if (RemoteRun::IsRemote(impl->path)) {
    TDBG_ASSIGN_OR_RETURN(impl->remote, OpenRemote(impl->path, options.wait_millis, deadline));
    impl->path = impl->remote->directory();
  } else {
    impl->remote = RemoteRun::Of(impl->path);
  }
  const std::string run_file = base::JoinPath(impl->path, format::kRunFile);
  RunKind kind = RunKindAt(impl->path);
  for (; kind == RunKind::kNone; kind = RunKindAt(impl->path)) {
    // Before anybody waits for it: time lets nobody in.
    if (::access(impl->path.c_str(), R_OK | X_OK) != 0 && errno == EACCES) {
      return FailedPrecondition("no permission to read " + impl->path +
                                "; runs are their owner's alone unless made with `tdbg run --shared`");
    }
    if (options.wait_millis == 0) {
      if (!files.Exists(impl->path)) return NotFound("no run there: " + impl->path);
      return NotFound("not a run (no " + std::string(format::kRunFile) + "; " + WhatIsThere(impl->path) +
                      "): " + impl->path);
    }
    if (options.wait_millis > 0 && NowNanos() >= deadline) {
      return Status(Code::kDeadlineExceeded,
                    "no run appeared within " + std::to_string(options.wait_millis) + " ms: " + impl->path);
    }
    impl->waiter.Watch(run_file);  // does not exist: polled
    (void)impl->waiter.Wait(100);
  }
  if (kind == RunKind::kSmdebug) {
    TDBG_RETURN_IF_ERROR(impl->OpenSmdebug());
  } else {
    TDBG_ASSIGN_OR_RETURN(const std::string json, files.ReadFile(run_file));
    auto run = format::RunInfo::FromJson(json);
    if (run.ok()) {
      impl->run = *run;
    } else if (run.status().code() == Code::kUnimplemented) {
      return run.status().Annotate(run_file);
    } else {
      impl->own_damage.push_back(std::string(format::kRunFile) + ": " + run.status().message());
    }
  }
  TDBG_RETURN_IF_ERROR(impl->Refresh().status());
  if (options.attempt >= 0 && impl->attempts.empty()) {
    return NotFound("attempt " + std::to_string(options.attempt) + " is not there (" +
                    AttemptsThere(impl->path) + "): " + impl->path);
  }
  return std::unique_ptr<Trial>(new Trial(std::move(impl)));
}

Result<bool> Trial::Impl::Refresh() {
  bool news = false;
  const Status status = TakeIn(&news);
  // Also after a failure, now or in the last Refresh: what was taken in before it is not in the overlay yet.
  news |= overlay_stale;
  if (news) {
    ReadPlan();
    RebuildOverlay();
    ++generation;
  }
  if (!status.ok()) return status;
  return news;
}

Status Trial::Impl::TakeIn(bool* news) {
  if (remote) TDBG_RETURN_IF_ERROR(remote->Refresh());
  const auto anyone_writing = [this] {
    return std::any_of(slots.begin(), slots.end(),
                       [](const auto& s) { return s->info.alive && !s->info.ended; });
  };
  bool wrote = false, again = false;
  do {
    // In a mirror the locks are those of whoever reads it, too, and that one may have gone a moment ago.
    if (remote && again) TDBG_RETURN_IF_ERROR(remote->Refresh(/*now=*/true));
    again = true;
    wrote = anyone_writing();
    const bool absent = !attempts.empty() && !AbsentRanks(attempts.back()).empty();
    const int64_t pause = absent ? kAwaitedNanos : kDiscoveryNanos;
    if (smdebug || !wrote || NowNanos() - last_discovery_nanos > pause) {
      TDBG_RETURN_IF_ERROR(Discover(news));
    }
    for (const auto& slot : slots) {
      TDBG_ASSIGN_OR_RETURN(const bool changed, slot->reader->Refresh());
      *news |= changed;
    }
    workers.resize(slots.size());
    for (size_t i = 0; i < slots.size(); ++i) {
      DescribeWorker(*slots[i]);
      workers[i] = slots[i]->info;
    }
    // The last writing worker has just gone, and without any its steps would count as complete, for good. But
    // another worker may have come since the last discovery, or the whole run may be out of reach together
    // with its locks: so look again.
  } while (wrote && !anyone_writing());
  const bool was_awaited = awaited;
  awaited = !smdebug && !anyone_writing() && !attempts.empty() && !attempts.back().workers.empty() &&
            !AbsentRanks(attempts.back()).empty() && LauncherIsThere();
  const bool was_restarting = restarting;
  restarting = !smdebug && !anyone_writing() && !attempts.empty() && LauncherStartsItAgain();
  *news |= awaited != was_awaited || restarting != was_restarting;
  return OkStatus();
}

void Trial::Impl::DescribeWorker(WorkerSlot& slot) {
  const store::WorkerReader& reader = *slot.reader;
  const std::span<const format::TensorDef> defs = reader.tensors();
  for (; slot.tensors_seen < defs.size(); ++slot.tensors_seen) {
    const TensorIndex index = tensors.Add(defs[slot.tensors_seen]);
    slot.keeps_parts |= IsPart(defs[slot.tensors_seen]);
    slot.tensor_of.push_back(index);
    if (index >= slot.ids_of.size()) slot.ids_of.resize(index + 1);
    slot.ids_of[index].push_back(static_cast<format::TensorId>(slot.tensors_seen));
  }
  if (slot.rewrites_seen != reader.rewrites()) {
    slot.rewrites_seen = reader.rewrites();
    slot.ForgetRows();
    AttemptSlot& attempt = attempts[slot.attempt_index];
    ForgetCommits(attempt);
    for (const WorkerIndex worker : attempt.workers) TakeCommits(*slots[worker], /*again=*/true);
  } else {
    TakeCommits(slot);
  }
  slot.info.alive = reader.alive();
  slot.info.ended = reader.ended();
  slot.info.last_seen_step = std::max(slot.info.last_step, reader.last_seen_step());
  slot.info.last_seen_wall_nanos = reader.last_seen_wall_nanos();
}

RunState Trial::Impl::State() const {
  if (SmdebugEndedEmpty()) return RunState::kEnded;
  if (attempts.empty()) return RunState::kWaiting;
  if (attempts.back().workers.empty()) {
    if (!job_ended || job_ended->attempt < attempts.back().number) return RunState::kWaiting;
    return job_ended->failed ? RunState::kCrashed : RunState::kEnded;
  }
  if (awaited) return RunState::kRunning;
  bool all_ended = true;
  for (const WorkerIndex worker : attempts.back().workers) {
    const TrialAccess::Worker& info = slots[worker]->info;
    if (info.alive && !info.ended) return RunState::kRunning;
    all_ended &= info.ended;
  }
  return all_ended ? RunState::kEnded : RunState::kCrashed;
}

const AttemptSlot* Trial::Impl::AttemptOf(int64_t number) const {
  const auto at = std::lower_bound(attempts.begin(), attempts.end(), number,
                                   [](const AttemptSlot& a, int64_t n) { return a.number < n; });
  return at != attempts.end() && at->number == number ? &*at : nullptr;
}

const std::string& Trial::path() const { return impl_->path; }
std::string Trial::name() const {
  return impl_->run.name.empty() ? base::BaseName(impl_->path) : impl_->run.name;
}
Result<bool> Trial::Refresh() { return impl_->Refresh(); }

bool Trial::WaitForChange(int64_t timeout_millis) {
  // What happened between the last Refresh and the first Watch has rung for nobody: let the caller look
  // again.
  if (impl_->Watch()) return true;
  const int64_t deadline = NowNanos() + base::NanosOfMillis(timeout_millis);
  const bool endless = timeout_millis < 0;
  const int64_t left_millis =
      endless ? kLongestWaitMillis : std::max<int64_t>(0, (deadline - NowNanos()) / 1'000'000);
  const bool changed = impl_->waiter.Wait(static_cast<int>(std::min(left_millis, kLongestWaitMillis)));
  return changed || endless || timeout_millis > kLongestWaitMillis;
}

void Trial::Wake() { impl_->waiter.Wake(); }
RunState Trial::state() const { return impl_->State(); }
bool Trial::loaded_all_steps() const {
  const RunState state = impl_->State();
  return (state == RunState::kEnded || state == RunState::kCrashed) && !impl_->restarting;
}

std::vector<int64_t> Trial::attempts() const {
  std::vector<int64_t> out;
  for (const AttemptSlot& attempt : impl_->attempts) out.push_back(attempt.number);
  return out;
}

std::vector<std::string> Trial::workers() const {
  std::vector<std::string> out;
  if (impl_->attempts.empty()) return out;
  for (const WorkerIndex worker : impl_->attempts.back().workers)
    out.push_back(impl_->slots[worker]->info.name);
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<WorkerEnd> Trial::worker_ends() const {
  std::vector<WorkerEnd> out;
  if (impl_->attempts.empty()) return out;
  for (const WorkerIndex worker : impl_->attempts.back().workers) {
    const auto& slot = *impl_->slots[worker];
    if (slot.info.alive && !slot.info.ended) continue;
    WorkerEnd end;
    end.worker = slot.info.name;
    end.last_step = slot.info.last_step;
    if (slot.info.ended) {
      end.reason = "closed";  // what smdebug wrote says no more than that
      if (const auto said = format::ParseJsonObject(slot.reader->end_json(), "end"); said.ok()) {
        format::GetField(*said, "reason", &end.reason);
        format::GetField(*said, "message", &end.message);
      }
    }
    out.push_back(std::move(end));
  }
  std::ranges::sort(out, {}, &WorkerEnd::worker);
  return out;
}

int64_t Trial::world_size() const {
  return impl_->attempts.empty() ? 0 : TrialAccess(*this).world_size(impl_->attempts.back().number);
}

std::vector<ModeKey> Trial::modes() const {
  std::vector<ModeKey> out;
  for (int mode = 1; mode <= 3; ++mode) {
    if (impl_->modes_seen[mode]) out.push_back(static_cast<ModeKey>(mode));
  }
  return out;
}

std::vector<DroppedInfo> Trial::dropped() const {
  std::vector<DroppedInfo> out;
  for (const auto& slot : impl_->slots) {
    const std::vector<format::Drop> drops = slot->reader->dropped();
    if (drops.empty()) continue;
    format::DropDetails details;
    for (const format::ContextRecord& record : slot->reader->context()) {
      if (record.topic == format::DropDetails::kTopic) details.AddJson(record.json);
    }
    for (const format::Drop& drop : drops) {
      if (drop.count == 0) continue;
      DroppedInfo info;
      info.worker = slot->info.name;
      if (impl_->attempts.size() > 1) info.worker = std::to_string(slot->info.attempt) + "/" + info.worker;
      info.cause = format::DropCauseName(static_cast<format::DropCause>(drop.cause));
      info.kind = format::DropKindName(static_cast<format::DropKind>(drop.kind));
      info.text = details.Sentence(static_cast<format::DropCause>(drop.cause),
                                   static_cast<format::DropKind>(drop.kind));
      info.count = drop.count;
      info.bytes = drop.bytes;
      info.first_step = drop.first_step;
      info.last_step = drop.last_step;
      out.push_back(std::move(info));
    }
  }
  return out;
}

std::vector<std::string> Trial::damage() const { return impl_->Damage(); }

std::vector<std::string> Trial::Impl::Damage() const {
  std::vector<std::string> out = own_damage;
  for (std::string& line : SmdebugDamage()) out.push_back(std::move(line));
  for (const auto& slot : slots) {
    for (const store::Damage& damage : slot->reader->damage()) {
      std::string line =
          std::to_string(slot->info.attempt) + "/" + slot->info.name + "/" + damage.file + ": " + damage.what;
      if (damage.bytes != 0) line += " (" + std::to_string(damage.bytes) + " bytes)";
      out.push_back(std::move(line));
    }
    if (!slot->levels) continue;
    for (const std::string& line : DamagedLevelsOf(*slot->levels))
      out.push_back(std::to_string(slot->info.attempt) + "/" + slot->info.name + "/" + line);
  }
  return out;
}

uint64_t Trial::bytes_on_disk() const {
  uint64_t bytes = impl_->SmdebugIndexBytes();
  for (const auto& slot : impl_->slots) {
    bytes += slot->reader->bytes_on_disk();
    const auto levels = base::LocalFileSystem().List(base::JoinPath(slot->directory, format::kLevelsDir));
    for (const base::DirEntry& file : levels.ok() ? *levels : std::vector<base::DirEntry>())
      bytes += file.size;
  }
  return bytes;
}

int64_t Trial::last_seen_step() const {
  int64_t step = -1;
  if (impl_->attempts.empty()) return step;
  for (const WorkerIndex worker : impl_->attempts.back().workers) {
    step = std::max(step, impl_->slots[worker]->info.last_seen_step);
  }
  return step;
}

int64_t Trial::last_seen_wall_nanos() const {
  int64_t nanos = 0;
  for (const auto& slot : impl_->slots) nanos = std::max(nanos, slot->info.last_seen_wall_nanos);
  return nanos;
}

Result<StepInfo> Cursor::Next(int64_t timeout_millis) {
  Trial::Impl& impl = *trial_->impl_;
  const int64_t deadline = NowNanos() + base::NanosOfMillis(timeout_millis);
  for (bool refreshed = false;; refreshed = true) {
    const size_t next = impl.FirstBehind(last_step_);
    if (next < impl.complete_count) {
      const StepInfo info = impl.StepAt(next).info;
      last_step_ = info.global_step;
      return info;
    }
    if (refreshed) {
      if (trial_->loaded_all_steps()) {
        return FailedPrecondition(trial_->state() == RunState::kEnded ? "the run has ended: no more steps"
                                                                      : "the run has crashed: no more steps");
      }
      const int64_t left_millis = (deadline - NowNanos()) / 1'000'000;
      if (timeout_millis >= 0 && left_millis <= 0) return Unavailable("no new step yet");
      (void)trial_->WaitForChange(timeout_millis < 0 ? -1 : left_millis);
    }
    TDBG_RETURN_IF_ERROR(trial_->Refresh().status());
  }
}

}  // namespace tdbg
