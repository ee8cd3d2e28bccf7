// Trial's questions about steps: which there are, whose they are, and whether one may still come.
#include <algorithm>

#include "base/clock.h"
#include "base/durations.h"
#include "tdbg/statistic.h"
#include "tdbg/trial.h"
#include "trial/impl.h"
#include "trial/value_finder.h"

namespace tdbg {
namespace {

/// The step's number as `mode` counts; nothing if the step is of another mode.
std::optional<int64_t> NumberIn(ModeKey mode, const StepInfo& info) {
  if (mode == ModeKey::kGlobal) return info.global_step;
  if (info.mode == mode) return info.mode_step;
  return std::nullopt;
}

}  // namespace

uint32_t Trial::Impl::DerivedIn(int64_t global_step) const {
  if (derived_generation != generation) {
    derived_generation = generation;
    derived_steps.clear();
    for (const Range& range : Ranges()) {
      for (const WorkerIndex worker : range.attempt->workers) {
        const WorkerSlot& slot = *slots[worker];
        for (const format::TensorDef& def : slot.reader->tensors()) {
          if (def.kind != kStatisticKind) continue;
          for (const store::RawRef& ref : slot.reader->RawsOf(def.id)) {
            if (ref.global_step >= range.begin && ref.global_step < range.end)
              derived_steps.push_back(ref.global_step);
          }
        }
      }
    }
    std::sort(derived_steps.begin(), derived_steps.end());
  }
  const auto [first, last] = std::equal_range(derived_steps.begin(), derived_steps.end(), global_step);
  return static_cast<uint32_t>(last - first);
}

bool Trial::Impl::HasHistogram(const TrialAccess::Step& step) const {
  for (const WorkerIndex worker : AttemptOf(step.attempt)->workers) {
    WorkerSlot& slot = *slots[worker];
    slot.BringRowsUpToDate();
    slot.RowsAt(step.info.global_step, &scratch_rows);
    for (const RowRange& r : scratch_rows) {
      slot.reader->Prepare(r.batch, r.begin, r.end);
      const uint32_t* const bytes = slot.reader->summaries()[r.batch].histogram_bytes;
      if (std::any_of(bytes + r.begin, bytes + r.end, [](uint32_t n) { return n != 0; })) return true;
    }
    if (smdebug != nullptr) continue;
    const auto* made = slot.computed.At(*slot.reader, step.info.global_step, scratch_rows);
    if (made != nullptr && std::ranges::any_of(made->histogram_bytes, [](uint32_t n) { return n != 0; }))
      return true;
  }
  return false;
}

bool Trial::Impl::IsOfKind(const TrialAccess::Step& step, StepKind kind) const {
  switch (kind) {
    case StepKind::kAny:
      return true;
    case StepKind::kRaw:
      return step.info.raw_values > DerivedIn(step.info.global_step);
    case StepKind::kSummary:
      return step.info.summaries != 0 || step.info.raw_values > DerivedIn(step.info.global_step);
    case StepKind::kHistogram:
      return HasHistogram(step);
    case StepKind::kSaved:
      break;
  }
  if (!has_save_config || step.info.raw_values > DerivedIn(step.info.global_step)) return true;
  for (const plan::CollectionPlan& collection : plan->collections) {
    if (!Saves(collection)) continue;
    if (step.info.summaries != 0 && ReductionsDue(collection, step.info)) return true;
    // Due, and all of it was shed: it is a step at which something should have been.
    const auto& schedule = collection.raw[static_cast<int>(step.info.mode)];
    if (step.shed != 0 && schedule && schedule->Due(step.info.mode_step)) return true;
  }
  return false;
}

std::optional<StepInfo> Trial::step(int64_t global_step) const {
  const auto at = impl_->FindStep(global_step);
  if (!at) return std::nullopt;
  StepInfo info = impl_->StepAt(*at).info;
  const uint32_t derived = std::min(impl_->DerivedIn(global_step), info.raw_values);
  info.raw_values -= derived;
  info.summaries += derived;
  return info;
}

std::vector<int64_t> Trial::steps(ModeKey mode) const { return steps(StepFilter{.mode = mode}); }

std::vector<int64_t> Trial::steps(const StepFilter& filter) const {
  std::vector<int64_t> out;
  const size_t count = filter.incomplete ? impl_->step_count : impl_->complete_count;
  for (size_t i = 0; i < count; ++i) {
    const TrialAccess::Step step = impl_->StepAt(i);
    if (step.info.global_step < filter.begin || step.info.global_step >= filter.end) continue;
    const auto number = NumberIn(filter.mode, step.info);
    if (number && impl_->IsOfKind(step, filter.kind)) out.push_back(*number);
  }
  return out;
}

int64_t Trial::last_complete_step() const { return impl_->LastCompleteStep(); }

std::vector<std::string> Trial::step_workers(int64_t global_step) const {
  std::vector<std::string> out;
  const auto at = impl_->FindStep(global_step);
  if (!at) return out;
  const TrialAccess access(*this);
  for (const WorkerIndex worker : access.workers_of_attempt(impl_->StepAt(*at).attempt)) {
    if (access.CommittedBy(*at, worker)) out.push_back(impl_->slots[worker]->info.name);
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<std::string> Trial::missing_workers(int64_t global_step) const {
  const auto at = impl_->FindStep(global_step);
  if (!at || *at < impl_->complete_count) return {};
  std::vector<std::string> out;
  for (TrialAccess::Missing& missing : TrialAccess(*this).MissingWorkers(*at))
    out.push_back(std::move(missing.name));
  std::sort(out.begin(), out.end());
  return out;
}

StepState Trial::step_state(int64_t step, const StepFilter& filter) const {
  if (const auto at = impl_->FindModeStep(filter.mode, step)) {
    const TrialAccess::Step found = impl_->StepAt(*at);
    const int64_t global_step = found.info.global_step;
    const bool outside = global_step < filter.begin || global_step >= filter.end;
    const bool complete = *at < impl_->complete_count;
    if (!outside && impl_->IsOfKind(found, filter.kind)) {
      return complete ? StepState::kAvailable : StepState::kNotYetAvailable;
    }
    // The step lacks this kind; once the step is complete it can never gain it.
    if (complete || outside) return StepState::kUnavailable;
  }
  if (loaded_all_steps()) return StepState::kUnavailable;
  const auto last = impl_->LastCompleteOf(filter.mode);
  return last && *last > step ? StepState::kUnavailable : StepState::kNotYetAvailable;
}

void Trial::Impl::BringModeIndexUpToDate() const {
  if (mode_index.overlay_generation != overlay_generation) {
    mode_index = {};
    mode_index.overlay_generation = overlay_generation;
  }
  bool sorted = true;
  for (size_t& i = mode_index.complete; i < complete_count; ++i) {
    const StepEntry& step = EntryAt(i);
    auto& list = mode_index.of[static_cast<int>(step.mode)];
    sorted &= list.empty() || list.back().first < step.mode_step;
    list.emplace_back(step.mode_step, i);
  }
  if (sorted) return;
  // A later attempt numbers its evaluations from 0 again; among equal numbers the latest comes last.
  for (auto& list : mode_index.of) std::sort(list.begin(), list.end());
}

std::optional<size_t> Trial::Impl::FindModeStep(ModeKey mode, int64_t mode_step) const {
  if (mode == ModeKey::kGlobal) return FindStep(mode_step);
  for (size_t i = step_count; i-- > complete_count;) {
    const StepEntry& step = EntryAt(i);
    if (step.mode == mode && step.mode_step == mode_step) return i;
  }
  BringModeIndexUpToDate();
  const auto& list = mode_index.of[static_cast<int>(mode)];
  const auto after = std::upper_bound(list.begin(), list.end(), std::pair(mode_step, step_count));
  if (after == list.begin() || std::prev(after)->first != mode_step) return std::nullopt;
  return std::prev(after)->second;
}

std::optional<int64_t> Trial::Impl::LastCompleteOf(ModeKey mode) const {
  if (mode == ModeKey::kGlobal) return complete_count == 0 ? std::nullopt : std::optional(LastCompleteStep());
  BringModeIndexUpToDate();
  const auto& list = mode_index.of[static_cast<int>(mode)];
  return list.empty() ? std::nullopt : std::optional(list.back().first);
}

std::optional<int64_t> Trial::global_step(ModeKey mode, int64_t mode_step) const {
  const auto at = impl_->FindModeStep(mode, mode_step);
  if (!at) return std::nullopt;
  return impl_->GlobalStepAt(*at);
}

Result<StepState> Trial::WaitForStep(int64_t step, const StepFilter& filter, int64_t timeout_millis) {
  const auto now = [] { return base::SystemClock().MonotonicNanos() / 1'000'000; };
  const int64_t deadline = now() + base::NanosOfMillis(timeout_millis) / 1'000'000;
  for (;;) {
    TDBG_RETURN_IF_ERROR(Refresh().status());
    const StepState state = step_state(step, filter);
    if (state != StepState::kNotYetAvailable) return state;
    const int64_t left = timeout_millis < 0 ? -1 : deadline - now();
    if (timeout_millis >= 0 && left <= 0) {
      return Status(Code::kDeadlineExceeded, "step " + std::to_string(step) + " is not there after " +
                                                 std::to_string(timeout_millis) + " ms");
    }
    (void)WaitForChange(left);
  }
}

Result<std::vector<TensorIndex>> Trial::Impl::TensorsOf(const Trial& trial,
                                                        const TensorFilter& filter) const {
  std::vector<TensorIndex> candidates;
  for (const std::string& name : filter.names) {
    if (const auto tensor = tensors.Find(name)) candidates.push_back(*tensor);
  }
  if (filter.names.empty() || !filter.collection.empty() || !filter.regex.empty()) {
    TDBG_ASSIGN_OR_RETURN(Selection selection, Selection::Make(filter.collection, filter.regex));
    selection.Update(TrialAccess(trial));
    if (filter.names.empty()) candidates.assign(selection.tensors().begin(), selection.tensors().end());
    std::erase_if(candidates, [&](TensorIndex tensor) { return !selection.contains(tensor); });
  }
  const StepFilter& s = filter.steps;
  const StepFilter any;
  const bool look = s.mode != any.mode || s.kind != any.kind || s.begin != any.begin || s.end != any.end;
  std::vector<TensorIndex> out;
  for (const TensorIndex tensor : candidates) {
    const ValueFinder finder(*this, tensor, {});
    if (filter.global_step) {
      const auto asked = finder.WorkersAt(*filter.global_step);
      if (!asked.ok() || std::none_of(asked->begin(), asked->end(), [&](const WorkerSlot* slot) {
            return finder.Keeps(*slot, *filter.global_step, s.kind);
          })) {
        continue;
      }
    } else if (look && !finder.HasStep(s)) {
      continue;
    }
    out.push_back(tensor);
  }
  std::sort(out.begin(), out.end(),
            [this](TensorIndex a, TensorIndex b) { return tensors.at(a).name < tensors.at(b).name; });
  return out;
}

}  // namespace tdbg
