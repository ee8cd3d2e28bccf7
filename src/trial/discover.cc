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
  format::ForEachEvent(*text, "job_ended", [&](const std::string& kind, const format::Json& event) {
    JobEnded end;
    if (kind != "job_ended" || !format::GetField(event, "attempt", &end.attempt)) return;
    if (options.attempt >= 0 && end.attempt != options.attempt) return;
    int64_t exit_code = 0;
    std::string stop;
    format::GetField(event, "exit_code", &exit_code);
    format::GetField(event, "stop", &stop);
    end.failed = exit_code != 0 && (stop.empty() || stop == "none");
    job_ended = end;
  });
}

Status Trial::Impl::Discover(bool* news) {
  if (smdebug) return DiscoverSmdebug(news);
  // Before the listing, which then holds every worker that came before the job ended.
  if (attempts.empty() || attempts.back().workers.empty()) LookForJobEnd();
  TDBG_ASSIGN_OR_RETURN(const std::vector<base::DirEntry> entries, Files().List(path));
  for (const base::DirEntry& entry : entries) {
    const auto number = base::ParseInt(entry.name);
    if (!entry.is_directory || !number || *number < 0) continue;
    if (options.attempt >= 0 && *number != options.attempt) continue;
    auto at = std::lower_bound(attempts.begin(), attempts.end(), *number,
                               [](const AttemptSlot& a, int64_t n) { return a.number < n; });
    if (at == attempts.end() || at->number != *number) {
      const std::string directory = base::JoinPath(path, entry.name);
      const std::string file = base::JoinPath(directory, format::kAttemptFile);
      if (!Files().Exists(file)) continue;  // being made
      TDBG_ASSIGN_OR_RETURN(const std::string json, Files().ReadFile(file));
      auto info = format::AttemptInfo::FromJson(json);
      if (!info.ok() && info.status().code() == Code::kUnimplemented) return info.status().Annotate(file);
      AttemptSlot slot;
      slot.number = *number;
      slot.directory = directory;
      if (info.ok()) {
        slot.info = *info;
      } else {
        // Its workers' data are as good as ever; what is lost is where it begins: at its first step, then.
        AddOnce(entry.name + "/" + std::string(format::kAttemptFile) + ": " + info.status().message(),
                &own_damage);
        slot.info.attempt = *number;
      }
      const auto index = static_cast<size_t>(at - attempts.begin());
      attempts.insert(at, std::move(slot));
      for (auto& worker : slots) worker->attempt_index += worker->attempt_index >= index;
      *news = true;
    }
  }
  for (size_t i = 0; i < attempts.size(); ++i) {
    AttemptSlot& attempt = attempts[i];
    // Complete, or replaced: nobody is to come. The list is worth its price only while somebody is.
    const bool full =
        static_cast<int64_t>(attempt.workers.size()) >= std::max<int64_t>(1, attempt.info.world_size);
    if (full && (i + 1 < attempts.size() || last_discovery_nanos != 0)) continue;
    TDBG_ASSIGN_OR_RETURN(const std::vector<base::DirEntry> workers_here, Files().List(attempt.directory));
    for (const base::DirEntry& entry : workers_here) {
      if (!entry.is_directory) continue;
      const std::string directory = base::JoinPath(attempt.directory, entry.name);
      const bool known = std::any_of(attempt.workers.begin(), attempt.workers.end(),
                                     [&](WorkerIndex w) { return slots[w]->directory == directory; });
      if (known) continue;
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
      AddWorker(i, std::move(*reader), std::move(name), directory);
      *news = true;
    }
  }
  last_discovery_nanos = base::SystemClock().MonotonicNanos();
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
