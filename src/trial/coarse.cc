#include "trial/coarse.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "base/file.h"
#include "base/stable_sort.h"
#include "trial/impl.h"
#include "trial/lookup.h"
#include "trial/value_finder.h"

namespace tdbg {

struct WorkerLevels {
  explicit WorkerLevels(const std::string& directory) : reader(directory) {}

  struct Known {
    std::vector<TensorIndex> tensor_of;    // by the file's ids
    std::vector<uint32_t> rows_by_tensor;  // all rows, by the file's id, then in order
  };
  store::LevelReader reader;
  uint64_t generation = 0;
  std::map<const store::LevelFile*, Known> known;
};

namespace {

using Impl = ValueFinder::Impl;

WorkerLevels& LevelsOf(const Impl& impl, const WorkerSlot& slot) {
  if (!slot.levels) slot.levels = std::make_shared<WorkerLevels>(slot.directory);
  WorkerLevels& levels = *slot.levels;
  // A run of smdebug's has no place for them.
  if (levels.generation != impl.generation + 1 && impl.smdebug == nullptr) {
    levels.generation = impl.generation + 1;
    if (levels.reader.Refresh()) levels.known.clear();
  }
  return levels;
}

const WorkerLevels::Known& KnownOf(const Impl& impl, WorkerLevels* levels, const store::LevelFile& file) {
  WorkerLevels::Known& known = levels->known[&file];
  if (!known.tensor_of.empty()) return known;
  for (const format::TensorDef& def : *file.tensors()) {
    if (def.id > (1u << 24)) continue;  // nonsense: its rows are nobody's
    if (def.id >= known.tensor_of.size()) known.tensor_of.resize(def.id + 1, CoarseRows::kNoTensor);
    if (const auto tensor = impl.tensors.Find(def.name)) known.tensor_of[def.id] = *tensor;
  }
  return known;
}

std::optional<CoarseRows::Span> SpanOf(const Impl& impl, WorkerIndex worker, WorkerLevels* levels,
                                       uint32_t level, const store::LevelReader::Group& group) {
  const auto rows = group.file->Rows();
  if (!rows.ok()) {
    levels->reader.Report(*group.file, rows.status());
    return std::nullopt;
  }
  CoarseRows::Span span;
  span.worker = worker;
  span.level = level;
  span.step_first = group.step_first;
  span.step_last = group.step_last;
  span.rows = *rows;
  span.begin = group.file->FirstRow(group.group);
  span.end = group.file->FirstRow(group.group + 1);
  span.tensor_of = KnownOf(impl, levels, *group.file).tensor_of;
  span.keeps_parts = impl.slots[worker]->keeps_parts;
  return span;
}

/// The shortest group that tells of the step.
std::optional<CoarseRows::Span> ShortestAt(const Impl& impl, WorkerIndex worker, int64_t global_step) {
  WorkerLevels& levels = LevelsOf(impl, *impl.slots[worker]);
  for (uint32_t level = 1; level <= levels.reader.highest_level(); ++level) {
    const store::LevelReader::Group* const group = levels.reader.At(level, global_step);
    if (group == nullptr || group->step_first > global_step) continue;
    if (auto span = SpanOf(impl, worker, &levels, level, *group)) return span;
  }
  return std::nullopt;
}

/// One tensor's rows of a span that count, one of each mode: the step's own before a micro-step's.
std::vector<size_t> RowsOf(const Impl& impl, const CoarseRows::Span& span, TensorIndex tensor) {
  WorkerLevels& levels = LevelsOf(impl, *impl.slots[span.worker]);
  const store::LevelReader::Group* const group = levels.reader.At(span.level, span.step_first);
  WorkerLevels::Known& known = levels.known[group->file];
  const uint32_t* const ids = span.rows->summaries.tensor;
  if (known.rows_by_tensor.empty()) {
    known.rows_by_tensor.resize(span.rows->rows);
    std::iota(known.rows_by_tensor.begin(), known.rows_by_tensor.end(), 0);
    std::sort(known.rows_by_tensor.begin(), known.rows_by_tensor.end(),
              [ids](uint32_t a, uint32_t b) { return std::pair(ids[a], a) < std::pair(ids[b], b); });
  }
  std::map<uint16_t, std::pair<int, size_t>> best;  // by mode: a row, and how much it is preferred
  for (uint32_t id = 0; id < known.tensor_of.size(); ++id) {
    if (known.tensor_of[id] != tensor) continue;
    const auto from =
        std::partition_point(known.rows_by_tensor.begin(), known.rows_by_tensor.end(), [&](uint32_t row) {
          return std::pair<uint32_t, size_t>(ids[row], row) < std::pair<uint32_t, size_t>(id, span.begin);
        });
    for (auto at = from; at != known.rows_by_tensor.end() && ids[*at] == id && *at < span.end; ++at) {
      const SubKey key{span.rows->summaries.sub[*at], static_cast<Point>(span.rows->summaries.point[*at])};
      const auto [of_mode, is_new] =
          best.try_emplace(span.rows->over.mode[*at], std::pair(Preference(key), size_t{*at}));
      if (!is_new && Preference(key) > of_mode->second.first) of_mode->second = {Preference(key), *at};
    }
  }
  std::vector<size_t> rows;
  for (const auto& [mode, row] : best) {
    if (row.first > -2) rows.push_back(row.second);
  }
  return rows;
}

}  // namespace

size_t CoarseRows::From(size_t begin, size_t end, std::vector<Span>* spans) const {
  spans->clear();
  const Impl& impl = ValueFinder::ImplOf(*trial_);
  if (begin >= end || impl.smdebug != nullptr) return 0;
  const TrialAccess::Step step = impl.StepAt(begin);
  const std::vector<WorkerIndex>& workers = impl.AttemptOf(step.attempt)->workers;
  const int64_t first = step.info.global_step;
  uint32_t highest = format::kMaxLevel;
  for (const WorkerIndex worker : workers) {
    if (impl.slots[worker]->keeps_parts) return 0;
    highest = std::min(highest, LevelsOf(impl, *impl.slots[worker]).reader.highest_level());
  }
  for (uint32_t level = highest; level >= 1; --level) {
    size_t steps = 0;
    for (const WorkerIndex worker : workers) {
      WorkerLevels& levels = LevelsOf(impl, *impl.slots[worker]);
      const store::LevelReader::Group* const group = levels.reader.At(level, first);
      if (group == nullptr || group->step_first != first || group->steps > end - begin) break;
      if (spans->empty()) {
        // Nothing of the trial's lies between them but these steps, and no other attempt took over.
        const size_t last = begin + group->steps - 1;
        const TrialAccess::Step there = impl.StepAt(last);
        if (there.info.global_step != group->step_last || there.attempt != step.attempt) break;
        steps = group->steps;
      } else if (group->steps != steps || group->step_last != spans->front().step_last) {
        break;
      }
      auto span = SpanOf(impl, worker, &levels, level, *group);
      if (!span) break;
      spans->push_back(*std::move(span));
    }
    if (!workers.empty() && spans->size() == workers.size()) return steps;
    spans->clear();
  }
  return 0;
}

void CoarseRows::Of(size_t position, std::vector<Span>* spans) const {
  spans->clear();
  const Impl& impl = ValueFinder::ImplOf(*trial_);
  const TrialAccess::Step step = impl.StepAt(position);
  for (const WorkerIndex worker : impl.AttemptOf(step.attempt)->workers) {
    if (auto span = ShortestAt(impl, worker, step.info.global_step)) spans->push_back(*std::move(span));
  }
}

bool CoarseRows::IsThinned(size_t position) const {
  return ValueFinder::ImplOf(*trial_).EntryAt(position).thinned;
}

CoarseRows::Thinned CoarseRows::ThinnedSteps() const {
  const Impl& impl = ValueFinder::ImplOf(*trial_);
  Thinned thinned;
  for (const Impl::Piece& piece : impl.pieces) {
    const StepTable& steps = impl.AttemptOf(piece.attempt)->steps;
    for (size_t i = piece.first; i < piece.first + piece.count; ++i) {
      if (!steps[i].thinned) continue;
      if (thinned.steps++ == 0) thinned.first = steps[i].global_step;
      thinned.last = steps[i].global_step;
    }
  }
  return thinned;
}

CoarseRows::Points CoarseRows::PointsOf(TensorIndex tensor, std::string_view field, std::string_view worker,
                                        int64_t begin, int64_t end) const {
  const Impl& impl = ValueFinder::ImplOf(*trial_);
  Points points;
  const bool is_value = field == "value";
  const auto drawn = format::FindDrawn(is_value ? "mean" : field);
  std::vector<std::pair<int64_t, double>> found;
  for (const Impl::Range& range : impl.Ranges()) {
    const int64_t from = std::max(range.begin, begin), to = std::min(range.end, end);
    const StepTable& steps = range.attempt->steps;
    for (size_t i = steps.LowerBound(from); i < steps.size() && steps[i].global_step < to; ++i) {
      if (!steps[i].thinned) continue;
      std::optional<Span> span;
      std::vector<size_t> rows;
      for (const WorkerIndex one : range.attempt->workers) {  // the lowest rank that has one
        const WorkerSlot& slot = *impl.slots[one];
        if (!worker.empty() && slot.info.name != worker) continue;
        // A part's statistics are not the tensor's.
        if (impl.tensors.at(tensor).in_parts && worker.empty()) break;
        span = ShortestAt(impl, one, steps[i].global_step);
        if (span) rows = RowsOf(impl, *span, tensor);
        if (!rows.empty()) break;
      }
      if (rows.empty() || !drawn) {
        // Where the tensor was not recorded at all nothing was lost; that is not known any more.
        points.lost |= !drawn || !span;
        if (span) i = steps.LowerBound(span->step_last + 1) - 1;
        continue;
      }
      const auto& s = span->rows->summaries;
      const auto& over = span->rows->over;
      const auto& of = span->rows->drawn[static_cast<size_t>(*drawn)];
      for (const size_t row : rows) {
        const auto add = [&](uint32_t at, double value) {
          if (at == format::kNowhere) return;
          const int64_t step = s.step_first[row] + static_cast<int64_t>(at);
          if (step >= from && step < to) found.emplace_back(step, value);
        };
        constexpr double kInfinity = std::numeric_limits<double>::infinity();
        const bool one_element = s.count[row] == over.rows[row];
        if (!is_value || one_element) {
          add(over.first_finite_at[row], of.first[row]);
          add(of.least_at[row], of.least[row]);
          add(of.greatest_at[row], of.greatest[row]);
          add(over.last_finite_at[row], of.last[row]);
          if (is_value) {
            add(over.nan_at[row], Summary::kNaN);
            add(over.pos_inf_at[row], kInfinity);
            add(over.neg_inf_at[row], -kInfinity);
          } else {
            add(over.none_finite_at[row], Summary::kNaN);
          }
        }
      }
      i = steps.LowerBound(span->step_last + 1) - 1;
    }
  }
  const auto before = [](const auto& a, const auto& b) { return a.first < b.first; };
  base::StableSort(&found, before);
  for (const auto& [step, value] : found) {
    if (!points.steps.empty() && points.steps.back() == step) continue;
    points.steps.push_back(step);
    points.values.push_back(value);
  }
  return points;
}

std::vector<std::string> DamagedLevelsOf(const WorkerLevels& levels) {
  std::vector<std::string> out;
  for (const store::Damage& damage : levels.reader.damage()) out.push_back(damage.file + ": " + damage.what);
  return out;
}

}  // namespace tdbg
