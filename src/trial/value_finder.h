// Looking for what is kept of one tensor, worker by worker. For the .cc files of this room.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "tdbg/trial.h"
#include "trial/elements.h"
#include "trial/impl.h"
#include "trial/lookup.h"
#include "trial/parts.h"

namespace tdbg {

/// Looks for one thing at one step (or among what was recorded at the end), worker by worker.
class ValueFinder {
 public:
  using Impl = Trial::Impl;  // for this room: Trial keeps it to itself
  static const Impl& ImplOf(const Trial& trial) { return *trial.impl_; }

  /// `worker`: empty for all.
  ValueFinder(const Trial::Impl& impl, TensorIndex tensor, std::string_view worker)
      : impl_(impl), tensor_(tensor), worker_(worker), last_counts_(impl.LastCounts(info())) {}
  /// \error TensorTable::Resolve's; kNotFound  the worker
  static Result<ValueFinder> Make(const Trial::Impl& impl, std::string_view name, std::string_view worker) {
    TDBG_ASSIGN_OR_RETURN(const TensorIndex tensor, impl.Resolve(name));
    TDBG_RETURN_IF_ERROR(CheckWorker(impl, worker));
    return ValueFinder(impl, tensor, worker);
  }
  /// \error kNotFound  no worker of that name; empty is every worker
  static Status CheckWorker(const Trial::Impl& impl, std::string_view worker) {
    if (worker.empty()) return OkStatus();
    std::vector<std::string> names;
    for (const auto& slot : impl.slots) {
      if (slot->info.name == worker) return OkStatus();
      names.push_back(slot->info.name);
    }
    const auto nearest = base::Nearest(worker, names);
    std::string there;
    for (const std::string& name : names) there += " " + name;
    return NotFound("no worker '" + std::string(worker) + "'" +
                    (nearest         ? ": did you mean '" + *nearest + "'?"
                     : names.empty() ? ": the run has none yet"
                                     : "; there are:" + there));
  }

  /// The workers to ask at a step of the overlay, by rank.
  Result<std::vector<WorkerSlot*>> WorkersAt(int64_t global_step) const {
    const auto at = impl_.FindStep(global_step);
    if (!at) {
      const int64_t last = impl_.step_count == 0 ? -1 : impl_.GlobalStepAt(impl_.step_count - 1);
      if (global_step > last) {
        return NotFound("step " + std::to_string(global_step) + " is not there (yet): the last is " +
                        std::to_string(last));
      }
      return NotFound("step " + std::to_string(global_step) + " is not among the run's steps");
    }
    return Of(*impl_.AttemptOf(impl_.StepAt(*at).attempt));
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
    const WorkerSlot* slot;
    const format::TensorDef* definition;

    const format::TensorDef& def() const { return *definition; }
    /// The numbers, prepared where storage computes or verifies them when they are first asked for.
    Summary Read() const {
      slot->reader->Prepare(ref.batch, ref.row, ref.row + 1);
      return batch->at(ref.row);
    }
    /// Which of them are not known: bits of SummaryBatch::unknown, prepared.
    uint64_t Unknown() const {
      slot->reader->Prepare(ref.batch, ref.row, ref.row + 1);
      return batch->unknown == nullptr ? 0 : batch->unknown[ref.row];
    }
    /// Which columns are damaged, prepared.
    uint64_t Damaged() const {
      slot->reader->Prepare(ref.batch, ref.row, ref.row + 1);
      return batch->damaged;
    }
  };
  std::optional<FoundRow> RowOf(const WorkerSlot& slot, int64_t global_step) const {
    std::optional<FoundRow> best;
    int best_preference = -2;
    for (const format::TensorId id : slot.IdsOf(tensor_)) {
      for (const auto& ref : slot.reader->RowsAt(id, global_step)) {
        if (ref.sub.point == Point::kEnd || Preference(ref.sub, last_counts_) < best_preference) continue;
        best_preference = Preference(ref.sub, last_counts_);
        best = Found(slot, id, ref);
      }
    }
    return best;
  }
  std::optional<FoundRow> FinalRowOf(const WorkerSlot& slot) const {
    std::optional<FoundRow> best;
    for (const format::TensorId id : slot.IdsOf(tensor_)) {
      for (const auto& ref : slot.reader->RowsOf(id)) {
        if (ref.sub.point == Point::kEnd) best = Found(slot, id, ref);
      }
    }
    return best;
  }

  std::optional<store::RawRef> RawOf(const WorkerSlot& slot, int64_t global_step) const {
    std::optional<store::RawRef> best;
    int best_preference = -2;
    for (const format::TensorId id : slot.IdsOf(tensor_)) {
      for (const store::RawRef& ref : slot.reader->RawsAt(id, global_step)) {
        if (ref.sub.point == Point::kEnd || Preference(ref.sub, last_counts_) < best_preference) continue;
        best_preference = Preference(ref.sub, last_counts_);
        best = ref;
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
        if (it->sub.point == Point::kEnd || Preference(it->sub, last_counts_) < best_preference) continue;
        best_preference = Preference(it->sub, last_counts_);
        best = it->value;
      }
    }
    return best;
  }

  std::optional<double> FinalScalarOf(const WorkerSlot& slot) const {
    std::optional<double> best;
    for (const format::TensorId id : slot.IdsOf(tensor_)) {
      for (const auto& point : slot.reader->ScalarsOf(id)) {
        if (point.sub.point == Point::kEnd) best = point.value;
      }
    }
    return best;
  }

  /// The only element of the row's tensor, as a tensor.
  static std::optional<TensorValue> Element(const FoundRow& row) {
    if (row.Damaged() != 0 || row.Unknown() != 0) return std::nullopt;
    const auto value = OnlyElement(row.Read(), row.dtype);
    if (!value) return std::nullopt;
    int64_t elements = 1;
    for (const int64_t extent : *row.shape) elements *= extent;
    return ElementValue(*value, row.dtype, elements == 1 ? *row.shape : std::vector<int64_t>());
  }

  /// True where the answer is made of several workers' parts: a part was found, and no worker is named.
  bool TakesTogether(const format::TensorDef& def) const { return IsPart(def) && worker_.empty(); }
  /// The statistics of all parts, each taken once; empty unless they are the whole. `final`: those recorded
  /// at the run's end, else those of `global_step`.
  std::vector<FoundRow> PartRows(const std::vector<WorkerSlot*>& workers, bool final,
                                 int64_t global_step) const;
  /// The whole tensor's value, put together from all parts.
  /// \error kNotFound  a part is missing; kDataLoss
  Result<TensorValue> WholeValue(const std::vector<WorkerSlot*>& workers, bool final,
                                 int64_t global_step) const;

  TensorIndex tensor() const { return tensor_; }
  const TensorInfo& info() const { return impl_.tensors.at(tensor_); }
  const Trial::Impl& impl() const { return impl_; }
  bool last_counts() const { return last_counts_; }  ///< Trial::Impl::LastCounts

  /// Steps of the overlay at which something that `filter` asks for is kept, by the filter's own numbers.
  std::vector<int64_t> Steps(const StepFilter& filter) const;
  /// Whether Steps() would find any; stops at the first.
  bool HasStep(const StepFilter& filter) const;
  /// Something of that kind is kept of it by this worker at this step.
  bool Keeps(const WorkerSlot& slot, int64_t global_step, StepKind kind) const;
  static bool GivesStatistics(const store::RawRef& ref, StepKind kind);
  static std::vector<store::RawRef> MadeOfValues(const WorkerSlot& slot, format::TensorId id, StepKind kind);
  static bool HasHistogram(const WorkerSlot& slot, const store::WorkerReader::RowRef& ref);

 private:
  static FoundRow Found(const WorkerSlot& slot, format::TensorId id, const store::WorkerReader::RowRef& ref) {
    const format::TensorDef& def = slot.reader->tensors()[id];
    return {ref, &slot.reader->summaries()[ref.batch], def.dtype, &def.shape, &slot, &def};
  }

  /// Calls f(global step) for each kept item of the chosen kind, unsorted, with repetitions; false ends it.
  template <typename F>
  void EachStep(const StepFilter& filter, F&& f) const;
  bool SavesReductions(int64_t global_step) const { return impl_.SavesReductionsOf(info(), global_step); }

  const Trial::Impl& impl_;
  TensorIndex tensor_;
  std::string worker_;
  bool last_counts_;
};

}  // namespace tdbg
