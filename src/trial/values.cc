// Trial's questions about tensors: by name and step, with answers that say what is there instead.
#include <algorithm>

#include "base/text.h"
#include "format/columns.h"
#include "store/reader/row_of_value.h"
#include "tdbg/trial.h"
#include "trial/columns.h"
#include "trial/elements.h"
#include "trial/impl.h"
#include "trial/value_finder.h"

namespace tdbg {
namespace {

std::string Listed(const std::vector<int64_t>& steps) {
  if (steps.empty()) return "none";
  std::string text;
  const size_t shown = std::min<size_t>(steps.size(), 6);
  for (size_t i = 0; i < shown; ++i) text += (i ? ", " : "") + std::to_string(steps[i]);
  if (steps.size() > shown) text += " ... " + std::to_string(steps.back());
  return text;
}

}  // namespace

Result<std::vector<std::string>> Trial::tensor_names(std::string_view regex,
                                                     std::string_view collection) const {
  TDBG_ASSIGN_OR_RETURN(Selection selection, Selection::Make(collection, regex));
  selection.Update(TrialAccess(*this));
  std::vector<std::string> out;
  for (const TensorIndex tensor : selection.tensors()) out.push_back(impl_->tensors.at(tensor).name);
  std::sort(out.begin(), out.end());
  return out;
}

Result<TensorIndex> Trial::Impl::Resolve(std::string_view name) const {
  auto found = tensors.Resolve(name);
  if (found.ok() || tensors.size() != 0) return found;
  const std::vector<std::string> damage = Damage();
  if (damage.empty()) return found;
  return DataLoss("no tensor '" + std::string(name) +
                  "': what held the run's tensors is damaged or cannot be read: " + damage.front());
}

Result<TensorInfo> Trial::tensor(std::string_view name) const {
  TDBG_ASSIGN_OR_RETURN(const TensorIndex tensor, impl_->Resolve(name));
  TensorInfo info = impl_->tensors.at(tensor);
  // Where only a value tells.
  for (auto slot = impl_->slots.begin(); info.dtype == DType::kInvalid && slot != impl_->slots.end();
       ++slot) {
    for (const format::TensorId id : (*slot)->IdsOf(tensor)) {
      const format::TensorDef def = (*slot)->reader->Describe(id);
      if (def.dtype == DType::kInvalid) continue;
      info.dtype = def.dtype;
      info.shape = def.shape;
    }
  }
  return info;
}

Result<std::vector<std::string>> Trial::tensor_names(const TensorFilter& filter) const {
  TDBG_ASSIGN_OR_RETURN(const std::vector<TensorIndex> tensors, impl_->TensorsOf(*this, filter));
  std::vector<std::string> out;
  for (const TensorIndex tensor : tensors) out.push_back(impl_->tensors.at(tensor).name);
  return out;
}

Result<std::vector<int64_t>> Trial::tensor_steps(std::string_view name, StepKind kind, ModeKey mode) const {
  return tensor_steps(name, StepFilter{.mode = mode, .kind = kind});
}

Result<std::vector<int64_t>> Trial::tensor_steps(std::string_view name, const StepFilter& filter,
                                                 std::string_view worker) const {
  TDBG_ASSIGN_OR_RETURN(const ValueFinder finder, ValueFinder::Make(*impl_, name, worker));
  return finder.Steps(filter);
}

Result<bool> Trial::is_kept(std::string_view name, int64_t global_step, StepKind kind,
                            std::string_view worker) const {
  TDBG_ASSIGN_OR_RETURN(const ValueFinder finder, ValueFinder::Make(*impl_, name, worker));
  const auto workers = finder.WorkersAt(global_step);
  if (!workers.ok()) return false;
  return std::any_of(workers->begin(), workers->end(),
                     [&](const WorkerSlot* slot) { return finder.Keeps(*slot, global_step, kind); });
}

Result<std::vector<std::string>> Trial::tensor_workers(std::string_view name, int64_t global_step,
                                                       StepKind kind) const {
  TDBG_ASSIGN_OR_RETURN(const ValueFinder finder, ValueFinder::Make(*impl_, name, {}));
  std::vector<std::string> out;
  const auto workers = finder.WorkersAt(global_step);
  if (!workers.ok()) return out;
  for (const WorkerSlot* slot : *workers) {
    if (finder.Keeps(*slot, global_step, kind)) out.push_back(slot->info.name);
  }
  std::sort(out.begin(), out.end());
  return out;
}

namespace {

/// What is to be said of a step that was whole once.
std::string WasDropped(const ValueFinder::Impl& impl, int64_t global_step) {
  const auto at = impl.FindStep(global_step);
  if (!at || !impl.EntryAt(*at).thinned) return "";
  return " (what it had was dropped to keep the run within its budget; coarse rows tell of it)";
}

}  // namespace

Result<TensorValue> Trial::value(std::string_view name, int64_t global_step, std::string_view worker) const {
  TDBG_ASSIGN_OR_RETURN(const ValueFinder finder, ValueFinder::Make(*impl_, name, worker));
  TDBG_ASSIGN_OR_RETURN(const std::vector<WorkerSlot*> workers, finder.WorkersAt(global_step));
  const char* instead = "";
  for (WorkerSlot* slot : workers) {
    if (const auto ref = finder.RawOf(*slot, global_step)) {
      const bool together = finder.TakesTogether(slot->reader->tensors()[ref->tensor]);
      return together ? finder.WholeValue(workers, false, global_step) : slot->ReadRaw(*ref);
    }
    if (const auto row = finder.RowOf(*slot, global_step)) {
      instead = row->Unknown() == 0 ? " (its summary is there)" : " (reductions of it were saved)";
      if (auto element = ValueFinder::Element(*row)) return std::move(*element);
    }
    if (const auto scalar = finder.ScalarOf(*slot, global_step))
      return ElementValue(*scalar, DType::kFloat64, {});
  }
  return NotFound("no raw value of '" + finder.info().name + "' at step " + std::to_string(global_step) +
                  instead + WasDropped(*impl_, global_step) +
                  "; raw values are kept at steps: " + Listed(finder.Steps({.kind = StepKind::kRaw})));
}

Result<std::vector<std::string>> Trial::statistics(std::string_view name) const {
  TDBG_ASSIGN_OR_RETURN(const TensorIndex tensor, impl_->Resolve(name));
  std::vector<std::string> ids;
  for (TensorIndex i = 0; i < impl_->tensors.size(); ++i) {
    if (impl_->tensors.at(i).kind != kStatisticKind) continue;
    const auto parts = ParseStatisticTensorName(impl_->tensors.at(i).name);
    if (parts && parts->tensor == impl_->tensors.at(tensor).name) ids.emplace_back(parts->id);
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

Result<StatisticValue> Trial::statistic(std::string_view name, std::string_view statistic_id,
                                        int64_t global_step, std::string_view worker) const {
  TDBG_ASSIGN_OR_RETURN(const Statistic statistic, Statistic::FromId(statistic_id));
  TDBG_ASSIGN_OR_RETURN(const TensorIndex tensor, impl_->Resolve(name));
  const std::string& canonical = impl_->tensors.at(tensor).name;
  const std::string recorded = StatisticTensorName(statistic.Id(), canonical);
  if (!impl_->tensors.Find(recorded)) {
    TDBG_ASSIGN_OR_RETURN(const std::vector<std::string> kept, statistics(canonical));
    std::string message = statistic.Id() + " of '" + canonical + "' is not kept; kept of it:";
    for (const std::string& id : kept) message += " " + id;
    return NotFound(kept.empty() ? message + " no derived statistic" : message);
  }
  TDBG_ASSIGN_OR_RETURN(const TensorValue value, this->value(recorded, global_step, worker));
  auto decoded = DecodeStatistic(value.view);
  return decoded.ok() ? decoded : Result<StatisticValue>(decoded.status().Annotate(recorded));
}

Result<TensorValue> Trial::final_value(std::string_view name, std::string_view worker) const {
  TDBG_ASSIGN_OR_RETURN(const ValueFinder finder, ValueFinder::Make(*impl_, name, worker));
  for (auto attempt = impl_->attempts.rbegin(); attempt != impl_->attempts.rend(); ++attempt) {
    for (WorkerSlot* slot : finder.Of(*attempt)) {
      if (const auto ref = finder.FinalRawOf(*slot)) {
        const bool together = finder.TakesTogether(slot->reader->tensors()[ref->tensor]);
        return together ? finder.WholeValue(finder.Of(*attempt), true, 0) : slot->ReadRaw(*ref);
      }
      if (const auto row = finder.FinalRowOf(*slot)) {
        if (auto element = ValueFinder::Element(*row)) return std::move(*element);
      }
      if (const auto scalar = finder.FinalScalarOf(*slot)) return ElementValue(*scalar, DType::kFloat64, {});
    }
  }
  return NotFound("no value of '" + finder.info().name + "' was recorded at the run's end");
}

namespace {

// The numbers of a summary, without what only says whose row it is.
constexpr uint64_t kNumbers = format::kStatisticColumns | columns::kMeanAbs;

Result<Summary> SummaryOf(const ValueFinder::FoundRow& row, const std::string& name) {
  const uint64_t unknown = row.Unknown(), damaged = row.Damaged();
  if (damaged == 0 && unknown == 0) return row.batch->at(row.ref.row);
  if ((unknown & store::kUnreadable) != 0) return DataLoss("'" + name + "' is damaged at this step");
  if ((unknown & store::kNoStatistics) != 0) {
    return NotFound("'" + name + "' has no statistics: its elements are no real numbers");
  }
  if (unknown != 0) {
    const std::string known = columns::Names(kNumbers & ~unknown);
    return NotFound("of '" + name + "' only reductions were saved at this step; known of its summary: " +
                    (known.empty() ? "nothing" : known));
  }
  std::string columns;
  for (size_t c = 0; c < format::kSummaryColumns.size(); ++c) {
    if ((damaged & format::ColumnBit(static_cast<format::SummaryColumn>(c))) != 0)
      columns.append(" ").append(format::kSummaryColumns[c].name);
  }
  return DataLoss("the summaries of '" + name + "' are damaged in:" + columns);
}

Status PartMissing(const ValueFinder& finder) {
  return NotFound("not every part of '" + finder.info().name + "' is there: name a worker to read its part");
}

/// Summary of the row; for a sharded tensor, all workers' shards merged.
Result<Summary> SummaryOf(const ValueFinder& finder, const ValueFinder::FoundRow& row,
                          const std::vector<WorkerSlot*>& workers, bool final, int64_t global_step) {
  const std::string& name = finder.info().name;
  if (!finder.TakesTogether(row.def())) return SummaryOf(row, name);
  const std::vector<ValueFinder::FoundRow> parts = finder.PartRows(workers, final, global_step);
  if (parts.empty()) return PartMissing(finder);
  TDBG_ASSIGN_OR_RETURN(Summary whole, SummaryOf(parts.front(), name));
  for (size_t i = 1; i < parts.size(); ++i) {
    TDBG_ASSIGN_OR_RETURN(const Summary part, SummaryOf(parts[i], name));
    whole = Merge(whole, part);
  }
  return whole;
}

Result<Summary> SummaryOf(const TensorValue& value) {
  Summary summary;
  Summarizer summarizer;
  TDBG_RETURN_IF_ERROR(summarizer.Summarize(value.view, &summary, nullptr));
  return summary;
}

}  // namespace

Result<Summary> Trial::summary(std::string_view name, int64_t global_step, std::string_view worker) const {
  TDBG_ASSIGN_OR_RETURN(const ValueFinder finder, ValueFinder::Make(*impl_, name, worker));
  TDBG_ASSIGN_OR_RETURN(const std::vector<WorkerSlot*> workers, finder.WorkersAt(global_step));
  for (WorkerSlot* slot : workers) {
    if (const auto row = finder.RowOf(*slot, global_step))
      return SummaryOf(finder, *row, workers, false, global_step);
    if (const auto ref = finder.RawOf(*slot, global_step)) {
      const bool together = finder.TakesTogether(slot->reader->tensors()[ref->tensor]);
      TDBG_ASSIGN_OR_RETURN(const TensorValue value,
                            together ? finder.WholeValue(workers, false, global_step) : slot->ReadRaw(*ref));
      return SummaryOf(value);
    }
    if (const auto scalar = finder.ScalarOf(*slot, global_step)) {
      return SummaryOf(ElementValue(*scalar, DType::kFloat64, {}));
    }
  }
  return NotFound("no summary of '" + finder.info().name + "' at step " + std::to_string(global_step) +
                  WasDropped(*impl_, global_step) +
                  "; summaries are kept at steps: " + Listed(finder.Steps({.kind = StepKind::kSummary})));
}

Result<Summary> Trial::final_summary(std::string_view name, std::string_view worker) const {
  TDBG_ASSIGN_OR_RETURN(const ValueFinder finder, ValueFinder::Make(*impl_, name, worker));
  for (auto attempt = impl_->attempts.rbegin(); attempt != impl_->attempts.rend(); ++attempt) {
    for (WorkerSlot* slot : finder.Of(*attempt)) {
      if (const auto row = finder.FinalRowOf(*slot))
        return SummaryOf(finder, *row, finder.Of(*attempt), true, 0);
      if (const auto ref = finder.FinalRawOf(*slot)) {
        TDBG_ASSIGN_OR_RETURN(const TensorValue value, slot->ReadRaw(*ref));
        return SummaryOf(value);
      }
      if (const auto scalar = finder.FinalScalarOf(*slot))
        return SummaryOf(ElementValue(*scalar, DType::kFloat64, {}));
    }
  }
  return NotFound("nothing of '" + finder.info().name + "' was recorded at the run's end");
}

namespace {

// Why the row has none. Called where something waits for an answer, not while rules judge.
Status NoHistogram(const ValueFinder& finder, const ValueFinder::FoundRow& row, int64_t global_step) {
  const uint32_t flags = row.batch->flags[row.ref.row];
  std::string why = ": none is kept of tensors with fewer than 256 elements, or none was asked for";
  if ((flags & format::kRowHistogramShed) != 0) why = ": it was due, and there was no room for it";
  if ((flags & format::kRowHistogramNotDue) != 0)
    why = ": not at this step; histograms are kept at steps: " +
          Listed(finder.Steps({.kind = StepKind::kHistogram}));
  return NotFound("no histogram of '" + finder.info().name + "' at step " + std::to_string(global_step) +
                  why);
}

}  // namespace

Result<Histogram> Trial::histogram(std::string_view name, int64_t global_step,
                                   std::string_view worker) const {
  TDBG_ASSIGN_OR_RETURN(const ValueFinder finder, ValueFinder::Make(*impl_, name, worker));
  TDBG_ASSIGN_OR_RETURN(const std::vector<WorkerSlot*> workers, finder.WorkersAt(global_step));
  for (WorkerSlot* slot : workers) {
    const auto row = finder.RowOf(*slot, global_step);
    if (!row) {
      const auto ref = finder.RawOf(*slot, global_step);
      if (!ref || !HasStatistics(ref->dtype)) continue;
      const bool together = finder.TakesTogether(slot->reader->tensors()[ref->tensor]);
      TDBG_ASSIGN_OR_RETURN(const TensorValue value,
                            together ? finder.WholeValue(workers, false, global_step) : slot->ReadRaw(*ref));
      if (static_cast<uint64_t>(value.view.element_count()) < store::kHistogramFrom) continue;
      Summary summary;
      Histogram histogram;
      TDBG_RETURN_IF_ERROR(Summarizer().Summarize(value.view, &summary, &histogram));
      return histogram;
    }
    if (finder.TakesTogether(row->def())) {
      const std::vector<ValueFinder::FoundRow> parts = finder.PartRows(workers, false, global_step);
      if (parts.empty()) return PartMissing(finder);
      Histogram whole;
      for (const ValueFinder::FoundRow& part : parts) {
        if (part.Damaged() == 0 && part.batch->histogram_bytes[part.ref.row] == 0)
          return NoHistogram(finder, part, global_step);
        TDBG_ASSIGN_OR_RETURN(const Histogram of, part.slot->reader->HistogramOf(part.ref));
        whole = MergeHistograms(whole, of);
      }
      return whole;
    }
    if (row->Damaged() != 0 || row->batch->histogram_bytes[row->ref.row] != 0) {
      return slot->reader->HistogramOf(row->ref);
    }
    return NoHistogram(finder, *row, global_step);
  }
  return NotFound("no histogram of '" + finder.info().name + "' at step " + std::to_string(global_step) +
                  WasDropped(*impl_, global_step));
}

Result<double> Trial::scalar(std::string_view name, int64_t global_step, std::string_view worker) const {
  TDBG_ASSIGN_OR_RETURN(const ValueFinder finder, ValueFinder::Make(*impl_, name, worker));
  TDBG_ASSIGN_OR_RETURN(const std::vector<WorkerSlot*> workers, finder.WorkersAt(global_step));
  for (WorkerSlot* slot : workers) {
    if (const auto scalar = finder.ScalarOf(*slot, global_step)) return *scalar;
    if (const auto row = finder.RowOf(*slot, global_step)) {
      TDBG_ASSIGN_OR_RETURN(const Summary summary, SummaryOf(*row, finder.info().name));
      if (const auto value = OnlyElement(summary, row->dtype)) return *value;
    }
    if (const auto ref = finder.RawOf(*slot, global_step)) {
      TDBG_ASSIGN_OR_RETURN(const TensorValue value, slot->ReadRaw(*ref));
      if (value.view.element_count() == 1) {
        if (const auto element = ElementAsDouble(value, 0)) return *element;
      }
      return InvalidArgument("'" + finder.info().name + "' has " +
                             base::Counted(value.view.element_count(), "element") + ": not a scalar");
    }
    if (finder.RowOf(*slot, global_step)) {
      return InvalidArgument("'" + finder.info().name + "' has more than one element: not a scalar");
    }
  }
  return NotFound("no value of '" + finder.info().name + "' at step " + std::to_string(global_step));
}

std::optional<std::string> Trial::context(std::string_view topic, int64_t global_step) const {
  const format::ContextRecord* record = TrialAccess(*this).ContextAt(topic, global_step);
  if (!record) return std::nullopt;
  return record->json;
}

}  // namespace tdbg
