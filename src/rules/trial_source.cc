#include "rules/trial_source.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "rules/run_plan.h"
#include "trial/coarse.h"

namespace tdbg::rules {
namespace {

/// It was declared by whatever was known of it then.
bool Names(const LostWorker& lost, const std::string& worker, int64_t rank) {
  return lost.worker == worker || lost.worker == "rank " + std::to_string(rank);
}

}  // namespace

TrialSource::TrialSource(const Trial& trial, std::vector<int64_t> stopped) : access_(trial), step_(access_) {
  step_.stopped_ = std::move(stopped);
  step_.ShowWorkers();
}

// Rules iterate by index, so that its order is a verdict's. In what order workers were found is chance: a
// live judge meets them as they start, a replay as a directory is listed.
void TrialSource::Step::ShowWorkers() {
  const std::span<const TrialAccess::Worker> workers = access_.workers();
  std::map<std::string_view, WorkerIndex> by_name;
  bool as_found = true;
  for (size_t i = 0; i < workers.size(); ++i) {
    const TrialAccess::Worker& worker = workers[i];
    const auto slot = static_cast<WorkerIndex>(i);
    const auto [at, is_new] = by_name.try_emplace(worker.name, kMostRanks + slot);
    if (is_new && worker.rank >= 0 && worker.rank < kMostRanks &&
        !first_.contains(static_cast<WorkerIndex>(worker.rank)))
      at->second = static_cast<WorkerIndex>(worker.rank);
    if (is_new) first_[at->second] = slot;
    shown_.push_back(at->second);
    as_found = as_found && at->second == slot;
  }
  if (as_found) shown_.clear();
}

WorkerIndex TrialSource::Step::OfAttempt(WorkerIndex shown) const {
  if (shown_.empty()) return shown;
  for (const WorkerIndex worker : access_.workers_of_attempt(step_.attempt)) {
    if (shown_[worker] == shown) return worker;
  }
  return shown;
}

bool TrialSource::IsAwaited(size_t position, const std::vector<LostWorker>& lost) const {
  const TrialAccess::Step step = access_.steps()[position];
  const auto is_lost = [&](const TrialAccess::Missing& missing) {
    return std::any_of(lost.begin(), lost.end(), [&](const LostWorker& l) {
      return l.attempt == step.attempt && step.info.global_step >= l.from_step &&
             Names(l, missing.name, missing.rank);
    });
  };
  const auto missing = access_.MissingWorkers(position);
  return !std::all_of(missing.begin(), missing.end(), is_lost);
}

bool TrialSource::Step::Drops(WorkerIndex worker) const {
  return std::find(lost_workers_.begin(), lost_workers_.end(), worker) != lost_workers_.end();
}

std::vector<WorkerFate> TrialSource::Step::workers() const {
  std::vector<WorkerFate> fates;
  for (const TrialAccess::Worker& worker : access_.workers()) {
    if (worker.attempt > step_.attempt) continue;
    const auto state = worker.ended   ? WorkerFate::kEnded
                       : worker.alive ? WorkerFate::kRuns
                                      : WorkerFate::kDied;
    const bool stopped = std::find(stopped_.begin(), stopped_.end(), worker.attempt) != stopped_.end();
    fates.push_back({worker.name, worker.attempt, worker.last_step, state, stopped});
  }
  return fates;
}

std::string TrialSource::Step::ErrorOf(const std::string& worker) const {
  for (const WorkerEnd& end : access_.trial().worker_ends()) {
    if (end.worker == worker && end.reason == "exception") return "exception " + end.message;
  }
  return {};
}

bool TrialSource::Step::HidesValuesOf(TensorIndex tensor) const {
  return plan_ != nullptr && plan_->OnlyOthersAskedFor(tensor, access_.tensor(tensor), step_.info);
}

std::span<const StepContext::Scalar> TrialSource::Step::scalars() const {
  if (!scalars_read_) {
    scalars_.clear();
    access_.ScalarsOf(position_, &scalars_);
    if (!lost_workers_.empty())
      std::erase_if(scalars_, [&](const Scalar& scalar) { return Drops(scalar.worker); });
    if (!shown_.empty()) {
      for (Scalar& scalar : scalars_) scalar.worker = Shown(scalar.worker);
    }
    scalars_read_ = true;
  }
  return scalars_;
}

// By the commits' own counts, so that a step without raw values costs no look at any tensor.
std::span<const WorkerIndex> TrialSource::Step::raw_workers() const {
  raw_workers_.clear();
  for (const WorkerIndex worker : access_.workers_of_attempt(step_.attempt)) {
    if (access_.KeptRawValues(position_, worker) && !Drops(worker)) raw_workers_.push_back(Shown(worker));
  }
  return raw_workers_;
}

Result<TensorValue> TrialSource::Step::Raw(TensorIndex tensor, WorkerIndex worker) const {
  const auto raw = access_.RawAt(tensor, position_, OfAttempt(worker));
  if (!raw || HidesValuesOf(tensor)) {
    return NotFound("no raw value of " + access_.tensor(tensor).name + " at step " +
                    std::to_string(step_.info.global_step));
  }
  return access_.ReadRaw(*raw);
}

std::vector<StepContext::RawValue> TrialSource::Step::RawsOf(TensorIndex tensor) const {
  std::vector<RawValue> raws;
  if (HidesValuesOf(tensor)) return raws;
  std::vector<TrialAccess::Raw> all;
  access_.RawsAt(tensor, position_, &all);
  for (const TrialAccess::Raw& raw : all) {
    if (!Drops(raw.worker)) raws.push_back({raw.tensor, Shown(raw.worker), raw.ref.sub, raw});
  }
  return raws;
}

// A step's own counter says that something was shed, not what; the run's counters of what was dropped say
// what, with a range of steps. Together they are exact enough never to call a step complete that is not.
bool TrialSource::StatisticsShed(size_t position, const TrialAccess::Step& step,
                                 std::span<const WorkerIndex> dropped) {
  uint64_t shed = step.shed;
  for (const WorkerIndex worker : dropped) shed -= access_.ShedBy(position, worker);
  if (shed == 0) return false;
  if (CoarseRows(access_.trial()).IsThinned(position)) return true;
  if (!dropped_) dropped_ = access_.trial().dropped();
  const int64_t s = step.info.global_step;
  bool explained = false;
  for (const DroppedInfo& drop : *dropped_) {
    if (drop.first_step > s || (drop.last_step >= 0 && drop.last_step < s)) continue;
    explained = true;
    // What never has statistics (float8, complex) is no statistic lost.
    if (drop.kind == "summary" && drop.cause != "unsupported") return true;
  }
  return !explained;
}

void TrialSource::Step::ShowRowsThatKnow(uint64_t columns) const {
  if (columns == columns_ || all_known_) return;
  uint64_t unreadable = 0;
  columns_ = columns;
  hidden_.clear();
  rows_.clear();
  for (const TrialAccess::RowSpan& span :
       access_.RowSpansOf(position_, &unreadable, columns, &hidden_, lost_workers_)) {
    rows_.emplace_back(span, Shown(span.worker));
  }
  incomplete_ = unreadable != 0 || shed_;
}

const StepContext& TrialSource::At(size_t position, const std::vector<LostWorker>& lost) {
  step_.step_ = access_.steps()[position];
  step_.position_ = position;
  step_.plan_ = nullptr;
  step_.lost_workers_.clear();
  for (const LostWorker& l : lost) {
    if (l.attempt != step_.step_.attempt || step_.step_.info.global_step < l.from_step) continue;
    for (const WorkerIndex worker : access_.workers_of_attempt(l.attempt)) {
      const TrialAccess::Worker& info = access_.workers()[worker];
      if (Names(l, info.name, info.rank) && !step_.Drops(worker)) step_.lost_workers_.push_back(worker);
    }
  }
  step_.scalars_read_ = false;
  step_.shed_ = StatisticsShed(position, step_.step_, step_.lost_workers_);
  step_.all_known_ = false;
  step_.columns_ = 0;
  step_.ShowRowsThatKnow(~uint64_t{0});
  step_.all_known_ = step_.hidden_.empty();
  return step_;
}

}  // namespace tdbg::rules
