// Finding attempts and workers as they appear in the run's directory.
#include <algorithm>

#include "base/clock.h"
#include "base/stable_sort.h"
#include "base/text.h"
#include "format/events.h"
#include "format/version.h"
#include "trial/impl.h"

namespace tdbg {
namespace {

base::FileSystem& Files() { return base::LocalFileSystem(); }

void AddOnce(std::string line, std::vector<std::string>* list) {
  if (std::find(list->begin(), list->end(), line) == list->end()) list->push_back(std::move(line));
}

}  // namespace

WorkerIndex Trial::Impl::AddWorker(size_t attempt_index, std::unique_ptr<store::WorkerReader> reader,
                                   std::string name, std::string directory) {
  AttemptSlot& attempt = attempts[attempt_index];
  auto slot = std::make_unique<WorkerSlot>();
  slot->reader = std::move(reader);
  slot->directory = std::move(directory);
  slot->attempt_index = attempt_index;
  slot->info.name = std::move(name);
  slot->info.attempt = attempt.number;
  slot->info.rank = slot->reader->info().rank;
  const auto index = static_cast<WorkerIndex>(slots.size());
  slots.push_back(std::move(slot));
  attempt.workers.push_back(index);
  base::StableSort(&attempt.workers, [this](WorkerIndex a, WorkerIndex b) {
    return slots[a]->info.rank < slots[b]->info.rank;
  });
  return index;
}

void Trial::Impl::LookForJobEnd() {
  const auto text = Files().ReadFile(base::JoinPath(path, format::kEventsFile));
  if (!text.ok()) return;
  job_ended.reset();
  may_restart = {-1, false};
  format::ForEachEvent(*text, "\"job_", [&](const std::string& kind, const format::Json& event) {
    if (kind == "job_started") {
      if (job_ended) job_ended->last_started = false;
      may_restart = {-1, false};
      format::GetField(event, "attempt", &may_restart.first);
      format::GetField(event, "restarts", &may_restart.second);
    }
    JobEnded end;
    if (kind != "job_ended" || !format::GetField(event, "attempt", &end.attempt)) return;
    if (options.attempt >= 0 && end.attempt != options.attempt) return;
    int64_t exit_code = 0;
    std::string stop;
    format::GetField(event, "exit_code", &exit_code);
    format::GetField(event, "stop", &stop);
    end.failed = exit_code != 0 && (stop.empty() || stop == "none");
    end.last_started = true;
    format::GetField(event, "restarts", &end.restarts);
    job_ended = end;
  });
}

bool Trial::Impl::LauncherIsThere() {
  if (attempts_left_out || !Files().IsLocked(base::JoinPath(path, format::kLauncherLockFile))) return false;
  // A launcher that holds its lock may already be printing its summary: the job is over then.
  LookForJobEnd();
  return !job_ended || (job_ended->attempt < attempts.back().number && !job_ended->last_started);
}

bool Trial::Impl::LauncherStartsItAgain() {
  if (attempts_left_out || !Files().IsLocked(base::JoinPath(path, format::kLauncherLockFile))) return false;
  LookForJobEnd();
  const int64_t last = attempts.back().number;
  if (job_ended && job_ended->attempt >= last) return job_ended->restarts;
  // The workers are gone, and the launcher has not said yet how its command ended.
  return may_restart == std::pair(last, true);
}

std::vector<int64_t> Trial::Impl::AbsentRanks(const AttemptSlot& attempt) const {
  if (static_cast<int64_t>(attempt.workers.size()) >= attempt.world_size) return {};
  std::vector<int64_t> absent;
  size_t next = 0;  // workers are in the order of their ranks
  for (int64_t rank = 0; rank < attempt.world_size; ++rank) {
    while (next < attempt.workers.size() && slots[attempt.workers[next]]->info.rank < rank) ++next;
    if (next == attempt.workers.size() || slots[attempt.workers[next]]->info.rank != rank)
      absent.push_back(rank);
  }
  return absent;
}

Status Trial::Impl::DescribeAttempt(AttemptSlot& attempt) {
  bool stated = false;
  const auto take = [&attempt](const std::optional<int64_t>& world_size, const std::optional<int64_t>& base) {
    attempt.world_size = std::max(attempt.world_size, world_size.value_or(0));
    attempt.step_base = std::max(attempt.step_base, base.value_or(0));
  };
  for (const WorkerIndex worker : attempt.workers) {
    const format::WorkerInfo& info = slots[worker]->reader->info();
    take(info.world_size, info.step_base);
    stated |= info.world_size.has_value();
    attempt.laid_behind |= info.step_base_from == format::kBehind;
  }
  // Workers of 0.1.0 do not say it in their own files: they replaced the launcher's attempt.json, which said
  // 1 for want of knowledge, before they made them. Where a worker's file is there, then, it is right.
  if (attempt.info_json.empty() || !stated) {
    const std::string file = base::JoinPath(attempt.directory, format::kAttemptFile);
    auto json = Files().ReadFile(file);
    if (!json.ok() && attempt.info_json.empty()) return json.status();
    if (json.ok() && *json != attempt.info_json) {
      auto info = format::AttemptInfo::FromJson(*json);
      if (!info.ok() && info.status().code() == Code::kUnimplemented) return info.status().Annotate(file);
      attempt.info_json = *std::move(json);
      if (info.ok()) {
        attempt.info = *info;
      } else {
        // A damaged attempt.json is reported and costs nothing else: its workers' data can be read.
        AddOnce(std::to_string(attempt.number) + "/" + std::string(format::kAttemptFile) + ": " +
                    info.status().message(),
                &own_damage);
      }
    }
  }
  // A world of 1 raises nothing: it is what a launcher of 0.1.0 said of every world.
  take(attempt.info.world_size, attempt.info.step_base);
  return OkStatus();
}

Status Trial::Impl::Discover(bool* news) {
  if (smdebug) return DiscoverSmdebug(news);
  // Before the listing, which then holds every worker that came before the job ended.
  if (attempts.empty() || attempts.back().workers.empty()) LookForJobEnd();
  TDBG_ASSIGN_OR_RETURN(const std::vector<base::DirEntry> entries, Files().List(path));
  for (const base::DirEntry& entry : entries) {
    const auto number = base::ParseInt(entry.name);
    if (!entry.is_directory || !number || *number < 0) continue;
    if (options.attempt >= 0 && *number != options.attempt) {
      attempts_left_out |= *number > options.attempt;
      continue;
    }
    auto at = std::lower_bound(attempts.begin(), attempts.end(), *number,
                               [](const AttemptSlot& a, int64_t n) { return a.number < n; });
    if (at == attempts.end() || at->number != *number) {
      AttemptSlot slot;
      slot.number = *number;
      slot.directory = base::JoinPath(path, entry.name);
      if (!Files().Exists(base::JoinPath(slot.directory, format::kAttemptFile))) continue;  // being made
      TDBG_RETURN_IF_ERROR(DescribeAttempt(slot));
      const auto index = static_cast<size_t>(at - attempts.begin());
      attempts.insert(at, std::move(slot));
      for (auto& worker : slots) worker->attempt_index += worker->attempt_index >= index;
      *news = true;
    }
  }
  for (size_t i = 0; i < attempts.size(); ++i) {
    const bool full = !attempts[i].workers.empty() && AbsentRanks(attempts[i]).empty();
    // Complete and replaced: nobody is to come.
    if (full && i + 1 < attempts.size()) continue;
    TDBG_RETURN_IF_ERROR(DiscoverWorkers(i, news));
  }
  last_discovery_nanos = base::SystemClock().MonotonicNanos();
  return OkStatus();
}

Status Trial::Impl::DiscoverWorkers(size_t attempt_index, bool* news) {
  AttemptSlot& attempt = attempts[attempt_index];
  TDBG_ASSIGN_OR_RETURN(const std::vector<base::DirEntry> entries, Files().List(attempt.directory));
  for (const base::DirEntry& entry : entries) {
    if (!entry.is_directory || attempt.entries.contains(entry.name)) continue;
    const std::string directory = base::JoinPath(attempt.directory, entry.name);
    const auto file = Files().OpenReadable(base::JoinPath(directory, format::kWorkerFile));
    if (!file.ok() && file.status().code() != Code::kNotFound) {
      // Another user's. It is no worker that has not come yet, and the others can be read.
      AddOnce(std::to_string(attempt.number) + "/" + entry.name + ": " + file.status().message(),
              &own_damage);
      continue;
    }
    if (!file.ok()) {
      // Being made: populating its journal takes up to half a second, in which nothing else tells us.
      // Without this a fault in a training's first second was seen at the next slow look.
      waiter.Watch(directory);
      continue;
    }
    auto reader = store::WorkerReader::Open(directory);
    if (!reader.ok()) {
      if (reader.status().code() != Code::kDataLoss) return reader.status();
      AddOnce(std::to_string(attempt.number) + "/" + entry.name + ": " + reader.status().message(),
              &own_damage);
      continue;
    }
    const std::string& told = (*reader)->info().worker;
    std::string name = told.empty() ? entry.name : told;
    AddWorker(attempt_index, std::move(*reader), std::move(name), directory);
    attempt.entries.insert(entry.name);
    *news = true;
  }
  // After the workers: their files say more than the attempt's own.
  const int64_t known = attempt.world_size;
  TDBG_RETURN_IF_ERROR(DescribeAttempt(attempt));
  *news |= attempt.world_size != known;
  return OkStatus();
}

bool Trial::Impl::Watch() {
  if (smdebug) return WatchSmdebug();
  bool added = !watched;
  if (!watched) waiter.Watch(path);
  watched = true;
  for (AttemptSlot& attempt : attempts) {
    if (attempt.watched) continue;
    waiter.Watch(attempt.directory);
    attempt.watched = added = true;
  }
  for (const auto& slot : slots) {
    if (slot->watched) continue;
    for (const std::string& file : slot->reader->doorbells()) waiter.Watch(file);
    slot->watched = added = true;
  }
  return added;
}

}  // namespace tdbg
