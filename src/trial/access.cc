#include "trial/access.h"

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "base/stable_sort.h"
#include "trial/columns.h"
#include "trial/elements.h"
#include "trial/impl.h"
#include "trial/lookup.h"

namespace tdbg {
namespace {

/// Who may have something of a tensor at a step: the workers of the attempt that the overlay shows there, by
/// rank, only `worker` if one is given, each with every id that its reader knows the tensor by.
/// Calls f(worker, slot, id) until it returns true.
template <typename Impl, typename F>  // Impl is Trial's own
void EachOwner(const Impl& impl, TensorIndex tensor, int64_t attempt, std::optional<WorkerIndex> worker,
               F&& f) {
  for (const WorkerIndex candidate : impl.AttemptOf(attempt)->workers) {
    if (worker && candidate != *worker) continue;
    const WorkerSlot& slot = *impl.slots[candidate];
    for (const format::TensorId id : slot.IdsOf(tensor)) {
      if (f(candidate, slot, id)) return;
    }
  }
}

}  // namespace

TrialAccess::TrialAccess(const Trial& trial) : trial_(&trial) {}

uint64_t TrialAccess::generation() const { return trial_->impl_->generation; }
uint64_t TrialAccess::overlay_generation() const { return trial_->impl_->overlay_generation; }
int64_t TrialAccess::overlay_base() const { return trial_->impl_->overlay_base; }
void TrialAccess::ShowUpTo(int64_t attempt) {
  trial_->impl_->shown_up_to = attempt;
  trial_->impl_->RebuildOverlay();
}

bool TrialAccess::HasNextAttempt() const { return trial_->impl_->NextToShow().has_value(); }

void TrialAccess::ShowNextAttempt() {
  if (const std::optional<int64_t> next = trial_->impl_->NextToShow()) ShowUpTo(*next);
}

std::span<const TrialAccess::Worker> TrialAccess::workers() const { return trial_->impl_->workers; }

std::span<const WorkerIndex> TrialAccess::workers_of_attempt(int64_t attempt) const {
  const AttemptSlot* slot = trial_->impl_->AttemptOf(attempt);
  return slot ? std::span<const WorkerIndex>(slot->workers) : std::span<const WorkerIndex>();
}

int64_t TrialAccess::world_size(int64_t attempt) const {
  const AttemptSlot* slot = trial_->impl_->AttemptOf(attempt);
  return slot ? std::max<int64_t>(slot->world_size, static_cast<int64_t>(slot->workers.size())) : 0;
}

bool TrialAccess::IsLaidBehind(int64_t attempt) const {
  const AttemptSlot* slot = trial_->impl_->AttemptOf(attempt);
  return slot != nullptr && slot->laid_behind;
}

size_t TrialAccess::tensor_count() const { return trial_->impl_->tensors.size(); }
const TensorInfo& TrialAccess::tensor(TensorIndex tensor) const { return trial_->impl_->tensors.at(tensor); }
bool TrialAccess::LastCounts(TensorIndex index) const { return trial_->impl_->LastCounts(tensor(index)); }
std::optional<TensorIndex> TrialAccess::Find(std::string_view name) const {
  return trial_->impl_->tensors.Find(name);
}
Result<TensorIndex> TrialAccess::Resolve(std::string_view name) const { return trial_->impl_->Resolve(name); }

size_t TrialAccess::StepList::size() const { return trial_->impl_->step_count; }
TrialAccess::Step TrialAccess::StepList::operator[](size_t position) const {
  return trial_->impl_->StepAt(position);
}
size_t TrialAccess::complete_count() const { return trial_->impl_->complete_count; }
std::optional<size_t> TrialAccess::FindStep(int64_t global_step) const {
  return trial_->impl_->FindStep(global_step);
}

bool TrialAccess::CommittedBy(size_t step, WorkerIndex worker) const {
  const int64_t global_step = trial_->impl_->GlobalStepAt(step);
  return trial_->impl_->slots[worker]->reader->commits().AnyAt(
      global_step, [](const format::Commit& c) { return (c.flags & format::kCommitOutside) == 0; });
}

uint64_t TrialAccess::ShedBy(size_t step, WorkerIndex worker) const {
  uint64_t shed = 0;
  (void)trial_->impl_->slots[worker]->reader->commits().AnyAt(
      trial_->impl_->GlobalStepAt(step), [&shed](const format::Commit& c) {
        shed += (c.flags & format::kCommitOutside) == 0 ? c.shed : 0;
        return false;
      });
  return shed;
}

bool TrialAccess::KeptRawValues(size_t step, WorkerIndex worker) const {
  return trial_->impl_->slots[worker]->reader->commits().AnyAt(
      trial_->impl_->GlobalStepAt(step), [](const format::Commit& c) { return c.raw_tensors != 0; });
}

std::vector<TrialAccess::Missing> TrialAccess::MissingWorkers(size_t step) const {
  std::vector<Missing> out;
  const Step at = trial_->impl_->StepAt(step);
  const AttemptSlot* attempt = trial_->impl_->AttemptOf(at.attempt);
  for (const WorkerIndex worker : attempt->workers) {
    const WorkerSlot& slot = *trial_->impl_->slots[worker];
    if (slot.frontier() < at.info.global_step)
      out.push_back({slot.info.name, slot.info.rank, slot.info.last_step >= 0});
  }
  for (const int64_t rank : trial_->impl_->AbsentRanks(*attempt)) {
    out.push_back({"rank " + std::to_string(rank), rank});
  }
  return out;
}

std::span<const TrialAccess::RowSpan> TrialAccess::RowSpansOf(size_t step, uint64_t* lost_rows,
                                                              uint64_t wanted, std::vector<HiddenRow>* hidden,
                                                              std::span<const WorkerIndex> without) const {
  const Trial::Impl& impl = *trial_->impl_;
  std::vector<RowSpan>& spans = impl.scratch_spans;
  spans.clear();
  const Step at = impl.StepAt(step);
  const AttemptSlot* attempt = impl.AttemptOf(at.attempt);
  for (const WorkerIndex worker : attempt->workers) {
    if (std::find(without.begin(), without.end(), worker) != without.end()) continue;
    WorkerSlot& slot = *impl.slots[worker];
    slot.BringRowsUpToDate();
    const std::span<const store::SummaryBatch> batches = slot.reader->summaries();
    slot.RowsAt(at.info.global_step, &impl.scratch_rows);
    const auto take = [&](uint32_t index, const store::SummaryBatch& batch, uint32_t first, uint32_t last) {
      if (batch.damaged != 0) {
        if (lost_rows) *lost_rows += last - first;
        return;
      }
      if (batch.unknown == nullptr) {
        spans.push_back({worker, index, &batch, first, last, slot.tensor_of});
        return;
      }
      // Runs of rows that know what is asked for.
      const uint64_t barring = wanted | store::kUnreadable | store::kNoStatistics;
      const bool finiteness_first = (wanted & columns::kFinite) == columns::kFinite && wanted != ~uint64_t{0};
      const auto shown = [&](uint32_t row) {
        if ((batch.unknown[row] & barring) == 0) return true;
        return finiteness_first && (batch.unknown[row] & (columns::kFinite | store::kUnreadable)) == 0 &&
               (batch.nan_count[row] | batch.pos_inf_count[row] | batch.neg_inf_count[row]) != 0;
      };
      for (uint32_t i = first; i < last;) {
        const uint32_t begin = i;
        while (i < last && shown(i)) ++i;
        if (i != begin) spans.push_back({worker, index, &batch, begin, i, slot.tensor_of});
        for (; i < last && !shown(i); ++i) {
          const uint64_t unknown = batch.unknown[i];
          if ((unknown & store::kNoStatistics) != 0) continue;
          if ((unknown & store::kUnreadable) != 0) {
            if (lost_rows) ++*lost_rows;
          } else if (hidden) {
            hidden->push_back({slot.tensor_of[batch.tensor[i]], worker, unknown & wanted});
          }
        }
      }
    };
    for (const RowRange& range : impl.scratch_rows) {
      slot.reader->Prepare(range.batch, range.begin, range.end);
      take(range.batch, batches[range.batch], range.begin, range.end);
    }
    if (impl.smdebug != nullptr) continue;
    if (const auto* made = slot.computed.At(*slot.reader, at.info.global_step, impl.scratch_rows))
      take(made->batch_index, made->batch, 0, static_cast<uint32_t>(made->batch.rows));
  }
  impl.MergeParts(&spans, lost_rows);
  return spans;
}

std::span<const TrialAccess::RowSpan> TrialAccess::FinalRowSpans() const {
  const Trial::Impl& impl = *trial_->impl_;
  std::vector<RowSpan>& spans = impl.scratch_spans;
  spans.clear();
  for (size_t i = impl.attempts.size(); i-- > 0 && spans.empty();) {
    for (const WorkerIndex worker : impl.attempts[i].workers) {
      WorkerSlot& slot = *impl.slots[worker];
      slot.BringRowsUpToDate();
      const std::span<const store::SummaryBatch> batches = slot.reader->summaries();
      for (const RowRange& r : slot.final_rows) {
        slot.reader->Prepare(r.batch, r.begin, r.end);
        if (batches[r.batch].damaged == 0) {
          spans.push_back({worker, r.batch, &batches[r.batch], r.begin, r.end, slot.tensor_of});
        }
      }
    }
  }
  impl.MergeParts(&spans, nullptr);
  return spans;
}

void Trial::Impl::MergeParts(std::vector<TrialAccess::RowSpan>* spans, uint64_t* lost_rows) const {
  const auto keeps_parts = [this](const TrialAccess::RowSpan& s) { return slots[s.worker]->keeps_parts; };
  if (std::none_of(spans->begin(), spans->end(), keeps_parts)) return;
  struct Group {
    TrialAccess::Row first;
    Summary summary;
    PartsTaken taken;
    bool histograms = true;
    uint32_t flags = 0;
    std::vector<MergedRows::Source> sources;
  };
  std::vector<Group> groups;
  std::unordered_map<uint64_t, size_t> group_of;  // by tensor, sub and point
  std::vector<TrialAccess::RowSpan> kept;
  for (const TrialAccess::RowSpan& span : *spans) {
    const std::span<const format::TensorDef> defs = slots[span.worker]->reader->tensors();
    TrialAccess::RowSpan between = span;
    for (uint32_t i = span.begin; i < span.end; ++i) {
      const format::TensorDef& def = defs[span.batch->tensor[i]];
      if (!IsPart(def)) continue;
      between.end = i;
      if (between.begin < between.end) kept.push_back(between);
      between.begin = i + 1;
      TrialAccess::Row row{span.tensor_of[def.id],
                           span.worker,
                           {span.batch->sub[i], static_cast<Point>(span.batch->point[i])},
                           span.batch,
                           {span.batch_index, i, span.batch->step_last[i], {}}};
      row.ref.sub = row.sub;
      const uint64_t key =
          uint64_t{row.tensor} << 32 | uint64_t{row.sub.sub} << 16 | static_cast<uint64_t>(row.sub.point);
      const auto [at, is_new] = group_of.try_emplace(key, groups.size());
      if (is_new) groups.emplace_back().first = row;
      Group& group = groups[at->second];
      if (!group.taken.Take(def, row.count())) continue;
      group.summary = group.sources.empty() ? row.summary() : Merge(group.summary, row.summary());
      group.histograms = group.histograms && row.has_histogram();
      group.flags |= row.batch->flags[row.ref.row];
      group.sources.push_back({row.worker, row.ref});
    }
    between.end = span.end;
    if (between.begin < between.end) kept.push_back(between);
  }
  merged_rows.Clear();
  for (Group& group : groups) {
    if (group.taken.whole()) {
      merged_rows.Add(group.first.tensor, *group.first.batch, group.first.ref.row, group.summary,
                      group.histograms, group.flags, std::move(group.sources));
    } else if (lost_rows) {
      ++*lost_rows;
    }
  }
  merged_rows.PointAtColumns();
  *spans = std::move(kept);
  if (const auto rows = static_cast<uint32_t>(merged_rows.sources.size()); rows != 0) {
    spans->insert(spans->begin(), {merged_rows.sources.front().front().worker, 0, &merged_rows.batch, 0, rows,
                                   merged_rows.tensor_of});
  }
}

std::optional<TrialAccess::Row> TrialAccess::RowAt(TensorIndex tensor, size_t step,
                                                   std::optional<WorkerIndex> worker, SubKey sub) const {
  const Step at = trial_->impl_->StepAt(step);
  std::optional<Row> found;
  EachOwner(*trial_->impl_, tensor, at.attempt, worker,
            [&](WorkerIndex owner, const WorkerSlot& slot, format::TensorId id) {
              const std::span<const store::SummaryBatch> batches = slot.reader->summaries();
              for (const store::WorkerReader::RowRef& ref : slot.reader->RowsAt(id, at.info.global_step)) {
                if (ref.sub != sub) continue;
                const store::SummaryBatch& batch = batches[ref.batch];
                slot.reader->Prepare(ref.batch, ref.row, ref.row + 1);
                if (batch.damaged != 0 || (batch.unknown != nullptr && batch.unknown[ref.row] != 0)) continue;
                found = Row{tensor, owner, ref.sub, &batch, ref};
                return true;
              }
              return false;
            });
  return found;
}

Result<Histogram> TrialAccess::HistogramOf(const Row& row) const {
  const MergedRows& merged = trial_->impl_->merged_rows;
  if (row.batch == &merged.batch) {
    if (!row.has_histogram()) return NotFound("not every part has a histogram");
    Histogram whole;
    for (const MergedRows::Source& part : merged.sources[row.ref.row]) {
      TDBG_ASSIGN_OR_RETURN(const Histogram of, trial_->impl_->slots[part.worker]->HistogramOf(part.row));
      whole = MergeHistograms(whole, of);
    }
    return whole;
  }
  return trial_->impl_->slots[row.worker]->HistogramOf(row.ref);
}

void TrialAccess::ScalarsOf(size_t step, std::vector<Scalar>* append_to) const {
  const Trial::Impl& impl = *trial_->impl_;
  const Step at = impl.StepAt(step);
  for (const WorkerIndex worker : impl.AttemptOf(at.attempt)->workers) {
    const WorkerSlot& slot = *impl.slots[worker];
    for (const store::WorkerReader::TensorScalar& scalar : slot.reader->ScalarsAt(at.info.global_step)) {
      if (scalar.sub.point != Point::kEnd && scalar.tensor < slot.tensor_of.size())
        append_to->push_back({slot.tensor_of[scalar.tensor], worker, scalar.sub, scalar.value});
    }
  }
}

std::optional<double> TrialAccess::ScalarAt(TensorIndex tensor, size_t step,
                                            std::optional<WorkerIndex> worker) const {
  const Step at = trial_->impl_->StepAt(step);
  const bool last_counts = LastCounts(tensor);
  std::optional<double> best;
  EachOwner(*trial_->impl_, tensor, at.attempt, worker,
            [&](WorkerIndex, const WorkerSlot& slot, format::TensorId id) {
              const std::span<const store::SummaryBatch> batches = slot.reader->summaries();
              int best_preference = -2;
              const auto offer = [&](SubKey key, double value) {
                if (key.point == Point::kEnd || Preference(key, last_counts) < best_preference) return;
                best_preference = Preference(key, last_counts);
                best = value;
              };
              const auto [first, last] =
                  StepRange(slot.reader->ScalarsOf(id), at.info.global_step,
                            [](const store::WorkerReader::ScalarPoint& p) { return p.global_step; });
              for (auto it = first; it != last; ++it) offer(it->sub, it->value);
              if (best) return true;
              for (const store::WorkerReader::RowRef& ref : slot.reader->RowsAt(id, at.info.global_step)) {
                const store::SummaryBatch& batch = batches[ref.batch];
                slot.reader->Prepare(ref.batch, ref.row, ref.row + 1);
                if (batch.damaged != 0 || (batch.unknown != nullptr && batch.unknown[ref.row] != 0)) continue;
                const auto value = OnlyElement(batch.at(ref.row), slot.reader->tensors()[id].dtype);
                if (value) offer(ref.sub, *value);
              }
              if (best || slot.reader->tensors()[id].kind == kStatisticKind) return best.has_value();
              const auto span = slot.reader->RawsAt(id, at.info.global_step);
              for (const store::RawRef& ref : std::vector<store::RawRef>(span.begin(), span.end())) {
                const std::span<const int64_t> shape = slot.reader->ShapeOf(ref);
                if (std::ranges::any_of(shape, [](int64_t extent) { return extent != 1; })) continue;
                const auto value = slot.ReadRaw(ref);
                if (!value.ok()) continue;
                if (const auto element = ElementAsDouble(*value, 0)) offer(ref.sub, *element);
              }
              return best.has_value();
            });
  return best;
}

std::optional<TrialAccess::Raw> TrialAccess::RawAt(TensorIndex tensor, size_t step,
                                                   std::optional<WorkerIndex> worker, SubKey sub) const {
  const Step at = trial_->impl_->StepAt(step);
  std::optional<Raw> found;
  EachOwner(*trial_->impl_, tensor, at.attempt, worker,
            [&](WorkerIndex owner, const WorkerSlot& slot, format::TensorId id) {
              const auto raws = slot.reader->RawsAt(id, at.info.global_step);
              const auto it = std::find_if(raws.begin(), raws.end(),
                                           [&](const store::RawRef& r) { return r.sub == sub; });
              if (it != raws.end()) found = Raw{tensor, owner, *it};
              return found.has_value();
            });
  return found;
}

void TrialAccess::RawsAt(TensorIndex tensor, size_t step, std::vector<Raw>* append_to) const {
  const Step at = trial_->impl_->StepAt(step);
  EachOwner(*trial_->impl_, tensor, at.attempt, {},
            [&](WorkerIndex owner, const WorkerSlot& slot, format::TensorId id) {
              for (const store::RawRef& ref : slot.reader->RawsAt(id, at.info.global_step)) {
                if (ref.sub.point != Point::kEnd) append_to->push_back({tensor, owner, ref});
              }
              return false;
            });
}

std::optional<TensorIndex> TrialAccess::StatisticOf(TensorIndex tensor, std::string_view statistic_id) const {
  return Find(StatisticTensorName(statistic_id, this->tensor(tensor).name));
}

std::vector<int64_t> TrialAccess::RawSteps(TensorIndex tensor) const {
  const Trial::Impl& impl = *trial_->impl_;
  std::vector<int64_t> out;
  for (const Trial::Impl::Range& range : impl.Ranges()) {
    for (const WorkerIndex worker : range.attempt->workers) {
      const WorkerSlot& slot = *impl.slots[worker];
      for (const format::TensorId id : slot.IdsOf(tensor)) {
        for (const store::RawRef& ref : slot.reader->RawsOf(id)) {
          if (ref.sub.point == Point::kEnd || ref.global_step < range.begin || ref.global_step >= range.end)
            continue;
          out.push_back(ref.global_step);
        }
      }
    }
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

namespace {

TensorValue Handed(store::RawValue value) {
  TensorValue out;
  out.owner = std::move(value.owner);
  out.data = value.bytes.data();
  out.dtype = value.dtype;
  out.shape = std::move(value.shape);
  out.view = {out.data, out.dtype, out.shape, {}};
  return out;
}

}  // namespace

Result<TensorValue> WorkerSlot::ReadRaw(const store::RawRef& ref) const {
  TDBG_ASSIGN_OR_RETURN(store::RawValue value, reader->ReadRaw(ref));
  return Handed(std::move(value));
}

Result<TensorValue> WorkerSlot::MapRaw(const store::RawRef& ref) const {
  TDBG_ASSIGN_OR_RETURN(store::RawValue value, reader->MapRaw(ref));
  return Handed(std::move(value));
}

Result<TensorValue> TrialAccess::ReadRaw(const Raw& raw) const {
  return trial_->impl_->slots[raw.worker]->ReadRaw(raw.ref);
}

std::vector<TrialAccess::SavedReduction> TrialAccess::ReductionsAt(TensorIndex tensor, size_t step,
                                                                   std::optional<WorkerIndex> worker) const {
  const Step at = trial_->impl_->StepAt(step);
  std::vector<SavedReduction> out;
  EachOwner(*trial_->impl_, tensor, at.attempt, worker,
            [&](WorkerIndex owner, const WorkerSlot& slot, format::TensorId id) {
              if (!out.empty() && out.front().raw.worker != owner) return true;
              for (const auto& saved : slot.reader->ReductionsOf(id, at.info.global_step)) {
                out.push_back({std::string(saved.name), saved.absolute, {tensor, owner, saved.ref}});
              }
              return false;
            });
  return out;
}

std::optional<std::vector<int64_t>> TrialAccess::SavedShapeAt(TensorIndex tensor, size_t step,
                                                              std::optional<WorkerIndex> worker) const {
  const Step at = trial_->impl_->StepAt(step);
  std::optional<std::vector<int64_t>> shape;
  EachOwner(*trial_->impl_, tensor, at.attempt, worker,
            [&](WorkerIndex, const WorkerSlot& slot, format::TensorId id) {
              shape = slot.reader->SavedShapeOf(id, at.info.global_step);
              return shape.has_value();
            });
  const TensorInfo& info = trial_->impl_->tensors.at(tensor);
  if (!shape && trial_->impl_->SavesReductionsOf(info, at.info.global_step, /*shape=*/true)) {
    // Our runs have it with the statistics.
    auto known = trial_->shape(info.name, at.info.global_step, worker ? workers()[*worker].name : "");
    if (known.ok()) shape = *std::move(known);
  }
  return shape;
}

const format::ContextRecord* TrialAccess::ContextAt(std::string_view topic, int64_t global_step) const {
  const Trial::Impl& impl = *trial_->impl_;
  std::vector<const AttemptSlot*> attempts;
  for (const Trial::Impl::Range& range : impl.Ranges()) {
    if (range.begin <= global_step) attempts.push_back(range.attempt);
  }
  // Recorded before any step was committed.
  if (attempts.empty() && !impl.attempts.empty()) attempts.push_back(&impl.attempts.back());
  // Until an attempt has said something of the topic, what its predecessor said last still holds.
  for (auto attempt = attempts.rbegin(); attempt != attempts.rend(); ++attempt) {
    for (const WorkerIndex worker : (*attempt)->workers) {
      const format::ContextRecord* found = nullptr;
      for (const format::ContextRecord& record : impl.slots[worker]->reader->context()) {
        if (record.topic == topic && record.global_step <= global_step) found = &record;
      }
      if (found) return found;
    }
  }
  return nullptr;
}

std::vector<TrialAccess::WorkersContext> TrialAccess::ContextsOf(std::string_view topic) const {
  const Trial::Impl& impl = *trial_->impl_;
  std::vector<WorkersContext> found;
  const auto take = [&](const AttemptSlot& attempt, int64_t begin, int64_t end) {
    for (const WorkerIndex worker : attempt.workers) {
      for (const format::ContextRecord& record : impl.slots[worker]->reader->context()) {
        if (record.topic == topic && record.global_step >= begin && record.global_step < end)
          found.push_back({worker, &record});
      }
    }
  };
  for (const Trial::Impl::Range& range : impl.Ranges()) take(*range.attempt, range.begin, range.end);
  // It failed before its first step was committed.
  if (!impl.attempts.empty() && impl.attempts.back().steps.empty())
    take(impl.attempts.back(), 0, std::numeric_limits<int64_t>::max());
  base::StableSort(&found, [](const WorkersContext& a, const WorkersContext& b) {
    return a.record->global_step < b.record->global_step;
  });
  return found;
}

Result<Selection> Selection::Make(std::string_view collection, std::string_view regex) {
  Selection selection;
  selection.collection_ = collection;
  if (!regex.empty()) {
    TDBG_ASSIGN_OR_RETURN(base::Regex compiled, base::Regex::Compile(regex));
    selection.regex_ = std::move(compiled);
  }
  return selection;
}

void Selection::Update(const TrialAccess& access) {
  const size_t count = access.tensor_count();
  for (size_t i = mask_.size(); i < count; ++i) {
    const TensorInfo& info = access.tensor(static_cast<TensorIndex>(i));
    const bool derived = info.kind == kStatisticKind;
    bool in =
        collection_ == kStatisticsCollection
            ? derived
            : !derived && (collection_.empty() || collection_ == "all" ||
                           std::binary_search(info.collections.begin(), info.collections.end(), collection_));
    if (in && regex_) in = regex_->Search(info.name);
    mask_.push_back(in ? 1 : 0);
    if (in) tensors_.push_back(static_cast<TensorIndex>(i));
  }
}

}  // namespace tdbg
