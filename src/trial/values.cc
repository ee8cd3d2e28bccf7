// Trial's questions about tensors: by name and step, with answers that say what is there instead.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>

#include "base/regex.h"
#include "base/text.h"
#include "store/reader/columns.h"
#include "tdbg/trial.h"
#include "trial/elements.h"
#include "trial/impl.h"
#include "trial/lookup.h"

namespace tdbg {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::string Listed(const std::vector<int64_t>& steps) {
  if (steps.empty()) return "none";
  std::string text;
  const size_t shown = std::min<size_t>(steps.size(), 6);
  for (size_t i = 0; i < shown; ++i) text += (i ? ", " : "") + std::to_string(steps[i]);
  if (steps.size() > shown) text += " ... " + std::to_string(steps.back());
  return text;
}

struct Field {
  std::string_view name;
  double (*of)(const Summary&);
  uint64_t columns;  ///< that it is computed from
};

using store::ColumnBit;
using store::SummaryColumn;
constexpr uint64_t kCounts = ColumnBit(SummaryColumn::k_count) | ColumnBit(SummaryColumn::k_nan_count) |
                             ColumnBit(SummaryColumn::k_pos_inf_count) |
                             ColumnBit(SummaryColumn::k_neg_inf_count);

#define TDBG_PLAIN_FIELD(field)                                            \
  Field {                                                                  \
    #field, [](const Summary& s) { return static_cast<double>(s.field); }, \
        ColumnBit(SummaryColumn::k_##field)                                \
  }
constexpr auto kFields = std::to_array<Field>({
    TDBG_PLAIN_FIELD(count),
    TDBG_PLAIN_FIELD(nan_count),
    TDBG_PLAIN_FIELD(pos_inf_count),
    TDBG_PLAIN_FIELD(neg_inf_count),
    TDBG_PLAIN_FIELD(zero_count),
    TDBG_PLAIN_FIELD(min),
    TDBG_PLAIN_FIELD(max),
    TDBG_PLAIN_FIELD(mean),
    TDBG_PLAIN_FIELD(variance),
    TDBG_PLAIN_FIELD(m3),
    TDBG_PLAIN_FIELD(m4),
    TDBG_PLAIN_FIELD(l1),
    TDBG_PLAIN_FIELD(l2),
    TDBG_PLAIN_FIELD(abs_min),
    TDBG_PLAIN_FIELD(abs_max),
    {"mean_abs", [](const Summary& s) { return s.mean_abs(); }, kCounts | ColumnBit(SummaryColumn::k_l1)},
    {"std", [](const Summary& s) { return std::sqrt(s.variance); }, ColumnBit(SummaryColumn::k_variance)},
    {"nonfinite_count", [](const Summary& s) { return static_cast<double>(s.count - s.finite_count()); },
     kCounts},
    {"value", [](const Summary& s) { return OnlyElement(s, DType::kFloat64).value_or(kNaN); },
     kCounts | ColumnBit(SummaryColumn::k_min)},
});
#undef TDBG_PLAIN_FIELD

}  // namespace

/// Looks for one thing at one step (or among what was recorded at the end), worker by worker.
class ValueFinder {
 public:
  static Result<ValueFinder> Make(const Trial::Impl& impl, std::string_view name, std::string_view worker) {
    TDBG_ASSIGN_OR_RETURN(const TensorIndex tensor, impl.tensors.Resolve(name));
    ValueFinder finder(impl, tensor, worker);
    if (!worker.empty()) {
      std::vector<std::string> names;
      for (const auto& slot : impl.slots) names.push_back(slot->info.name);
      if (std::find(names.begin(), names.end(), worker) == names.end()) {
        const auto nearest = base::Nearest(worker, names);
        return NotFound("no worker '" + std::string(worker) + "'" +
                        (nearest ? ": did you mean '" + *nearest + "'?" : std::string()));
      }
    }
    return finder;
  }

  /// The workers to ask at a step of the overlay, by rank.
  Result<std::vector<WorkerSlot*>> WorkersAt(int64_t global_step) const {
    const auto at = impl_.FindStep(global_step);
    if (!at) {
      const int64_t last = impl_.steps.empty() ? -1 : impl_.steps.back().info.global_step;
      if (global_step > last) {
        return NotFound("step " + std::to_string(global_step) + " is not there (yet): the last is " +
                        std::to_string(last));
      }
      return NotFound("step " + std::to_string(global_step) + " is not among the run's steps");
    }
    return Of(*impl_.AttemptOf(impl_.steps[*at].attempt));
  }
  std::vector<WorkerSlot*> Of(const AttemptSlot& attempt) const {
    std::vector<WorkerSlot*> out;
    for (const WorkerIndex w : attempt.workers) {
      WorkerSlot* slot = impl_.slots[w].get();
      if (worker_.empty() || slot->info.name == worker_) out.push_back(slot);
    }
    return out;
  }

  struct FoundRow {
    store::WorkerReader::RowRef ref;
    const store::SummaryBatch* batch;
    DType dtype;
    const std::vector<int64_t>* shape;
  };
  std::optional<FoundRow> RowOf(const WorkerSlot& slot, int64_t global_step) const {
    std::optional<FoundRow> best;
    int best_preference = -2;
    const std::span<const store::SummaryBatch> batches = slot.reader->summaries();
    for (const format::TensorId id : slot.IdsOf(tensor_)) {
      const auto rows = slot.reader->RowsOf(id);
      const auto step_of = [&](const store::WorkerReader::RowRef& r) {
        return batches[r.batch].step_last[r.row];
      };
      const auto [first, last] = StepRange(rows, global_step, step_of);
      for (auto it = first; it != last; ++it)
        Offer(slot, id, *it, batches[it->batch], &best, &best_preference);
    }
    return best;
  }
  std::optional<FoundRow> FinalRowOf(const WorkerSlot& slot) const {
    std::optional<FoundRow> best;
    const std::span<const store::SummaryBatch> batches = slot.reader->summaries();
    for (const format::TensorId id : slot.IdsOf(tensor_)) {
      for (const auto& ref : slot.reader->RowsOf(id)) {
        const store::SummaryBatch& batch = batches[ref.batch];
        if (batch.point[ref.row] != static_cast<uint16_t>(Point::kEnd)) continue;
        const format::TensorDef& def = slot.reader->tensors()[id];
        best = FoundRow{ref, &batch, def.dtype, &def.shape};
      }
    }
    return best;
  }

  std::optional<store::RawRef> RawOf(const WorkerSlot& slot, int64_t global_step) const {
    std::optional<store::RawRef> best;
    int best_preference = -2;
    for (const format::TensorId id : slot.IdsOf(tensor_)) {
      const auto raws = slot.reader->RawsOf(id);
      const auto [first, last] =
          StepRange(raws, global_step, [](const store::RawRef& r) { return r.global_step; });
      for (auto it = first; it != last; ++it) {
        if (it->sub.point == Point::kEnd || Preference(it->sub) < best_preference) continue;
        best_preference = Preference(it->sub);
        best = *it;
      }
    }
    return best;
  }
  std::optional<store::RawRef> FinalRawOf(const WorkerSlot& slot) const {
    std::optional<store::RawRef> best;
    for (const format::TensorId id : slot.IdsOf(tensor_)) {
      for (const store::RawRef& ref : slot.reader->RawsOf(id)) {
        if (ref.sub.point == Point::kEnd) best = ref;
      }
    }
    return best;
  }

  std::optional<double> ScalarOf(const WorkerSlot& slot, int64_t global_step) const {
    std::optional<double> best;
    int best_preference = -2;
    for (const format::TensorId id : slot.IdsOf(tensor_)) {
      const auto points = slot.reader->ScalarsOf(id);
      const auto [first, last] = StepRange(
          points, global_step, [](const store::WorkerReader::ScalarPoint& p) { return p.global_step; });
      for (auto it = first; it != last; ++it) {
        if (it->sub.point == Point::kEnd || Preference(it->sub) < best_preference) continue;
        best_preference = Preference(it->sub);
        best = it->value;
      }
    }
    return best;
  }

  /// The only element of the row's tensor, as a tensor.
  static std::optional<TensorValue> Element(const FoundRow& row) {
    if (row.batch->damaged != 0) return std::nullopt;
    const auto value = OnlyElement(row.batch->at(row.ref.row), row.dtype);
    if (!value) return std::nullopt;
    int64_t elements = 1;
    for (const int64_t extent : *row.shape) elements *= extent;
    return ElementValue(*value, row.dtype, elements == 1 ? *row.shape : std::vector<int64_t>());
  }

  TensorIndex tensor() const { return tensor_; }
  const TensorInfo& info() const { return impl_.tensors.at(tensor_); }
  const Trial::Impl& impl() const { return impl_; }

  std::vector<int64_t> Steps(StepKind kind) const;

 private:
  ValueFinder(const Trial::Impl& impl, TensorIndex tensor, std::string_view worker)
      : impl_(impl), tensor_(tensor), worker_(worker) {}

  static void Offer(const WorkerSlot& slot, format::TensorId id, store::WorkerReader::RowRef ref,
                    const store::SummaryBatch& batch, std::optional<FoundRow>* best, int* best_preference) {
    const SubKey key{batch.sub[ref.row], static_cast<Point>(batch.point[ref.row])};
    if (key.point == Point::kEnd || Preference(key) < *best_preference) return;
    *best_preference = Preference(key);
    const format::TensorDef& def = slot.reader->tensors()[id];
    *best = FoundRow{ref, &batch, def.dtype, &def.shape};
  }

  const Trial::Impl& impl_;
  TensorIndex tensor_;
  std::string worker_;
};

std::vector<int64_t> ValueFinder::Steps(StepKind kind) const {
  std::vector<int64_t> out;
  const int64_t last_complete =
      impl_.complete_count == 0 ? -1 : impl_.steps[impl_.complete_count - 1].info.global_step;
  for (const Trial::Impl::Range& range : impl_.Ranges()) {
    const auto add = [&](int64_t step) {
      if (step >= range.begin && step < range.end && step <= last_complete) out.push_back(step);
    };
    for (const WorkerSlot* slot : Of(*range.attempt)) {
      for (const format::TensorId id : slot->IdsOf(tensor_)) {
        if (kind != StepKind::kSummary) {
          for (const store::RawRef& ref : slot->reader->RawsOf(id)) {
            if (ref.sub.point != Point::kEnd) add(ref.global_step);
          }
        }
        if (kind == StepKind::kRaw) continue;
        const std::span<const store::SummaryBatch> batches = slot->reader->summaries();
        for (const auto& ref : slot->reader->RowsOf(id)) {
          if (batches[ref.batch].point[ref.row] != static_cast<uint16_t>(Point::kEnd)) {
            add(batches[ref.batch].step_last[ref.row]);
          }
        }
        for (const auto& point : slot->reader->ScalarsOf(id)) {
          if (point.sub.point != Point::kEnd) add(point.global_step);
        }
      }
    }
  }
  if (!std::is_sorted(out.begin(), out.end())) std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

Result<std::vector<std::string>> Trial::tensor_names(std::string_view regex,
                                                     std::string_view collection) const {
  TDBG_ASSIGN_OR_RETURN(Selection selection, Selection::Make(collection, regex));
  selection.Update(TrialAccess(*this));
  std::vector<std::string> out;
  for (const TensorIndex tensor : selection.tensors()) out.push_back(impl_->tensors.at(tensor).name);
  std::sort(out.begin(), out.end());
  return out;
}

Result<TensorInfo> Trial::tensor(std::string_view name) const {
  TDBG_ASSIGN_OR_RETURN(const TensorIndex tensor, impl_->tensors.Resolve(name));
  return impl_->tensors.at(tensor);
}

Result<std::vector<int64_t>> Trial::tensor_steps(std::string_view name, StepKind kind, ModeKey mode) const {
  TDBG_ASSIGN_OR_RETURN(const ValueFinder finder, ValueFinder::Make(*impl_, name, {}));
  std::vector<int64_t> steps = finder.Steps(kind);
  if (mode == ModeKey::kGlobal) return steps;
  std::vector<int64_t> out;
  for (const int64_t step : steps) {
    const auto at = impl_->FindStep(step);
    if (at && impl_->steps[*at].info.mode == mode) out.push_back(impl_->steps[*at].info.mode_step);
  }
  return out;
}

Result<TensorValue> Trial::value(std::string_view name, int64_t global_step, std::string_view worker) const {
  TDBG_ASSIGN_OR_RETURN(const ValueFinder finder, ValueFinder::Make(*impl_, name, worker));
  TDBG_ASSIGN_OR_RETURN(const std::vector<WorkerSlot*> workers, finder.WorkersAt(global_step));
  bool has_summary = false;
  for (WorkerSlot* slot : workers) {
    if (const auto ref = finder.RawOf(*slot, global_step)) return slot->ReadRaw(*ref);
    if (const auto row = finder.RowOf(*slot, global_step)) {
      has_summary = true;
      if (auto element = ValueFinder::Element(*row)) return std::move(*element);
    }
    if (const auto scalar = finder.ScalarOf(*slot, global_step))
      return ElementValue(*scalar, DType::kFloat64, {});
  }
  return NotFound("no raw value of '" + finder.info().name + "' at step " + std::to_string(global_step) +
                  (has_summary ? " (its summary is there)" : "") +
                  "; raw values are kept at steps: " + Listed(finder.Steps(StepKind::kRaw)));
}

Result<std::vector<std::string>> Trial::statistics(std::string_view name) const {
  TDBG_ASSIGN_OR_RETURN(const TensorIndex tensor, impl_->tensors.Resolve(name));
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
  TDBG_ASSIGN_OR_RETURN(const TensorIndex tensor, impl_->tensors.Resolve(name));
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
      if (const auto ref = finder.FinalRawOf(*slot)) return slot->ReadRaw(*ref);
      if (const auto row = finder.FinalRowOf(*slot)) {
        if (auto element = ValueFinder::Element(*row)) return std::move(*element);
      }
    }
  }
  return NotFound("no value of '" + finder.info().name + "' was recorded at the run's end");
}

namespace {

Result<Summary> SummaryOf(const ValueFinder::FoundRow& row, const std::string& name) {
  if (row.batch->damaged == 0) return row.batch->at(row.ref.row);
  std::string columns;
  for (int c = 0; c < static_cast<int>(SummaryColumn::kCount); ++c) {
    const auto column = static_cast<SummaryColumn>(c);
    if ((row.batch->damaged & ColumnBit(column)) != 0)
      columns += std::string(" ") + store::ColumnName(column);
  }
  return DataLoss("the summaries of '" + name + "' are damaged in:" + columns);
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
    if (const auto row = finder.RowOf(*slot, global_step)) return SummaryOf(*row, finder.info().name);
    if (const auto ref = finder.RawOf(*slot, global_step)) {
      TDBG_ASSIGN_OR_RETURN(const TensorValue value, slot->ReadRaw(*ref));
      return SummaryOf(value);
    }
    if (const auto scalar = finder.ScalarOf(*slot, global_step)) {
      return SummaryOf(ElementValue(*scalar, DType::kFloat64, {}));
    }
  }
  return NotFound("no summary of '" + finder.info().name + "' at step " + std::to_string(global_step) +
                  "; summaries are kept at steps: " + Listed(finder.Steps(StepKind::kSummary)));
}

Result<Summary> Trial::final_summary(std::string_view name, std::string_view worker) const {
  TDBG_ASSIGN_OR_RETURN(const ValueFinder finder, ValueFinder::Make(*impl_, name, worker));
  for (auto attempt = impl_->attempts.rbegin(); attempt != impl_->attempts.rend(); ++attempt) {
    for (WorkerSlot* slot : finder.Of(*attempt)) {
      if (const auto row = finder.FinalRowOf(*slot)) return SummaryOf(*row, finder.info().name);
      if (const auto ref = finder.FinalRawOf(*slot)) {
        TDBG_ASSIGN_OR_RETURN(const TensorValue value, slot->ReadRaw(*ref));
        return SummaryOf(value);
      }
    }
  }
  return NotFound("nothing of '" + finder.info().name + "' was recorded at the run's end");
}

Result<Histogram> Trial::histogram(std::string_view name, int64_t global_step,
                                   std::string_view worker) const {
  TDBG_ASSIGN_OR_RETURN(const ValueFinder finder, ValueFinder::Make(*impl_, name, worker));
  TDBG_ASSIGN_OR_RETURN(const std::vector<WorkerSlot*> workers, finder.WorkersAt(global_step));
  for (WorkerSlot* slot : workers) {
    const auto row = finder.RowOf(*slot, global_step);
    if (!row) continue;
    if (row->batch->histogram_bytes[row->ref.row] != 0 || row->batch->damaged != 0) {
      return slot->reader->HistogramOf(row->ref);
    }
    const bool shed = (row->batch->flags[row->ref.row] & format::kRowHistogramShed) != 0;
    return NotFound("no histogram of '" + finder.info().name + "' at step " + std::to_string(global_step) +
                    (shed ? ": it was due, and there was no room for it"
                          : ": none is kept of tensors with fewer than 256 elements, or none was asked for"));
  }
  return NotFound("no histogram of '" + finder.info().name + "' at step " + std::to_string(global_step));
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
                             std::to_string(value.view.element_count()) + " elements: not a scalar");
    }
    if (finder.RowOf(*slot, global_step)) {
      return InvalidArgument("'" + finder.info().name + "' has more than one element: not a scalar");
    }
  }
  return NotFound("no value of '" + finder.info().name + "' at step " + std::to_string(global_step));
}

Result<Trial::Series> Trial::series(std::string_view name, std::string_view field,
                                    std::string_view worker) const {
  TDBG_ASSIGN_OR_RETURN(const ValueFinder finder, ValueFinder::Make(*impl_, name, worker));
  const auto* const f =
      std::find_if(kFields.begin(), kFields.end(), [&](const Field& x) { return x.name == field; });
  if (f == kFields.end()) {
    std::vector<std::string> names;
    std::string all;
    for (const Field& x : kFields) {
      names.emplace_back(x.name);
      all += " " + names.back();
    }
    const auto nearest = base::Nearest(field, names);
    return InvalidArgument("no field '" + std::string(field) + "'" +
                           (nearest ? ": did you mean '" + *nearest + "'?" : std::string()) +
                           " There are:" + all);
  }
  struct Candidate {
    int64_t step;
    int order;  ///< lowest first: earlier ranks, then the step's own value
    double value;
  };
  std::vector<Candidate> found;
  const int64_t last_complete =
      impl_->complete_count == 0 ? -1 : impl_->steps[impl_->complete_count - 1].info.global_step;
  for (const Impl::Range& range : impl_->Ranges()) {
    int rank = 0;
    for (const WorkerSlot* slot : finder.Of(*range.attempt)) {
      const auto add = [&](int64_t step, SubKey key, double value) {
        if (key.point == Point::kEnd || step < range.begin || step >= range.end || step > last_complete)
          return;
        found.push_back({step, rank * (1 << 21) + ((1 << 20) - Preference(key)), value});
      };
      const std::span<const store::SummaryBatch> batches = slot->reader->summaries();
      for (const format::TensorId id : slot->IdsOf(finder.tensor())) {
        for (const auto& ref : slot->reader->RowsOf(id)) {
          const store::SummaryBatch& batch = batches[ref.batch];
          if ((batch.damaged & f->columns) != 0) continue;
          add(batch.step_last[ref.row], {batch.sub[ref.row], static_cast<Point>(batch.point[ref.row])},
              f->of(batch.at(ref.row)));
        }
        const bool of_a_number =
            f->name == "value" || f->name == "mean" || f->name == "min" || f->name == "max";
        if (!of_a_number) continue;
        for (const auto& point : slot->reader->ScalarsOf(id)) add(point.global_step, point.sub, point.value);
      }
      ++rank;
    }
  }
  const auto before = [](const Candidate& a, const Candidate& b) {
    return a.step != b.step ? a.step < b.step : a.order < b.order;
  };
  if (!std::is_sorted(found.begin(), found.end(), before))
    std::stable_sort(found.begin(), found.end(), before);
  Series series;
  for (const Candidate& candidate : found) {
    if (!series.steps.empty() && series.steps.back() == candidate.step) continue;
    series.steps.push_back(candidate.step);
    series.values.push_back(candidate.value);
  }
  return series;
}

std::optional<std::string> Trial::context(std::string_view topic, int64_t global_step) const {
  const format::ContextRecord* record = TrialAccess(*this).ContextAt(topic, global_step);
  if (!record) return std::nullopt;
  return record->json;
}

}  // namespace tdbg
