#include "store/compactor/group_builder.h"

#include <cmath>

namespace tdbg::store {

using format::DrawnStatistic;
using format::kDrawnStatistics;
using format::kNowhere;

GroupBuilder::Row& GroupBuilder::RowOf(const Key& key, bool* is_new) {
  *is_new = false;
  if (expected_ >= rows_.size()) expected_ = 0;
  if (expected_ < rows_.size() && rows_[expected_].key == key) return rows_[expected_++];
  const auto [at, added] = row_of_.try_emplace(key, rows_.size());
  if (added) {
    *is_new = true;
    rows_.emplace_back().key = key;
  }
  expected_ = at->second + 1;
  return rows_[at->second];
}

void GroupBuilder::AddStep(const format::Commit& commit) {
  if (group_.steps == 0) {
    group_.step_first = commit.global_step;
    group_.wall_first = commit.wall_nanos;
  }
  group_.step_last = commit.global_step;
  group_.wall_last = commit.wall_nanos;
  ++group_.steps;
  group_.shed += commit.shed;
  group_.skipped += (commit.flags & format::kCommitSkipped) != 0;
}

void GroupBuilder::AddGroup(const format::LevelGroup& group) {
  if (group_.steps == 0) {
    group_.step_first = group.step_first;
    group_.wall_first = group.wall_first;
  }
  group_.step_last = group.step_last;
  group_.wall_last = group.wall_last;
  group_.steps += group.steps;
  group_.shed += group.shed;
  group_.skipped += group.skipped;
}

// Of equal values the first counts: who draws a line puts its point there.
void GroupBuilder::Offer(double least, int64_t least_at, double greatest, int64_t greatest_at, Drawn* drawn) {
  if (drawn->least_at < 0 || least < drawn->least) {
    drawn->least = least;
    drawn->least_at = least_at;
  }
  if (drawn->greatest_at < 0 || greatest > drawn->greatest) {
    drawn->greatest = greatest;
    drawn->greatest_at = greatest_at;
  }
}

void GroupBuilder::AddRow(const Key& key, int64_t step, const Summary& summary, uint32_t flags) {
  bool is_new = false;
  Row& row = RowOf(key, &is_new);
  if (is_new) {
    row.step_first = step;
    row.summary = summary;
  } else {
    row.summary = Merge(row.summary, summary);
  }
  row.step_last = step;
  row.flags |= flags;
  ++row.rows;
  const uint64_t infinite = summary.pos_inf_count + summary.neg_inf_count;
  row.nan_rows += summary.nan_count != 0;
  row.infinite_rows += infinite != 0;
  row.zero_rows += summary.count != 0 && summary.zero_count == summary.count;
  const auto note = [step](bool is_so, int64_t* at) {
    if (is_so && *at < 0) *at = step;
  };
  const bool any_finite = summary.finite_count() != 0;
  note(summary.nan_count != 0, &row.nan_at);
  note(summary.pos_inf_count != 0, &row.pos_inf_at);
  note(summary.neg_inf_count != 0, &row.neg_inf_at);
  note(!any_finite, &row.none_finite_at);
  const bool first_finite = any_finite && row.first_finite_at < 0;
  note(any_finite, &row.first_finite_at);
  if (any_finite) row.last_finite_at = step;
  for (size_t i = 0; i < kDrawnStatistics; ++i) {
    const double value = format::DrawnValue(static_cast<DrawnStatistic>(i), summary);
    Drawn& drawn = row.drawn[i];
    if (first_finite) drawn.first = value;
    if (any_finite) drawn.last = value;
    if (std::isfinite(value)) Offer(value, step, value, step, &drawn);
  }
}

void GroupBuilder::AddHistogram(const Key& key, const Histogram& histogram) {
  const auto at = row_of_.find(key);
  if (at == row_of_.end()) return;
  Histogram& whole = rows_[at->second].histogram;
  whole = whole.empty() ? histogram : MergeHistograms(whole, histogram);
}

void GroupBuilder::AddCoarseRow(const LevelRows& rows, size_t at, format::TensorId tensor) {
  const auto& s = rows.summaries;
  const auto& over = rows.over;
  const int64_t begin = s.step_first[at];
  bool is_new = false;
  Row& row = RowOf({tensor, s.sub[at], s.point[at], over.mode[at]}, &is_new);
  const Summary summary = rows.SummaryAt(at);
  if (is_new) {
    row.step_first = begin;
    row.summary = summary;
  } else {
    row.summary = Merge(row.summary, summary);
  }
  row.step_last = s.step_last[at];
  row.flags |= s.flags[at];
  row.rows += over.rows[at];
  row.nan_rows += over.nan_rows[at];
  row.infinite_rows += over.infinite_rows[at];
  row.zero_rows += over.zero_rows[at];
  const auto step_of = [begin](uint32_t offset) {
    return offset == kNowhere ? -1 : begin + static_cast<int64_t>(offset);
  };
  const auto note = [&](uint32_t offset, int64_t* place) {
    if (*place < 0) *place = step_of(offset);
  };
  const bool any_finite = over.first_finite_at[at] != kNowhere;
  const bool first_finite = any_finite && row.first_finite_at < 0;
  note(over.nan_at[at], &row.nan_at);
  note(over.pos_inf_at[at], &row.pos_inf_at);
  note(over.neg_inf_at[at], &row.neg_inf_at);
  note(over.none_finite_at[at], &row.none_finite_at);
  note(over.first_finite_at[at], &row.first_finite_at);
  if (any_finite) row.last_finite_at = step_of(over.last_finite_at[at]);
  for (size_t i = 0; i < kDrawnStatistics; ++i) {
    const auto& from = rows.drawn[i];
    Drawn& drawn = row.drawn[i];
    if (first_finite) drawn.first = from.first[at];
    if (any_finite) drawn.last = from.last[at];
    if (from.least_at[at] != kNowhere) {
      Offer(from.least[at], step_of(from.least_at[at]), from.greatest[at], step_of(from.greatest_at[at]),
            &drawn);
    }
  }
}

void GroupBuilder::Finish(uint32_t level, format::LevelContent* content) {
  group_.rows = rows_.size();
#define TDBG_COLUMN(name, ...) content->groups.name.push_back(group_.name);
  TDBG_GROUP_COLUMNS(TDBG_COLUMN)
#undef TDBG_COLUMN
  for (const Row& row : rows_) {
    const auto place = [&row](int64_t step) {
      const int64_t offset = step - row.step_first;
      return step < 0 || offset >= int64_t{kNowhere} ? kNowhere : static_cast<uint32_t>(offset);
    };
    auto& s = content->summaries;
    format::ForEachStatistic([](auto& column, const auto& number) { column.push_back(number); }, s,
                             row.summary);
    s.tensor.push_back(row.key.tensor);
    s.step_first.push_back(row.step_first);
    s.step_last.push_back(row.step_last);
    s.level.push_back(level);
    s.sub.push_back(row.key.sub);
    s.point.push_back(row.key.point);
    s.flags.push_back(row.flags);
    const size_t begin = content->histograms.size();
    if (!row.histogram.empty()) EncodeHistogram(row.histogram, &content->histograms);
    s.histogram_offset.push_back(row.histogram.empty() ? 0 : begin);
    s.histogram_bytes.push_back(static_cast<uint32_t>(content->histograms.size() - begin));
    auto& over = content->over;
    over.mode.push_back(row.key.mode);
    over.rows.push_back(row.rows);
    over.nan_rows.push_back(row.nan_rows);
    over.infinite_rows.push_back(row.infinite_rows);
    over.zero_rows.push_back(row.zero_rows);
    over.nan_at.push_back(place(row.nan_at));
    over.pos_inf_at.push_back(place(row.pos_inf_at));
    over.neg_inf_at.push_back(place(row.neg_inf_at));
    over.none_finite_at.push_back(place(row.none_finite_at));
    over.first_finite_at.push_back(place(row.first_finite_at));
    over.last_finite_at.push_back(place(row.last_finite_at));
    for (size_t i = 0; i < kDrawnStatistics; ++i) {
      const Drawn& drawn = row.drawn[i];
      auto& to = content->drawn[i];
      to.least.push_back(drawn.least);
      to.greatest.push_back(drawn.greatest);
      to.first.push_back(drawn.first);
      to.last.push_back(drawn.last);
      to.least_at.push_back(place(drawn.least_at));
      to.greatest_at.push_back(place(drawn.greatest_at));
    }
  }
  group_ = {};
  rows_.clear();
  row_of_.clear();
  expected_ = 0;
}

}  // namespace tdbg::store
