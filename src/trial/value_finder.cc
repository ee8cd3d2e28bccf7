#include "trial/value_finder.h"

#include <algorithm>

#include "format/columns.h"
#include "store/reader/row_of_value.h"

namespace tdbg {

bool ValueFinder::HasHistogram(const WorkerSlot& slot, const store::WorkerReader::RowRef& ref) {
  slot.reader->Prepare(ref.batch, ref.row, ref.row + 1);
  return slot.reader->summaries()[ref.batch].histogram_bytes[ref.row] != 0;
}

template <typename F>
void ValueFinder::EachStep(const StepFilter& filter, F&& f) const {
  const int64_t last_complete = impl_.LastCompleteStep();
  const bool saved = filter.kind == StepKind::kSaved;
  const bool all = filter.kind == StepKind::kAny || (saved && !impl_.has_save_config);
  const bool raw = all || saved || filter.kind == StepKind::kRaw;
  const bool reductions = saved && !all;  // only steps at which those are due
  const bool histograms = filter.kind == StepKind::kHistogram;
  const bool rest = all || reductions || histograms || filter.kind == StepKind::kSummary;
  for (const Trial::Impl::Range& range : impl_.Ranges()) {
    const int64_t begin = std::max(range.begin, filter.begin);
    int64_t end = std::min(range.end, filter.end);
    if (!filter.incomplete && last_complete < end) end = last_complete + 1;
    if (begin >= end) continue;
    const auto wanted = [&](int64_t step) { return step >= begin && step < end; };
    const auto statistics_wanted = [&](int64_t step) {
      return wanted(step) && (!reductions || SavesReductions(step));
    };
    for (const WorkerSlot* slot : Of(*range.attempt)) {
      for (const format::TensorId id : slot->IdsOf(tensor_)) {
        if (raw) {
          for (const store::RawRef& ref : slot->reader->RawsOf(id)) {
            if (ref.sub.point != Point::kEnd && wanted(ref.global_step) && !f(ref.global_step)) return;
          }
        }
        if (all || saved) {
          for (const int64_t step : slot->reader->SavedShapeSteps(id)) {
            if (wanted(step) && !f(step)) return;
          }
        }
        if (!rest) continue;
        const bool made = histograms || filter.kind == StepKind::kSummary;
        for (const store::RawRef& ref :
             made ? MadeOfValues(*slot, id, filter.kind) : std::vector<store::RawRef>()) {
          if (wanted(ref.global_step) && !f(ref.global_step)) return;
        }
        for (const auto& ref : slot->reader->RowsOf(id)) {
          if (ref.sub.point == Point::kEnd) continue;
          if (!statistics_wanted(ref.global_step)) continue;
          if (histograms && !HasHistogram(*slot, ref)) continue;
          if (!f(ref.global_step)) return;
        }
        if (histograms) continue;
        for (const auto& point : slot->reader->ScalarsOf(id)) {
          if (point.sub.point != Point::kEnd && statistics_wanted(point.global_step) && !f(point.global_step))
            return;
        }
      }
    }
  }
}

// Are statistics (or a histogram: `kind`) made of this value when they are asked for?
bool ValueFinder::GivesStatistics(const store::RawRef& ref, StepKind kind) {
  if (ref.sub.point == Point::kEnd || !HasStatistics(ref.dtype)) return false;
  if (kind == StepKind::kHistogram) return ref.bytes >= store::kHistogramFrom * ItemSize(ref.dtype);
  return kind == StepKind::kSummary;
}

// Raw values that give statistics because none are stored of their steps.
std::vector<store::RawRef> ValueFinder::MadeOfValues(const WorkerSlot& slot, format::TensorId id,
                                                     StepKind kind) {
  std::vector<store::RawRef> out;
  for (const store::RawRef& ref : slot.reader->LoneRawsOf(id)) {
    if (GivesStatistics(ref, kind)) out.push_back(ref);
  }
  std::erase_if(out,
                [&](const store::RawRef& ref) { return !slot.reader->RowsAt(id, ref.global_step).empty(); });
  return out;
}

std::vector<int64_t> ValueFinder::Steps(const StepFilter& filter) const {
  std::vector<int64_t> out;
  EachStep(filter, [&out](int64_t step) {
    out.push_back(step);
    return true;
  });
  if (!std::is_sorted(out.begin(), out.end())) std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  if (filter.mode == ModeKey::kGlobal) return out;
  std::vector<int64_t> of_mode;
  for (const int64_t step : out) {
    const auto at = impl_.FindStep(step);
    if (at && impl_.EntryAt(*at).mode == filter.mode) of_mode.push_back(impl_.EntryAt(*at).mode_step);
  }
  return of_mode;
}

bool ValueFinder::HasStep(const StepFilter& filter) const {
  bool found = false;
  EachStep(filter, [&](int64_t step) {
    if (filter.mode != ModeKey::kGlobal) {
      const auto at = impl_.FindStep(step);
      if (!at || impl_.EntryAt(*at).mode != filter.mode) return true;
    }
    found = true;
    return false;
  });
  return found;
}

bool ValueFinder::Keeps(const WorkerSlot& slot, int64_t global_step, StepKind kind) const {
  const bool saved = kind == StepKind::kSaved;
  const bool all = kind == StepKind::kAny || (saved && !impl_.has_save_config);
  if ((all || saved || kind == StepKind::kRaw) && RawOf(slot, global_step)) return true;
  if (all || saved) {
    for (const format::TensorId id : slot.IdsOf(tensor_)) {
      if (slot.reader->SavedShapeOf(id, global_step)) return true;
    }
  }
  if (kind == StepKind::kHistogram || kind == StepKind::kSummary) {
    const auto row = RowOf(slot, global_step);
    if (row) return kind == StepKind::kSummary || HasHistogram(slot, row->ref);
    const auto ref = RawOf(slot, global_step);
    if (ref && GivesStatistics(*ref, kind)) return true;
    if (kind == StepKind::kHistogram) return false;
  }
  if (!all && kind != StepKind::kSummary && !(saved && SavesReductions(global_step))) return false;
  return RowOf(slot, global_step).has_value() || ScalarOf(slot, global_step).has_value();
}

std::vector<ValueFinder::FoundRow> ValueFinder::PartRows(const std::vector<WorkerSlot*>& workers, bool final,
                                                         int64_t global_step) const {
  PartsTaken taken;
  std::vector<FoundRow> out;
  for (const WorkerSlot* slot : workers) {
    const auto row = final ? FinalRowOf(*slot) : RowOf(*slot, global_step);
    if (!row || !IsPart(row->def()) || (row->Damaged() & ~format::kKeyColumns) != 0) continue;
    if (taken.Take(row->def(), row->batch->count[row->ref.row])) out.push_back(*row);
  }
  if (!taken.whole()) out.clear();
  return out;
}

Result<TensorValue> ValueFinder::WholeValue(const std::vector<WorkerSlot*>& workers, bool final,
                                            int64_t global_step) const {
  PartsTaken taken;
  std::vector<std::pair<const format::TensorDef*, TensorValue>> parts;
  for (const WorkerSlot* slot : workers) {
    const auto ref = final ? FinalRawOf(*slot) : RawOf(*slot, global_step);
    if (!ref) continue;
    const format::TensorDef& def = slot->reader->tensors()[ref->tensor];
    if (!IsPart(def)) continue;
    TDBG_ASSIGN_OR_RETURN(TensorValue value, slot->ReadRaw(*ref));
    if (taken.Take(def, static_cast<uint64_t>(value.view.element_count())))
      parts.emplace_back(&def, std::move(value));
  }
  if (!taken.whole()) {
    return NotFound("not every part of '" + info().name + "' is there: name a worker to read its part");
  }
  return Assemble(parts);
}

}  // namespace tdbg
