// Whole series of statistics as columns, for one tensor or for many.
#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <limits>
#include <optional>

#include "base/stable_sort.h"
#include "base/text.h"
#include "format/columns.h"
#include "tdbg/trial.h"
#include "trial/columns.h"
#include "trial/elements.h"
#include "trial/fields.h"
#include "trial/impl.h"
#include "trial/value_finder.h"

namespace tdbg {
namespace {

using format::ColumnBit;
using format::SummaryColumn;
using store::SummaryBatch;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr uint64_t kCounts = ColumnBit(SummaryColumn::k_count) | ColumnBit(SummaryColumn::k_nan_count) |
                             ColumnBit(SummaryColumn::k_pos_inf_count) |
                             ColumnBit(SummaryColumn::k_neg_inf_count);

using RowRef = store::WorkerReader::RowRef;

/// One number of a row. From the columns themselves: gathering a whole row for one of its numbers touches
/// fifteen cache lines instead of one.
struct Field {
  std::string_view name;
  double (*of)(const SummaryBatch&, size_t row);
  void (*of_rows)(const SummaryBatch&, std::span<const RowRef> rows, double* out);
  uint64_t columns;          ///< that it is computed from
  bool of_a_number = false;  ///< a plain number (a learning rate, a metric) has it, too
};

uint64_t FiniteCount(const SummaryBatch& b, size_t i) {
  return b.count[i] - b.nan_count[i] - b.pos_inf_count[i] - b.neg_inf_count[i];
}

constexpr bool IsOfANumber(std::string_view name) { return name == "min" || name == "max" || name == "mean"; }

template <auto kOf>
constexpr Field MakeField(std::string_view name, uint64_t columns, bool of_a_number = false) {
  const auto of_rows = [](const SummaryBatch& batch, std::span<const RowRef> rows, double* out) {
    for (const RowRef& ref : rows) *out++ = kOf(batch, ref.row);
  };
  return {name, kOf, of_rows, columns, of_a_number};
}

constexpr auto kFields = std::to_array<Field>({
#define TDBG_COLUMN(name, ...)                                                               \
  MakeField<[](const SummaryBatch& b, size_t i) { return static_cast<double>(b.name[i]); }>( \
      #name, ColumnBit(SummaryColumn::k_##name), IsOfANumber(#name)),
    TDBG_STATISTICS(TDBG_COLUMN)
#undef TDBG_COLUMN
        MakeField<[](const SummaryBatch& b, size_t i) {
          if (b.mean_abs != nullptr && !std::isnan(b.mean_abs[i])) return b.mean_abs[i];
          const uint64_t n = FiniteCount(b, i);
          return n ? b.l1[i] / static_cast<double>(n) : kNaN;
        }>("mean_abs", kCounts | ColumnBit(SummaryColumn::k_l1)),
    MakeField<[](const SummaryBatch& b, size_t i) { return std::sqrt(b.variance[i]); }>(
        "std", ColumnBit(SummaryColumn::k_variance)),
    MakeField<[](const SummaryBatch& b, size_t i) {
      return static_cast<double>(b.count[i] - FiniteCount(b, i));
    }>("nonfinite_count", kCounts),
    MakeField<[](const SummaryBatch& b, size_t i) {
      return OnlyElement(b.at(i), DType::kFloat64).value_or(kNaN);
    }>("value", kCounts | ColumnBit(SummaryColumn::k_min), true),
});

Result<const Field*> FieldOf(std::string_view name) {
  const auto* const f =
      std::find_if(kFields.begin(), kFields.end(), [&](const Field& x) { return x.name == name; });
  if (f != kFields.end()) return f;
  std::vector<std::string> names;
  std::string all;
  for (const Field& x : kFields) {
    names.emplace_back(x.name);
    all += " " + names.back();
  }
  const auto nearest = base::Nearest(name, names);
  return InvalidArgument("no field '" + std::string(name) + "'" +
                         (nearest ? ": did you mean '" + *nearest + "'?" : ";") + " there are:" + all);
}

/// False where only reductions were saved and they do not say it, where the row is damaged, or of a type
/// without statistics. \pre the row is prepared
bool Knows(const SummaryBatch& batch, uint32_t row, const Field& field) {
  if (batch.unknown == nullptr) return true;
  constexpr uint64_t kNothing = store::kUnreadable | store::kNoStatistics;
  const uint64_t needed = field.name == "mean_abs" ? columns::kMeanAbs : field.columns;
  return columns::IsKnown(batch, row, needed | kNothing);
}

/// Where a tensor's numbers of one step are.
struct Source {
  int64_t step = 0;
  uint32_t order = 0;  ///< of the worker: lowest rank first
  int preference = 0;  ///< higher first: statistics before raw values, the step's own before a micro-step's
  const WorkerSlot* slot = nullptr;
  const SummaryBatch* batch = nullptr;  ///< a row of statistics
  const store::RawRef* raw = nullptr;   ///< only a raw value: its statistics are computed
  format::TensorId tensor = 0;          ///< the reader's id
  uint32_t row = 0;
  double value = 0;  ///< neither: a plain number
};
constexpr int kRawsLast = -(1 << 22);

/// A summary as a batch of one row. Borrows it.
SummaryBatch BatchOf(const Summary& s) {
  SummaryBatch b;
  b.rows = 1;
  format::ForEachStatistic([](auto& pointer, const auto& number) { pointer = &number; }, b, s);
  return b;
}

/// All that is kept of one tensor, one source per step (or per step and worker), ascending.
class SeriesCollector {
 public:
  SeriesCollector(const ValueFinder::Impl& impl, const StepFilter& filter, bool every_worker, bool numbers)
      : ranges_(impl.Ranges()),
        filter_(filter),
        last_(filter.incomplete ? filter.end : std::min(filter.end, impl.LastCompleteStep() + 1)),
        every_worker_(every_worker),
        numbers_(numbers) {}

  /// Prepares the `read` columns of all rows and leaves out those whose `needed` columns are damaged.
  /// \return how many sources ForEach visits at most
  size_t Collect(const ValueFinder& finder, uint64_t read, uint64_t needed) {
    lists_.clear();
    sources_.clear();
    needed_ = needed;
    last_counts_ = finder.last_counts();
    if (finder.info().in_parts) read = store::WorkerReader::kAllColumns;  // merged, they are one row
    for (const ValueFinder::Impl::Range& range : ranges_) {
      const int64_t begin = std::max(range.begin, filter_.begin), end = std::min(range.end, last_);
      if (begin >= end) continue;
      uint32_t order = 0;
      for (const WorkerSlot* slot : finder.Of(*range.attempt)) {
        for (const format::TensorId id : slot->IdsOf(finder.tensor())) {
          const List& list = lists_.emplace_back(slot, order, id, slot->reader->Series(id, begin, end, read));
          CollectOthers(list, begin, end);
        }
        ++order;
      }
    }
    std::erase_if(lists_, [](const List& list) { return list.rows.rows.empty(); });
    const bool merge = !every_worker_ && finder.info().in_parts;
    // Lists whose steps ascend from one to the next (one worker, or attempts one after the other) are visited
    // where they lie, without gathering and sorting.
    in_place_ = !merge && sources_.empty() &&
                std::adjacent_find(lists_.begin(), lists_.end(), [](const List& a, const List& b) {
                  return a.rows.rows.back().global_step >= b.rows.rows.front().global_step;
                }) == lists_.end();
    if (!in_place_) Gather(finder, merge);
    size_t most = sources_.size();
    if (in_place_) {
      for (const List& list : lists_) most += list.rows.rows.size();
    }
    return most;
  }

  /// Calls f(source) -> Status until it fails.
  template <typename F>
  Status ForEach(F&& f) const {
    for (const Source& source : sources_) TDBG_RETURN_IF_ERROR(f(source));
    if (!in_place_) return OkStatus();
    for (const List& list : lists_) {
      Source best;
      bool any = false;
      for (const auto& ref : list.rows.rows) {
        if (!Counts(list, ref)) continue;
        if (any && best.step == ref.global_step && best.preference >= PreferenceOf(ref)) continue;
        if (any && best.step != ref.global_step) TDBG_RETURN_IF_ERROR(f(best));
        best = SourceOf(list, ref);
        any = true;
      }
      if (any) TDBG_RETURN_IF_ERROR(f(best));
    }
    return OkStatus();
  }

  /// Whether ForEachList will do: rows of statistics alone, in lists one behind the other.
  bool in_place() const { return in_place_ && sources_.empty(); }

  /// Instead of ForEach: calls f(slot, batches, rows) for each worker's rows, the one of each step that
  /// counts, ascending. f may change `rows`. \pre in_place()
  template <typename F>
  void ForEachList(F&& f) {
    for (const List& list : lists_) {
      chosen_.clear();
      for (const RowRef& ref : list.rows.rows) {
        if (!Counts(list, ref)) continue;
        if (chosen_.empty() || chosen_.back().global_step != ref.global_step) {
          chosen_.push_back(ref);
        } else if (PreferenceOf(ref) > PreferenceOf(chosen_.back())) {
          chosen_.back() = ref;
        }
      }
      f(*list.slot, list.rows.batches, chosen_);
    }
  }

  /// Appends a field of these rows. Damaged columns are NaN.
  static void Append(std::span<const SummaryBatch> batches, std::span<const RowRef> rows, const Field& field,
                     std::vector<double>* to) {
    size_t at = to->size();
    to->resize(at + rows.size());
    for (size_t begin = 0, end = 0; begin < rows.size(); begin = end) {
      while (end < rows.size() && rows[end].batch == rows[begin].batch) ++end;
      const SummaryBatch& batch = batches[rows[begin].batch];
      double* const out = to->data() + at + begin;
      if ((batch.damaged & field.columns) != 0) {
        std::fill(out, out + (end - begin), kNaN);
        continue;
      }
      field.of_rows(batch, rows.subspan(begin, end - begin), out);
      for (size_t i = begin; batch.unknown != nullptr && i < end; ++i) {
        if (!Knows(batch, rows[i].row, field)) out[i - begin] = kNaN;
      }
    }
  }

  /// Fills out[f] for each field. Damaged columns, and what a plain number does not have, are NaN.
  Status Fill(const Source& source, std::span<const Field* const> fields, double* out) {
    const SummaryBatch* batch = source.batch;
    if (source.raw != nullptr) {
      const auto value = source.slot->ReadRaw(*source.raw);
      computed_ = Summary();
      if (value.ok() && HasStatistics(value->dtype)) {
        if (!summarizer_) summarizer_.emplace();
        TDBG_RETURN_IF_ERROR(summarizer_->Summarize(value->view, &computed_, nullptr));
      } else if (!value.ok() && value.status().code() != Code::kDataLoss) {
        return value.status();
      }
      computed_batch_ = BatchOf(computed_);
      batch = &computed_batch_;
    }
    for (size_t f = 0; f < fields.size(); ++f) {
      out[f] = kNaN;
      if (batch == nullptr) {
        if (fields[f]->of_a_number) out[f] = source.value;
      } else if ((batch->damaged & fields[f]->columns) == 0 && Knows(*batch, source.row, *fields[f])) {
        out[f] = fields[f]->of(*batch, source.row);
      }
    }
    return OkStatus();
  }

 private:
  /// One worker's rows of the tensor.
  struct List {
    const WorkerSlot* slot;
    uint32_t order;
    format::TensorId tensor;
    store::WorkerReader::PreparedRows rows;
  };

  static const format::TensorDef& DefOf(const Source& source) {
    return source.slot->reader->tensors()[source.tensor];
  }
  bool Counts(const List& list, const RowRef& ref) const {
    return ref.sub.point != Point::kEnd && (list.rows.batches[ref.batch].damaged & needed_) == 0;
  }
  int PreferenceOf(const RowRef& ref) const { return Preference(ref.sub, last_counts_); }
  Source SourceOf(const List& list, const RowRef& ref) const {
    Source source;
    source.step = ref.global_step;
    source.order = list.order;
    source.preference = PreferenceOf(ref);
    source.slot = list.slot;
    source.batch = &list.rows.batches[ref.batch];
    source.tensor = list.tensor;
    source.row = ref.row;
    return source;
  }

  /// What is kept of the tensor and is no row, at steps [begin, end).
  void CollectOthers(const List& list, int64_t begin, int64_t end) {
    const auto add = [&](int64_t step, SubKey key, Source source) {
      if (key.point == Point::kEnd || step < begin || step >= end) return;
      source.step = step;
      source.order = list.order;
      source.preference += Preference(key, last_counts_);
      source.slot = list.slot;
      sources_.push_back(source);
    };
    if (numbers_) {
      for (const auto& point : list.slot->reader->ScalarsOf(list.tensor)) {
        Source source;
        source.value = point.value;
        add(point.global_step, point.sub, source);
      }
    }
    // Where statistics are kept the raw values beside them have nothing to add, and reading them is dear.
    const std::span<const RowRef> rows = list.rows.rows;
    size_t next = 0;
    for (const store::RawRef& ref : list.slot->reader->LoneRawsOf(list.tensor)) {
      while (next < rows.size() && rows[next].global_step < ref.global_step) ++next;
      if (next < rows.size() && rows[next].global_step == ref.global_step) continue;
      Source source;
      source.raw = &ref;
      source.preference = kRawsLast;
      add(ref.global_step, ref.sub, source);
    }
  }

  /// Everything as sources.
  void Gather(const ValueFinder& finder, bool merge) {
    const std::vector<Source> others = std::move(sources_);
    sources_.clear();
    for (const List& list : lists_) {
      for (const auto& ref : list.rows.rows) {
        if (Counts(list, ref)) sources_.push_back(SourceOf(list, ref));
      }
    }
    sources_.insert(sources_.end(), others.begin(), others.end());  // a row comes before a number
    const auto before = [](const Source& a, const Source& b) {
      if (a.step != b.step) return a.step < b.step;
      return a.order != b.order ? a.order < b.order : a.preference > b.preference;
    };
    if (!std::is_sorted(sources_.begin(), sources_.end(), before)) base::StableSort(&sources_, before);
    if (merge) MergeParts(finder);
    const auto same = [this](const Source& a, const Source& b) {
      return a.step == b.step && (!every_worker_ || a.order == b.order);
    };
    sources_.erase(std::unique(sources_.begin(), sources_.end(), same), sources_.end());
  }

  /// Puts one source of the whole where all parts of a step are, and none where one is missing.
  void MergeParts(const ValueFinder& finder) {
    merged_.clear();
    size_t kept = 0;
    for (size_t begin = 0, end = 0; begin < sources_.size(); begin = end) {
      const Source& first = sources_[begin];
      while (end < sources_.size() && sources_[end].step == first.step) ++end;
      if (first.batch == nullptr || !finder.TakesTogether(DefOf(first))) {
        sources_[kept++] = first;
        continue;
      }
      PartsTaken taken;
      Summary whole;
      bool any = false;
      for (size_t i = begin; i < end; ++i) {
        const Source& source = sources_[i];
        if (source.batch == nullptr || source.preference != first.preference) continue;
        if ((source.batch->damaged & ~format::kKeyColumns) != 0) continue;
        const Summary part = source.batch->at(source.row);
        if (!taken.Take(DefOf(source), part.count)) continue;
        whole = any ? Merge(whole, part) : part;
        any = true;
      }
      if (!taken.whole()) continue;
      Merged& merged = merged_.emplace_back();
      merged.summary = whole;
      merged.batch = BatchOf(merged.summary);
      sources_[kept] = first;
      sources_[kept].batch = &merged.batch;
      sources_[kept].row = 0;
      ++kept;
    }
    sources_.resize(kept);
  }

  const std::vector<ValueFinder::Impl::Range> ranges_;
  const StepFilter& filter_;
  const int64_t last_;
  const bool every_worker_, numbers_;
  struct Merged {
    Summary summary;
    SummaryBatch batch;
  };
  uint64_t needed_ = 0;
  bool last_counts_ = false;
  std::vector<List> lists_;
  bool in_place_ = false;       // ForEach visits lists_, else sources_
  std::vector<RowRef> chosen_;  // of one list
  std::vector<Source> sources_;
  std::deque<Merged> merged_;             // sources point into it
  std::optional<Summarizer> summarizer_;  // has 230 kB of counters
  Summary computed_;                      // of the last raw value
  SummaryBatch computed_batch_;
};

/// The steps of a trial, for who asks for one after the other.
class StepWalk {
 public:
  explicit StepWalk(const ValueFinder::Impl& impl) : impl_(impl) {}

  /// The step of that number, or none. Faster where it is the one behind the last.
  const StepEntry* Find(int64_t global_step) {
    const StepEntry* entry = At(next_);
    if (entry == nullptr || entry->global_step != global_step) {
      const auto found = impl_.FindStep(global_step);
      if (!found) return nullptr;
      next_ = *found;
      entry = At(next_);
    }
    ++next_;
    return entry;
  }

 private:
  const StepEntry* At(size_t position) {
    if (position >= impl_.step_count) return nullptr;
    if (piece_ == nullptr || position < piece_->position || position >= piece_->position + piece_->count) {
      piece_ = &impl_.PieceAt(position);
      steps_ = &impl_.AttemptOf(piece_->attempt)->steps;
    }
    return &(*steps_)[piece_->first + (position - piece_->position)];
  }

  const ValueFinder::Impl& impl_;
  const ValueFinder::Impl::Piece* piece_ = nullptr;
  const StepTable* steps_ = nullptr;
  size_t next_ = 0;
};

/// Position of the slot's name among `names`, added if it is new.
class WorkerNames {
 public:
  explicit WorkerNames(std::vector<std::string>* names) : names_(names) {}
  uint32_t IndexOf(const WorkerSlot& slot) {
    if (&slot == last_) return last_index_;
    const auto at = std::find(names_->begin(), names_->end(), slot.info.name);
    last_index_ = static_cast<uint32_t>(at - names_->begin());
    if (at == names_->end()) names_->push_back(slot.info.name);
    last_ = &slot;
    return last_index_;
  }

 private:
  std::vector<std::string>* names_;
  const WorkerSlot* last_ = nullptr;
  uint32_t last_index_ = 0;
};

/// Room for `more` items at least, without an end to growing by factors.
template <typename... T>
void MakeRoom(size_t more, std::vector<T>*... columns) {
  const auto make = [more](auto* column) {
    const size_t size = column->size() + more;
    if (size > column->capacity()) column->reserve(std::max(size, column->capacity() * 2));
  };
  (make(columns), ...);
}

}  // namespace

Result<Trial::Series> Trial::series(std::string_view name, std::string_view field,
                                    std::string_view worker) const {
  TDBG_ASSIGN_OR_RETURN(const ValueFinder finder, ValueFinder::Make(*impl_, name, worker));
  TDBG_ASSIGN_OR_RETURN(const Field* const f, FieldOf(field));
  const StepFilter filter;
  SeriesCollector collector(*impl_, filter, false, f->of_a_number);
  const size_t most = collector.Collect(finder, f->columns, f->columns);
  Series series;
  series.steps.reserve(most);
  series.values.reserve(most);
  const Status filled = collector.ForEach([&](const Source& source) {
    if (source.batch != nullptr && !Knows(*source.batch, source.row, *f)) return OkStatus();
    double value = kNaN;
    TDBG_RETURN_IF_ERROR(collector.Fill(source, {&f, 1}, &value));
    series.steps.push_back(source.step);
    series.values.push_back(value);
    return OkStatus();
  });
  TDBG_RETURN_IF_ERROR(filled);
  return series;
}

Status CheckField(std::string_view name) { return FieldOf(name).status(); }

Result<Frame> Trial::frame(const TensorFilter& tensors, std::span<const std::string> fields,
                           std::string_view worker) const {
  std::vector<const Field*> columns;
  uint64_t read = 0;
  bool numbers = false;
  for (const std::string& field : fields) {
    TDBG_ASSIGN_OR_RETURN(const Field* const f, FieldOf(field));
    columns.push_back(f);
    read |= f->columns;
    numbers |= f->of_a_number;
  }
  TDBG_ASSIGN_OR_RETURN(const std::vector<TensorIndex> chosen, impl_->TensorsOf(*this, tensors));
  const bool every_worker = worker == "*";
  if (!every_worker) TDBG_RETURN_IF_ERROR(ValueFinder::CheckWorker(*impl_, worker));
  StepFilter filter = tensors.steps;
  if (tensors.global_step) {
    filter.begin = *tensors.global_step;
    filter.end = *tensors.global_step + 1;
  }
  Frame frame;
  frame.fields.assign(fields.begin(), fields.end());
  frame.values.resize(fields.size());
  WorkerNames workers(&frame.workers);
  SeriesCollector collector(*impl_, filter, every_worker, numbers);
  std::vector<double> row(fields.size());
  for (const TensorIndex tensor : chosen) {
    const ValueFinder finder(*impl_, tensor, every_worker ? std::string_view() : worker);
    const size_t most = collector.Collect(finder, read, 0);
    MakeRoom(most, &frame.tensor, &frame.worker, &frame.step, &frame.mode, &frame.mode_step);
    for (std::vector<double>& column : frame.values) MakeRoom(most, &column);
    StepWalk steps(*impl_);
    bool named = false;
    // False where the step is not one of those asked for.
    const auto take = [&](int64_t global_step, const WorkerSlot& slot) {
      const StepEntry* const step = steps.Find(global_step);
      if (step == nullptr || (filter.mode != ModeKey::kGlobal && step->mode != filter.mode)) return false;
      if (!named) frame.names.push_back(finder.info().name);
      named = true;
      frame.tensor.push_back(static_cast<uint32_t>(frame.names.size() - 1));
      frame.worker.push_back(workers.IndexOf(slot));
      frame.step.push_back(global_step);
      frame.mode.push_back(step->mode);
      frame.mode_step.push_back(step->mode_step);
      return true;
    };
    if (collector.in_place()) {
      collector.ForEachList(
          [&](const WorkerSlot& slot, std::span<const SummaryBatch> batches, std::vector<RowRef>& rows) {
            std::erase_if(rows, [&](const RowRef& ref) { return !take(ref.global_step, slot); });
            for (size_t c = 0; c < columns.size(); ++c) {
              SeriesCollector::Append(batches, rows, *columns[c], &frame.values[c]);
            }
          });
      continue;
    }
    const Status filled = collector.ForEach([&](const Source& source) {
      if (!take(source.step, *source.slot)) return OkStatus();
      TDBG_RETURN_IF_ERROR(collector.Fill(source, columns, row.data()));
      for (size_t c = 0; c < row.size(); ++c) frame.values[c].push_back(row[c]);
      return OkStatus();
    });
    TDBG_RETURN_IF_ERROR(filled);
  }
  return frame;
}

}  // namespace tdbg
