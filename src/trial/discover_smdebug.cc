// A directory that smdebug wrote, as a run of one attempt. Nothing else of this room knows of it.
#include "base/clock.h"
#include "base/file.h"
#include "compat/smdebug/reader/run.h"
#include "format/version.h"
#include "trial/impl.h"
#include "trial/run_kind.h"

namespace tdbg {

using compat::smdebug::Run;

RunKind RunKindAt(const std::string& path) {
  if (base::LocalFileSystem().Exists(base::JoinPath(path, format::kRunFile))) return RunKind::kTdbg;
  return Run::IsAt(path) ? RunKind::kSmdebug : RunKind::kNone;
}

Status Trial::Impl::OpenSmdebug() {
  if (options.attempt > 0) {
    return NotFound("attempt " + std::to_string(options.attempt) +
                    " is not there (a directory of smdebug has one, 0): " + path);
  }
  TDBG_ASSIGN_OR_RETURN(smdebug, Run::Open(path));
  AttemptSlot attempt;
  attempt.directory = path;
  attempts.push_back(std::move(attempt));
  return OkStatus();
}

Status Trial::Impl::DiscoverSmdebug(bool* news) {
  TDBG_ASSIGN_OR_RETURN(const bool changed, smdebug->Refresh());
  *news |= changed;
  AttemptSlot& attempt = attempts.front();
  attempt.world_size = smdebug->world_size();
  // A collections file may have come first, and the worker's steps under another name.
  for (size_t i = 0; i < slots.size(); ++i) {
    const std::string& name = smdebug->part(i).name();
    *news |= slots[i]->info.name != name;
    slots[i]->info.name = name;
  }
  for (size_t i = slots.size(); i < smdebug->worker_count(); ++i) {
    AddWorker(0, smdebug->OpenWorker(i), smdebug->part(i).name(), path);
    *news = true;
  }
  last_discovery_nanos = base::SystemClock().MonotonicNanos();
  return OkStatus();
}

bool Trial::Impl::WatchSmdebug() {
  bool added = false;
  for (const std::string& file : smdebug->doorbells()) {
    if (!smdebug_watched.insert(file).second) continue;
    waiter.Watch(file);
    added = true;
  }
  return added;
}

void Trial::Impl::SmdebugCollections(std::map<std::string, CollectionInfo>* by_name) const {
  if (!smdebug) return;
  for (const auto* const told : smdebug->collections().all()) {
    CollectionInfo& info = (*by_name)[told->name];
    info.include_regex = told->include_regex;
    for (std::string name : told->reductions) {
      // Norms are configured as "abs_l1_norm" and saved as "abs_l1".
      constexpr std::string_view kNorm = "_norm";
      if (name.ends_with(kNorm)) name.resize(name.size() - kNorm.size());
      info.reductions.push_back(std::move(name));
    }
    info.save_raw = told->save_raw;
    info.save_shape = told->save_shape;
    info.save_histogram = told->save_histogram;
    for (const auto& [name, schedule] : told->save) {
      const auto mode = format::ModeFromName(name);
      if (!mode) continue;
      info.save[static_cast<int>(*mode)] = {schedule.save_interval, schedule.start_step, schedule.end_step,
                                            schedule.save_steps};
    }
  }
}

std::vector<std::string> Trial::Impl::SmdebugDamage() const {
  std::vector<std::string> out;
  if (!smdebug) return out;
  for (const store::Damage& damage : smdebug->damage()) out.push_back(damage.file + ": " + damage.what);
  return out;
}

uint64_t Trial::Impl::SmdebugIndexBytes() const { return smdebug ? smdebug->index_bytes() : 0; }

bool Trial::Impl::SmdebugEndedEmpty() const {
  return smdebug && smdebug->end_marker() && smdebug->worker_count() == 0;
}

}  // namespace tdbg
