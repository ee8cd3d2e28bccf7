#include "query/blocks.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace tdbg::query {
namespace {

template <MatrixStatistic kId>
void AddRow(const TrialAccess::RowSpan& span, uint32_t i, Cell* cell) {
  const auto& b = *span.batch;
  const double value = StatisticOfRow<kId>(span, i);
  if (std::isfinite(value)) {
    constexpr double kMost = std::numeric_limits<float>::max();
    const float narrow = static_cast<float>(std::clamp(value, -kMost, kMost));
    if (narrow < cell->low) cell->low = narrow;
    if (narrow > cell->high) cell->high = narrow;
  }
  uint8_t flags = kCellKept;
  if (b.nan_count[i] != 0) flags |= kCellNan;
  if ((b.pos_inf_count[i] | b.neg_inf_count[i]) != 0) flags |= kCellInfinity;
  if (b.count[i] != 0 && b.zero_count[i] == b.count[i]) flags |= kCellAllZero;
  cell->flags |= flags;
}

/// Calls f.operator()<id>() for the statistic's id: the choice is made once, not for each row.
template <typename F>
void WithStatistic(MatrixStatistic id, F&& f) {
  using enum MatrixStatistic;
  switch (id) {
    case kMeanAbs:
      return f.template operator()<kMeanAbs>();
    case kL2:
      return f.template operator()<kL2>();
    case kAbsMax:
      return f.template operator()<kAbsMax>();
    case kStd:
      return f.template operator()<kStd>();
    case kMean:
      return f.template operator()<kMean>();
    case kMin:
      return f.template operator()<kMin>();
    case kMax:
      return f.template operator()<kMax>();
    case kZeroShare:
      return f.template operator()<kZeroShare>();
    case kNonfiniteShare:
      return f.template operator()<kNonfiniteShare>();
  }
}

/// Adds a coarse row, which has the extremes of what AddRow would have taken in one by one. Of a part of a
/// tensor it is only known that what is not finite in it is not finite in the whole.
void AddCoarseRow(const TrialAccess& access, const StatisticSpec& spec, const CoarseRows::Span& span,
                  size_t row, Cell* cell) {
  const auto& over = span.rows->over;
  if (over.nan_rows[row] != 0) cell->flags |= kCellNan;
  if (over.infinite_rows[row] != 0) cell->flags |= kCellInfinity;
  cell->flags |= kCellKept;
  if (span.keeps_parts && access.tensor(span.TensorAt(row)).in_parts) return;
  constexpr double kMost = std::numeric_limits<float>::max();
  const auto& drawn = span.rows->drawn[static_cast<size_t>(spec.drawn)];
  if (drawn.least_at[row] != format::kNowhere) {
    Cell values;
    values.low = static_cast<float>(std::clamp(drawn.least[row], -kMost, kMost));
    values.high = static_cast<float>(std::clamp(drawn.greatest[row], -kMost, kMost));
    cell->Merge(values);
  }
  if (over.zero_rows[row] != 0) cell->flags |= kCellAllZero;
}

/// Adds every tensor's row of the step to cells[tensor].
void AddStep(const TrialAccess& access, const StatisticSpec& spec, size_t step, std::vector<Cell>* cells) {
  for (const TrialAccess::RowSpan& span : access.RowSpansOf(step, nullptr, spec.columns)) {
    WithStatistic(spec.id, [&]<MatrixStatistic kId>() {
      for (uint32_t i = span.begin; i < span.end; ++i) {
        const TensorIndex tensor = span.tensor_of[span.batch->tensor[i]];
        if (tensor < cells->size()) AddRow<kId>(span, i, &(*cells)[tensor]);
      }
    });
  }
}

/// The same for `tensors` only, in their order.
void AddStepOf(const TrialAccess& access, const StatisticSpec& spec, size_t step, TensorPlaces* tensors,
               std::vector<Cell>* cells) {
  size_t position = 0;
  for (const TrialAccess::RowSpan& span : access.RowSpansOf(step, nullptr, spec.columns)) {
    const std::span<const TensorPlaces::Place> places = tensors->Of(span, position++);
    WithStatistic(spec.id, [&]<MatrixStatistic kId>() {
      for (const TensorPlaces::Place place : places)
        AddRow<kId>(span, span.begin + place.offset, &(*cells)[place.at]);
    });
  }
}

void MergeCells(const std::vector<Cell>& from, std::vector<Cell>* into) {
  const size_t size = std::min(from.size(), into->size());
  for (size_t i = 0; i < size; ++i) (*into)[i].Merge(from[i]);
}

}  // namespace

std::optional<uint32_t> TensorPlaces::PlaceOf(TensorIndex tensor) const {
  if (tensor >= place_of_.size() || place_of_[tensor] == kNotWanted) return std::nullopt;
  return place_of_[tensor];
}

TensorPlaces::TensorPlaces(std::vector<TensorIndex> tensors, size_t tensor_count)
    : tensors_(std::move(tensors)), place_of_(tensor_count, kNotWanted) {
  for (uint32_t at = 0; at < tensors_.size(); ++at) place_of_[tensors_[at]] = at;
}

std::span<const TensorPlaces::Place> TensorPlaces::Of(const TrialAccess::RowSpan& span,
                                                      size_t position_of_span) {
  if (known_.size() <= position_of_span) known_.resize(position_of_span + 1);
  Known& known = known_[position_of_span];
  const std::span<const uint32_t> ids(span.batch->tensor + span.begin, span.end - span.begin);
  if (known.tensor_of == span.tensor_of.data() && std::ranges::equal(known.ids, ids)) return known.places;
  known.tensor_of = span.tensor_of.data();
  known.ids.assign(ids.begin(), ids.end());
  known.places.clear();
  for (uint32_t offset = 0; offset < ids.size(); ++offset) {
    const TensorIndex tensor = span.tensor_of[ids[offset]];
    if (tensor < place_of_.size() && place_of_[tensor] != kNotWanted)
      known.places.push_back({offset, place_of_[tensor]});
  }
  return known.places;
}

void StatisticBlocks::Update(const TrialAccess& access) {
  if (access.overlay_generation() != overlay_generation_) {
    overlay_generation_ = access.overlay_generation();
    blocks_.clear();
    taken_ = 0;
  }
  const size_t tensors = access.tensor_count();
  if (taken_ == 0) {
    // As they would have become in the end. Where coarse rows tell of the run, no smaller than theirs: then
    // most steps need no look.
    while ((access.complete_count() >> shift_) * tensors * sizeof(Cell) > most_bytes_) ++shift_;
    if (CoarseRows(access.trial()).From(0, access.complete_count(), &spans_) != 0)
      shift_ = std::max(shift_, kCoarseShift);
  }
  while (taken_ < access.complete_count()) {
    const size_t block = taken_ >> shift_;
    if (block == blocks_.size()) {
      if ((blocks_.size() + 1) * tensors * sizeof(Cell) > most_bytes_ && blocks_.size() > 1) {
        Coarsen();
        continue;
      }
      blocks_.emplace_back();
    }
    if (blocks_[block].size() < tensors) blocks_[block].resize(tensors);
    const size_t end = std::min((block + 1) << shift_, access.complete_count());
    taken_ += AddFrom(access, taken_, end, &blocks_[block]);
  }
}

size_t StatisticBlocks::AddFrom(const TrialAccess& access, size_t step, size_t end,
                                std::vector<Cell>* cells) {
  const CoarseRows coarse(access.trial());
  const auto add_spans = [&] {
    for (const CoarseRows::Span& span : spans_) {
      for (size_t row = span.begin; row < span.end; ++row) {
        const TensorIndex tensor = span.TensorAt(row);
        if (tensor < cells->size()) AddCoarseRow(access, *spec_, span, row, &(*cells)[tensor]);
      }
    }
  };
  if (const size_t steps = coarse.From(step, end, &spans_); steps != 0) {
    add_spans();
    return steps;
  }
  AddStep(access, *spec_, step, cells);
  if (coarse.IsThinned(step)) {
    coarse.Of(step, &spans_);
    add_spans();
  }
  return 1;
}

void StatisticBlocks::Coarsen() {
  ++shift_;
  size_t out = 0;
  for (size_t i = 0; i < blocks_.size(); i += 2, ++out) {
    std::vector<Cell> block = std::move(blocks_[i]);
    if (i + 1 < blocks_.size()) {
      if (block.size() < blocks_[i + 1].size()) block.resize(blocks_[i + 1].size());
      MergeCells(blocks_[i + 1], &block);
    }
    blocks_[out] = std::move(block);
  }
  blocks_.resize(out);
}

void StatisticBlocks::Merge(const TrialAccess& access, size_t begin, size_t end, TensorPlaces* tensors,
                            std::vector<Cell>* cells) const {
  end = std::min(end, taken_);
  const CoarseRows coarse(access.trial());
  std::vector<CoarseRows::Span> spans;
  while (begin < end) {
    const size_t block = begin >> shift_;
    const size_t block_begin = block << shift_, block_end = block_begin + block_steps();
    // The last block may be used whole if nothing in it lies behind `end`.
    if (begin == block_begin && (end >= block_end || end == taken_)) {
      const std::vector<Cell>& from = blocks_[block];
      for (size_t i = 0; i < tensors->tensors().size(); ++i) {
        const TensorIndex tensor = tensors->tensors()[i];
        if (tensor < from.size()) (*cells)[i].Merge(from[tensor]);
      }
      begin = block_end;
      continue;
    }
    AddStepOf(access, *spec_, begin, tensors, cells);
    if (coarse.IsThinned(begin)) {
      // Whole groups: what lies at the edge of a bucket is shown in both, and never in none.
      coarse.Of(begin, &spans);
      for (const CoarseRows::Span& span : spans) {
        for (size_t row = span.begin; row < span.end; ++row) {
          if (const auto place = tensors->PlaceOf(span.TensorAt(row)))
            AddCoarseRow(access, *spec_, span, row, &(*cells)[*place]);
        }
      }
    }
    ++begin;
  }
}

}  // namespace tdbg::query
