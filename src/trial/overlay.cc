// Which steps there are: merged over workers, overlaid over attempts, and how far they are complete.
#include <algorithm>
#include <limits>

#include "format/columns.h"
#include "format/level.h"
#include "trial/impl.h"

namespace tdbg {
namespace {

constexpr int64_t kForEver = std::numeric_limits<int64_t>::max();

ModeKey ModeOf(uint16_t stored) {
  return stored >= 1 && stored <= 4 ? static_cast<ModeKey>(stored) : ModeKey::kGlobal;
}

}  // namespace

void Trial::Impl::TakeCommits(WorkerSlot& slot, bool again) {
  AttemptSlot& attempt = attempts[slot.attempt_index];
  const store::CommitList commits = slot.reader->commits();
  StepTable& own = attempt.steps;
  // All workers go through the same steps: a step's place is nearly always right after that of the step
  // before.
  size_t hint = 0;
  for (size_t i = slot.commits_seen; i < commits.size(); ++i) {
    const format::Commit commit = commits[i];
    if ((commit.flags & format::kCommitOutside) != 0) continue;
    size_t at;
    if (hint < own.size() && own[hint].global_step == commit.global_step) {
      at = hint;
    } else if (own.empty() || own.back().global_step < commit.global_step) {
      at = own.size();
    } else {
      at = own.LowerBound(commit.global_step);
    }
    if (at == own.size() || own[at].global_step != commit.global_step) {
      // Positions that somebody may have judged move: the overlay will want to know which.
      if (at < attempt.shown_complete && !attempt.shown) attempt.shown = std::make_unique<StepTable>(own);
      StepEntry entry;
      entry.global_step = commit.global_step;
      entry.mode = ModeOf(commit.mode);
      entry.mode_step = commit.mode_step;
      entry.wall_nanos = commit.wall_nanos;
      own.Insert(at, entry);
    }
    if (!again && at < attempt.shown_complete)
      attempt.late_step = std::min(attempt.late_step.value_or(kForEver), commit.global_step);
    StepEntry& step = own[at];
    step.skipped |= (commit.flags & format::kCommitSkipped) != 0;
    step.thinned |= (commit.flags & format::kCommitThinned) != 0;
    if (commit.wall_nanos != 0) step.wall_nanos = std::min(step.wall_nanos, commit.wall_nanos);
    step.shed += commit.shed;
    step.raw_values += commit.raw_tensors;
    step.summaries += commit.summary_rows + commit.scalar_rows;
    slot.info.last_step = std::max(slot.info.last_step, commit.global_step);
    modes_seen[static_cast<int>(step.mode)] = true;
    hint = at + 1;
    overlay_stale = true;
  }
  slot.commits_seen = commits.size();
}

void Trial::Impl::ForgetCommits(AttemptSlot& attempt) {
  if (!attempt.shown) attempt.shown = std::make_unique<StepTable>(std::move(attempt.steps));
  attempt.steps = {};
  overlay_stale = true;
  for (const WorkerIndex worker : attempt.workers) {
    slots[worker]->commits_seen = 0;
    slots[worker]->info.last_step = -1;
  }
}

int64_t Trial::Impl::FrontierOf(const AttemptSlot& attempt, bool superseded) const {
  if (superseded) return kForEver;  // whoever still holds a lock there has been replaced
  int64_t frontier = kForEver;
  for (const WorkerIndex worker : attempt.workers) frontier = std::min(frontier, slots[worker]->frontier());
  // Workers that are still to come hold the others back, unless there is nobody left for them to join.
  if ((frontier != kForEver || awaited) && !AbsentRanks(attempt).empty()) return -1;
  return frontier;
}

std::vector<Trial::Impl::Range> Trial::Impl::Ranges() const {
  std::vector<Range> ranges;
  int64_t end = kForEver;
  for (size_t i = attempts.size(); i-- > 0;) {
    const AttemptSlot& attempt = attempts[i];
    // An attempt takes over with its first step, not by being started: until then the old one is all there
    // is.
    if (attempt.steps.empty() || attempt.number > shown_up_to) continue;
    // A script may begin before the base that the launcher recorded.
    const int64_t begin = std::min(attempt.step_base, attempt.steps.front().global_step);
    if (begin < end) ranges.push_back({&attempt, begin, end});
    end = std::min(end, begin);
  }
  std::reverse(ranges.begin(), ranges.end());
  return ranges;
}

const Trial::Impl::Piece& Trial::Impl::PieceAt(size_t position) const {
  const auto behind = std::upper_bound(pieces.begin(), pieces.end(), position,
                                       [](size_t at, const Piece& piece) { return at < piece.position; });
  return *std::prev(behind);
}

TrialAccess::Step Trial::Impl::StepAt(size_t position) const {
  const Piece& piece = PieceAt(position);
  const StepEntry& entry = AttemptOf(piece.attempt)->steps[piece.first + (position - piece.position)];
  TrialAccess::Step step;
  step.info.global_step = entry.global_step;
  step.info.mode = entry.mode;
  step.info.mode_step = entry.mode_step;
  step.info.wall_nanos = entry.wall_nanos;
  step.info.raw_values = entry.raw_values;
  step.info.summaries = entry.summaries;
  step.info.skipped = entry.skipped;
  step.info.complete = position < complete_count;
  step.attempt = piece.attempt;
  step.shed = entry.shed;
  return step;
}

size_t Trial::Impl::FirstMoved(const std::vector<Piece>& before, size_t limit, int64_t* global_step) const {
  const auto shown_at = [this](const Piece& piece, size_t position) {
    const AttemptSlot& attempt = *AttemptOf(piece.attempt);
    const StepTable& shown = attempt.shown ? *attempt.shown : attempt.steps;
    return shown[piece.first + (position - piece.position)].global_step;
  };
  size_t old = 0, now = 0, position = 0;
  while (position < limit) {
    while (position >= before[old].position + before[old].count) ++old;
    while (now < pieces.size() && position >= pieces[now].position + pieces[now].count) ++now;
    const int64_t was = shown_at(before[old], position);
    if (now == pieces.size()) {
      *global_step = was;
      return position;
    }
    const size_t old_index = before[old].first + (position - before[old].position);
    const size_t now_index = pieces[now].first + (position - pieces[now].position);
    const AttemptSlot& attempt = *AttemptOf(pieces[now].attempt);
    const int64_t is = attempt.steps[now_index].global_step;
    if (before[old].attempt != pieces[now].attempt || was != is) {
      *global_step = std::min(was, is);
      return position;
    }
    // The same stretch of the same list: nothing in it to be compared.
    const bool same = !attempt.shown && old_index == now_index;
    position =
        !same ? position + 1
              : std::min(before[old].position + before[old].count, pieces[now].position + pieces[now].count);
  }
  return limit;
}

void Trial::Impl::RebuildOverlay() {
  const std::vector<Piece> before = std::exchange(pieces, {});
  const size_t old_complete = std::exchange(complete_count, 0);
  step_count = 0;
  overlay_stale = false;
  bool all_complete = true;
  const std::vector<Range> ranges = Ranges();
  for (size_t r = 0; r < ranges.size(); ++r) {
    const AttemptSlot& attempt = *ranges[r].attempt;
    const size_t first = attempt.steps.LowerBound(ranges[r].begin);
    const size_t last = attempt.steps.LowerBound(ranges[r].end);
    if (all_complete) {
      const int64_t frontier = FrontierOf(attempt, r + 1 < ranges.size() || NextToShow().has_value());
      const size_t complete =
          frontier == kForEver ? last : std::clamp(attempt.steps.LowerBound(frontier + 1), first, last);
      complete_count = step_count + (complete - first);
      all_complete = complete == last;
    }
    if (first == last) continue;
    pieces.push_back({attempt.number, step_count, first, last - first});
    step_count += last - first;
  }
  int64_t moved_step = kForEver;
  bool moved = FirstMoved(before, old_complete, &moved_step) < old_complete;
  // A worker that nobody expected has written of steps that somebody may have judged without it.
  for (AttemptSlot& attempt : attempts) {
    if (!attempt.late_step) continue;
    moved = true;
    moved_step = std::min(moved_step, *attempt.late_step);
    attempt.late_step.reset();
  }
  // What was complete stays complete: somebody may have judged it. (A lock that is taken again would say
  // otherwise.)
  if (!moved) complete_count = std::max(complete_count, old_complete);
  for (AttemptSlot& attempt : attempts) {
    attempt.shown.reset();
    attempt.shown_complete = 0;
  }
  for (const Piece& piece : pieces) {
    const size_t complete = std::clamp(complete_count, piece.position, piece.position + piece.count);
    for (AttemptSlot& attempt : attempts) {
      if (attempt.number == piece.attempt) attempt.shown_complete = piece.first + (complete - piece.position);
    }
  }
  if (!moved) return;
  overlay_base = moved_step;
  ++overlay_generation;
}

std::optional<int64_t> Trial::Impl::NextToShow() const {
  for (const AttemptSlot& attempt : attempts) {
    if (attempt.number > shown_up_to && !attempt.steps.empty()) return attempt.number;
  }
  return std::nullopt;
}

std::optional<size_t> Trial::Impl::FindStep(int64_t global_step) const {
  // Pieces ascend, and so do the steps in each.
  for (size_t i = pieces.size(); i-- > 0;) {
    const Piece& piece = pieces[i];
    const StepTable& steps = AttemptOf(piece.attempt)->steps;
    if (global_step < steps[piece.first].global_step) continue;
    const size_t at = steps.LowerBound(global_step);
    if (at >= piece.first + piece.count || steps[at].global_step != global_step) return std::nullopt;
    return piece.position + (at - piece.first);
  }
  return std::nullopt;
}

size_t Trial::Impl::FirstBehind(int64_t global_step) const {
  for (const Piece& piece : pieces) {
    const StepTable& steps = AttemptOf(piece.attempt)->steps;
    const size_t end = piece.first + piece.count;
    if (steps[end - 1].global_step <= global_step) continue;
    return piece.position + (std::max(steps.LowerBound(global_step + 1), piece.first) - piece.first);
  }
  return step_count;
}

void WorkerSlot::ForgetRows() {
  stretches.clear();
  final_rows.clear();
  rows_batches = rows_final = 0;
  stretches_ascend = final_ascend = true;
}

void WorkerSlot::BringRowsUpToDate() {
  const std::span<const store::SummaryBatch> batches = reader->summaries();
  if (rows_resealed != reader->resealed()) {
    // Rows of segments stay where they are, and of a long run nearly all are there.
    while (!stretches.empty() && stretches.back().rows.batch >= rows_final) stretches.pop_back();
    while (!final_rows.empty() && final_rows.back().batch >= rows_final) final_rows.pop_back();
    stretches_ascend = final_ascend;
    rows_batches = std::min(rows_batches, rows_final);
    rows_final = reader->final_batches();
    rows_resealed = reader->resealed();
  }
  constexpr auto kEnd = static_cast<uint16_t>(Point::kEnd);
  for (; rows_batches < batches.size(); ++rows_batches) {
    if (rows_batches <= rows_final) final_ascend = stretches_ascend;
    const store::SummaryBatch& batch = batches[rows_batches];
    reader->Prepare(static_cast<uint32_t>(rows_batches), 0, static_cast<uint32_t>(batch.rows),
                    format::kKeyColumns);
    if ((batch.damaged & format::kKeyColumns) != 0) continue;  // no row can be told from its neighbour
    const int64_t* const steps = batch.step_last;
    const uint16_t* const points = batch.point;
    const auto count = static_cast<uint32_t>(batch.rows);
    for (uint32_t begin = 0; begin < count;) {
      const bool final = points[begin] == kEnd;
      uint32_t end = begin + 1;
      if (final) {
        while (end < count && points[end] == kEnd) ++end;
        final_rows.push_back({static_cast<uint32_t>(rows_batches), begin, end});
      } else {
        int64_t last = steps[begin];
        while (end < count && points[end] != kEnd && steps[end] >= last) last = steps[end++];
        stretches_ascend &= stretches.empty() || stretches.back().last_step <= steps[begin];
        stretches.push_back({{static_cast<uint32_t>(rows_batches), begin, end}, steps[begin], last});
      }
      begin = end;
    }
  }
  if (rows_batches <= rows_final) final_ascend = stretches_ascend;
}

void WorkerSlot::RowsAt(int64_t global_step, std::vector<RowRange>* out) const {
  out->clear();
  const std::span<const store::SummaryBatch> batches = reader->summaries();
  auto at = stretches.begin();
  if (stretches_ascend) {
    at = std::lower_bound(at, stretches.end(), global_step,
                          [](const RowStretch& s, int64_t step) { return s.last_step < step; });
  }
  for (; at != stretches.end(); ++at) {
    if (global_step < at->first_step && stretches_ascend) break;
    if (global_step < at->first_step || global_step > at->last_step) continue;
    const int64_t* const steps = batches[at->rows.batch].step_last;
    const int64_t* const end = steps + at->rows.end;
    // Who asks for one step after the other finds it behind the last one, without a look at other rows.
    const int64_t* first = steps + std::clamp(rows_hint, at->rows.begin, at->rows.end);
    if (first == end || *first != global_step || (first != steps + at->rows.begin && first[-1] == *first))
      first = std::lower_bound(steps + at->rows.begin, end, global_step);
    if (first == end || *first != global_step) continue;
    // And steps mostly have as many rows as the one before: four of them are looked at, of columns that no
    // cache holds.
    const int64_t* last = first + std::min<ptrdiff_t>(rows_hint_count, end - first);
    if (last == first || last[-1] != global_step || (last != end && *last == global_step))
      last = std::upper_bound(first, end, global_step);
    rows_hint_count = static_cast<uint32_t>(last - first);
    rows_hint = static_cast<uint32_t>(last - steps);
    out->push_back({at->rows.batch, static_cast<uint32_t>(first - steps), rows_hint});
  }
}

}  // namespace tdbg
