// Which steps there are: merged over workers, overlaid over attempts, and how far they are complete.
#include <algorithm>
#include <limits>

#include "base/stable_sort.h"
#include "store/reader/columns.h"
#include "trial/impl.h"

namespace tdbg {
namespace {

constexpr int64_t kForEver = std::numeric_limits<int64_t>::max();

ModeKey ModeOf(uint16_t stored) {
  return stored >= 1 && stored <= 4 ? static_cast<ModeKey>(stored) : ModeKey::kGlobal;
}

bool Before(const TrialAccess::Step& step, int64_t global_step) {
  return step.info.global_step < global_step;
}

}  // namespace

void Trial::Impl::TakeCommits(WorkerSlot& slot) {
  AttemptSlot& attempt = attempts[slot.attempt_index];
  const std::span<const format::Commit> commits = slot.reader->commits();
  // Workers walk through the same steps, so the next one's place is nearly always right after the last one's.
  size_t hint = 0;
  for (size_t i = slot.commits_seen; i < commits.size(); ++i) {
    const format::Commit& commit = commits[i];
    if ((commit.flags & format::kCommitOutside) != 0) continue;
    std::vector<TrialAccess::Step>& own = attempt.steps;
    size_t at;
    if (hint < own.size() && own[hint].info.global_step == commit.global_step) {
      at = hint;
    } else if (own.empty() || own.back().info.global_step < commit.global_step) {
      at = own.size();
    } else {
      at = static_cast<size_t>(std::lower_bound(own.begin(), own.end(), commit.global_step, Before) -
                               own.begin());
    }
    if (at == own.size() || own[at].info.global_step != commit.global_step) {
      TrialAccess::Step step;
      step.info.global_step = commit.global_step;
      step.info.mode = ModeOf(commit.mode);
      step.info.mode_step = commit.mode_step;
      step.info.wall_nanos = commit.wall_nanos;
      step.attempt = attempt.number;
      own.insert(own.begin() + static_cast<ptrdiff_t>(at), step);
    }
    TrialAccess::Step& step = own[at];
    step.info.skipped |= (commit.flags & format::kCommitSkipped) != 0;
    if (commit.wall_nanos != 0) step.info.wall_nanos = std::min(step.info.wall_nanos, commit.wall_nanos);
    step.shed += commit.shed;
    step.info.raw_values += commit.raw_tensors;
    step.info.summaries += commit.summary_rows + commit.scalar_rows;
    attempt.first_changed = std::min(attempt.first_changed, at);
    slot.info.last_step = std::max(slot.info.last_step, commit.global_step);
    modes_seen[static_cast<int>(step.info.mode)] = true;
    hint = at + 1;
  }
  slot.commits_seen = commits.size();
}

void Trial::Impl::ForgetCommits(AttemptSlot& attempt) {
  attempt.steps.clear();
  attempt.first_changed = 0;
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
  if (frontier != kForEver && static_cast<int64_t>(attempt.workers.size()) < attempt.info.world_size)
    return -1;
  return frontier;
}

std::vector<Trial::Impl::Range> Trial::Impl::Ranges() const {
  std::vector<Range> ranges;
  int64_t end = kForEver;
  for (size_t i = attempts.size(); i-- > 0;) {
    const AttemptSlot& attempt = attempts[i];
    // An attempt takes over with its first step, not by being started: until then the old one is all there
    // is.
    if (attempt.steps.empty()) continue;
    // Its first step may lie before its base where a script knew better than the launcher.
    const int64_t begin = std::min(attempt.info.step_base, attempt.steps.front().info.global_step);
    if (begin < end) ranges.push_back({&attempt, begin, end});
    end = std::min(end, begin);
  }
  std::reverse(ranges.begin(), ranges.end());
  return ranges;
}

void Trial::Impl::RebuildOverlay() {
  const std::vector<Range> ranges = Ranges();
  const size_t old_size = steps.size();
  const size_t old_complete = complete_count;
  size_t at = 0;
  complete_count = 0;
  bool all_complete = true;
  bool moved = false;
  size_t lowest_written = old_size;
  for (size_t r = 0; r < ranges.size(); ++r) {
    const AttemptSlot& attempt = *ranges[r].attempt;
    const auto first = std::lower_bound(attempt.steps.begin(), attempt.steps.end(), ranges[r].begin, Before);
    const auto last = std::lower_bound(first, attempt.steps.end(), ranges[r].end, Before);
    const int64_t frontier = FrontierOf(attempt, r + 1 < ranges.size());
    const size_t begin = at;
    const auto count = static_cast<size_t>(last - first);
    // Untouched since the last time: the same attempt's steps at the same place.
    const auto changed_from = static_cast<size_t>(std::max<ptrdiff_t>(
        0, static_cast<ptrdiff_t>(attempt.first_changed) - (first - attempt.steps.begin())));
    size_t keep = 0;
    if (begin < old_size && count != 0 && steps[begin].attempt == attempt.number &&
        steps[begin].info.global_step == first->info.global_step) {
      keep = std::min({count, changed_from, old_size - begin});
      if (keep != 0 && (steps[begin + keep - 1].attempt != attempt.number ||
                        steps[begin + keep - 1].info.global_step !=
                            (first + static_cast<ptrdiff_t>(keep) - 1)->info.global_step)) {
        keep = 0;
      }
    }
    for (size_t i = keep; i < count; ++i) {
      const TrialAccess::Step& step = *(first + static_cast<ptrdiff_t>(i));
      if (begin + i < old_complete && (steps[begin + i].attempt != step.attempt ||
                                       steps[begin + i].info.global_step != step.info.global_step)) {
        if (!moved) overlay_base = std::min(step.info.global_step, steps[begin + i].info.global_step);
        moved = true;
      }
      lowest_written = std::min(lowest_written, begin + i);
      if (begin + i < steps.size()) {
        steps[begin + i] = step;
      } else {
        steps.push_back(step);
      }
    }
    at = begin + count;
    if (all_complete) {
      const auto complete_end = std::partition_point(
          first, last, [frontier](const TrialAccess::Step& s) { return s.info.global_step <= frontier; });
      complete_count = begin + static_cast<size_t>(complete_end - first);
      all_complete = complete_end == last;
    }
  }
  if (at < old_complete) {
    if (!moved) overlay_base = steps[at].info.global_step;
    moved = true;
  }
  steps.resize(at);
  // What was complete stays complete: somebody may have judged it. (A lock that is taken again would say
  // otherwise.)
  if (!moved) complete_count = std::max(complete_count, old_complete);
  for (size_t i = moved ? 0 : std::min(lowest_written, old_complete); i < complete_count; ++i) {
    steps[i].info.complete = true;
  }
  for (AttemptSlot& attempt : attempts) attempt.first_changed = attempt.steps.size();
  if (moved) ++overlay_generation;
}

std::optional<size_t> Trial::Impl::FindStep(int64_t global_step) const {
  const auto at = std::lower_bound(steps.begin(), steps.end(), global_step, Before);
  if (at == steps.end() || at->info.global_step != global_step) return std::nullopt;
  return static_cast<size_t>(at - steps.begin());
}

void WorkerSlot::BringRowsUpToDate() {
  const std::span<const store::SummaryBatch> batches = reader->summaries();
  if (rows_resealed != reader->resealed()) {
    rows.clear();
    final_rows.clear();
    rows_batches = 0;
    rows_resealed = reader->resealed();
  }
  bool sorted = true;
  constexpr auto kEnd = static_cast<uint16_t>(Point::kEnd);
  for (; rows_batches < batches.size(); ++rows_batches) {
    const store::SummaryBatch& batch = batches[rows_batches];
    reader->Prepare(static_cast<uint32_t>(rows_batches), 0, static_cast<uint32_t>(batch.rows),
                    store::kKeyColumns);
    if ((batch.damaged & store::kKeyColumns) != 0) continue;  // no row can be told from its neighbour
    for (uint32_t begin = 0; begin < batch.rows;) {
      const int64_t step = batch.step_last[begin];
      const bool final = batch.point[begin] == kEnd;
      uint32_t end = begin + 1;
      while (end < batch.rows && batch.step_last[end] == step && (batch.point[end] == kEnd) == final) ++end;
      std::vector<StepRows>& list = final ? final_rows : rows;
      if (!final && !list.empty() && list.back().global_step > step) sorted = false;
      list.push_back({step, static_cast<uint32_t>(rows_batches), begin, end});
      begin = end;
    }
  }
  if (!sorted) {
    base::StableSort(&rows,
                     [](const StepRows& a, const StepRows& b) { return a.global_step < b.global_step; });
  }
}

}  // namespace tdbg
