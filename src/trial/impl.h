// What a Trial holds. For the .cc files of this room.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "format/run_files.h"
#include "plan/plan.h"
#include "store/reader/worker_reader.h"
#include "tdbg/trial.h"
#include "trial/access.h"
#include "trial/computed_rows.h"
#include "trial/names.h"
#include "trial/parts.h"
#include "trial/remote_run.h"
#include "trial/step_table.h"

namespace tdbg {

namespace compat::smdebug {
class Run;
}

/// Rows [begin, end) of a batch.
struct RowRange {
  uint32_t batch = 0, begin = 0, end = 0;
};
/// A range of rows in the order of their steps, so that a step's rows are found by bisection.
struct RowStretch {
  RowRange rows;
  int64_t first_step = 0, last_step = 0;
};

/// A worker's coarse rows; coarse.cc knows what that is.
struct WorkerLevels;

/// One worker of one attempt, and what was derived from it.
struct WorkerSlot {
  TrialAccess::Worker info;
  std::string directory;
  std::unique_ptr<store::WorkerReader> reader;
  size_t attempt_index = 0;

  size_t tensors_seen = 0;
  std::vector<TensorIndex> tensor_of;                 ///< by the reader's ids
  std::vector<std::vector<format::TensorId>> ids_of;  ///< by TensorIndex: the reader's ids of that name
  size_t commits_seen = 0;
  uint64_t rewrites_seen = 0;
  bool watched = false;
  bool keeps_parts = false;                      ///< of tensors whose other parts other workers keep
  mutable std::shared_ptr<WorkerLevels> levels;  ///< opened when they are asked for first

  /// The raw value at `ref`, verified, as the trial hands it out.
  Result<TensorValue> ReadRaw(const store::RawRef& ref) const;
  /// The same, but a value in a segment is neither read nor verified.
  Result<TensorValue> MapRaw(const store::RawRef& ref) const;

  // Where the rows of steps are, updated on the first use after a change. Rarely more than one stretch per
  // batch; nothing is stored per step.
  uint64_t rows_resealed = 0;
  size_t rows_batches = 0;
  size_t rows_final = 0;  ///< the first so many batches need no update of the members below
  bool final_ascend = true;
  std::vector<RowStretch> stretches;
  bool stretches_ascend = true;  ///< each begins at or behind the last one's last step
  std::vector<RowRange> final_rows;
  /// Made of values that have no row; not of a run of smdebug's, whose reader makes them itself.
  mutable ComputedRows computed;
  /// Where the rows of the last RowsAt ended in their batch, and how many there were.
  mutable uint32_t rows_hint = 0, rows_hint_count = 0;

  /// Steps up to here have all that this worker will ever give them.
  int64_t frontier() const {
    return info.ended || !info.alive ? std::numeric_limits<int64_t>::max() : info.last_step;
  }
  void BringRowsUpToDate();
  /// Of any row that TrialAccess gives.
  Result<Histogram> HistogramOf(store::WorkerReader::RowRef row) const {
    return ComputedRows::IsOf(row) ? computed.HistogramOf(*reader, row) : reader->HistogramOf(row);
  }
  /// Rows of segments moved, too.
  void ForgetRows();
  /// A step's rows, in the order in which they were written. \pre BringRowsUpToDate
  void RowsAt(int64_t global_step, std::vector<RowRange>* out) const;
  std::span<const format::TensorId> IdsOf(TensorIndex tensor) const {
    return tensor < ids_of.size() ? std::span<const format::TensorId>(ids_of[tensor])
                                  : std::span<const format::TensorId>();
  }
};

struct AttemptSlot {
  int64_t number = 0;
  format::AttemptInfo info;
  std::string info_json;  ///< attempt.json as `info` was read from it
  std::string directory;
  std::vector<WorkerIndex> workers;            ///< by rank
  std::set<std::string, std::less<>> entries;  ///< names of the workers' directories
  // What attempt.json and the workers' own files say, together. Only grow.
  int64_t world_size = 0;  ///< 0: nobody has said it yet
  int64_t step_base = 0;
  bool laid_behind = false;  ///< nobody stated its base
  StepTable steps;
  /// The first step that somebody may have judged and to which a worker has added something since.
  std::optional<int64_t> late_step;
  /// As `steps` was when the overlay last looked, where that is no beginning of it any more.
  std::unique_ptr<StepTable> shown;
  size_t shown_complete = 0;  ///< so many of them, from the first, the overlay has called complete or skips
  bool watched = false;
};

struct Trial::Impl {
  std::string path;
  TrialOptions options;
  std::shared_ptr<RemoteRun> remote;  ///< where `path` mirrors a run that lies elsewhere
  format::RunInfo run;
  /// Set where the directory is one that smdebug wrote; discover_smdebug.cc is what knows of it.
  std::shared_ptr<compat::smdebug::Run> smdebug;
  bool watched = false;

  /// What was to be saved; nothing where no plan could be read.
  std::optional<plan::Plan> plan;
  size_t plan_attempts = 0;      ///< attempts there were when it was read: each start may bring a new one
  bool has_save_config = false;  ///< the plan saves raw values or names reductions
  bool steps_are_forwards = false;

  std::vector<AttemptSlot> attempts;  ///< ascending by number
  std::vector<std::unique_ptr<WorkerSlot>> slots;
  std::vector<TrialAccess::Worker> workers;
  TensorTable tensors;
  /// No worker writes, but the launcher lives and a rank of the latest attempt was never seen: it may still
  /// come.
  bool awaited = false;
  bool restarting = false;  ///< no worker writes, and the launcher is about to start the command again
  bool modes_seen[5] = {};
  std::vector<std::string> own_damage;

  // The overlay.
  /// Steps [first, first + count) of an attempt, from a position on.
  struct Piece {
    int64_t attempt = 0;
    size_t position = 0, first = 0, count = 0;
  };
  std::vector<Piece> pieces;
  bool overlay_stale = false;  ///< steps changed since it was made
  /// Later attempts do not take part in the overlay yet: whoever judges has not come to them.
  int64_t shown_up_to = std::numeric_limits<int64_t>::max();
  size_t step_count = 0, complete_count = 0;
  uint64_t generation = 0, overlay_generation = 0;
  int64_t overlay_base = 0;

  int64_t last_discovery_nanos = 0;
  /// What the launcher last recorded about the job's end. Looked up while the latest attempt has no worker,
  /// or has none that writes and lacks some that never started: no worker would record the end there.
  struct JobEnded {
    int64_t attempt = 0;
    bool failed = false;
    bool last_started = false;  ///< no job was started since
    bool restarts = false;      ///< its launcher is about to start the command again
  };
  std::optional<JobEnded> job_ended;
  std::pair<int64_t, bool> may_restart{-1, false};  ///< the attempt started last, and can another one follow?
  bool attempts_left_out = false;                   ///< later ones than TrialOptions::attempt
  base::ChangeWaiter waiter;
  std::set<std::string> smdebug_watched;
  mutable std::vector<TrialAccess::RowSpan> scratch_spans;
  mutable std::vector<RowRange> scratch_rows;
  mutable MergedRows merged_rows;  ///< scratch, too
  /// Complete steps by mode and the mode's own number, brought up to date when it is asked for.
  struct ModeIndex {
    uint64_t overlay_generation = 0;
    size_t complete = 0;
    std::vector<std::pair<int64_t, size_t>> of[5];
  };
  mutable ModeIndex mode_index;
  /// Steps of all raw entries that hold derived statistics, ascending, brought up to date when it is asked
  /// for.
  mutable std::vector<int64_t> derived_steps;
  mutable uint64_t derived_generation = 0;

  // discover.cc
  Status Discover(bool* news);
  void LookForJobEnd();
  /// Takes in what the files say of the attempt as a whole. \post world_size, step_base
  Status DescribeAttempt(AttemptSlot& attempt);
  Status DiscoverWorkers(size_t attempt_index, bool* news);
  /// Ranks of the attempt's world that have no worker's files, ascending.
  std::vector<int64_t> AbsentRanks(const AttemptSlot& attempt) const;
  /// Whether an unseen worker may still join the latest attempt, given that no worker writes now.
  bool LauncherIsThere();
  /// Or may it still decide to? \pre no worker writes, there is an attempt
  bool LauncherStartsItAgain();
  bool Watch();  ///< true if there was something that was not watched yet
  WorkerIndex AddWorker(size_t attempt_index, std::unique_ptr<store::WorkerReader> reader, std::string name,
                        std::string directory);
  // discover_smdebug.cc
  Status OpenSmdebug();
  Status DiscoverSmdebug(bool* news);
  bool WatchSmdebug();
  void SmdebugCollections(std::map<std::string, CollectionInfo>* by_name) const;
  std::vector<std::string> SmdebugDamage() const;
  uint64_t SmdebugIndexBytes() const;
  bool SmdebugEndedEmpty() const;
  // collections.cc
  void ReadPlan();
  /// Steps of the collection's schedules are steps at which something is saved.
  static bool Saves(const plan::CollectionPlan& collection);
  /// Of several values in one step the last is the step's, as smdebug has it: of gradients where a step is a
  /// forward, since none of them is the one of an update.
  bool LastCounts(const TensorInfo& info) const { return steps_are_forwards && info.kind == "gradient"; }
  /// Reductions of the collection were asked for by name, and are due at this step.
  static bool ReductionsDue(const plan::CollectionPlan& collection, const StepInfo& step);
  /// Whether a collection of the tensor has reductions (or shapes) due at this step of the overlay.
  bool SavesReductionsOf(const TensorInfo& info, int64_t global_step, bool shape = false) const;
  // steps.cc
  int64_t LastCompleteStep() const { return complete_count == 0 ? -1 : GlobalStepAt(complete_count - 1); }
  /// Where the mode's step of that number lies; of several (evaluations of two attempts) the latest.
  std::optional<size_t> FindModeStep(ModeKey mode, int64_t mode_step) const;
  /// The greatest number of a complete step of the mode.
  std::optional<int64_t> LastCompleteOf(ModeKey mode) const;
  void BringModeIndexUpToDate() const;
  bool IsOfKind(const TrialAccess::Step& step, StepKind kind) const;
  bool HasHistogram(const TrialAccess::Step& step) const;
  /// Entries of the step that are stored like raw values and are statistics.
  uint32_t DerivedIn(int64_t global_step) const;
  /// Sorted by name. \error kInvalidArgument  the regex
  Result<std::vector<TensorIndex>> TensorsOf(const Trial& trial, const TensorFilter& filter) const;
  // overlay.cc
  /// `again`: they were in the overlay before, and were removed.
  void TakeCommits(WorkerSlot& slot, bool again = false);
  void ForgetCommits(AttemptSlot& attempt);
  /// \pre position < step_count
  const Piece& PieceAt(size_t position) const;
  const StepEntry& EntryAt(size_t position) const {
    const Piece& piece = PieceAt(position);
    return AttemptOf(piece.attempt)->steps[piece.first + (position - piece.position)];
  }
  int64_t GlobalStepAt(size_t position) const { return EntryAt(position).global_step; }
  TrialAccess::Step StepAt(size_t position) const;
  int64_t FrontierOf(const AttemptSlot& attempt, bool superseded) const;
  void RebuildOverlay();
  /// The next attempt with steps behind those that are shown; nothing where there is none.
  std::optional<int64_t> NextToShow() const;
  /// The first position below `limit` that is another step than it was, or `limit`; of both the lower step.
  size_t FirstMoved(const std::vector<Piece>& before, size_t limit, int64_t* global_step) const;
  // values.cc
  /// \error kNotFound  no such tensor; kDataLoss  there is none, and what held them cannot be read
  Result<TensorIndex> Resolve(std::string_view name) const;
  // access.cc
  /// Takes the rows of parts out of `spans` and puts one row of the whole in their place. Nothing to do, and
  /// no look at any row, where no worker keeps parts.
  void MergeParts(std::vector<TrialAccess::RowSpan>* spans, uint64_t* lost_rows) const;
  // trial.cc
  Result<bool> Refresh();
  Status TakeIn(bool* news);
  void DescribeWorker(WorkerSlot& slot);
  RunState State() const;
  std::vector<std::string> Damage() const;

  std::optional<size_t> FindStep(int64_t global_step) const;
  /// The position of the first step after `global_step`; step_count if there is none.
  size_t FirstBehind(int64_t global_step) const;
  const AttemptSlot* AttemptOf(int64_t number) const;
  /// The attempts with data the overlay shows, each with the half-open range of global steps it answers for.
  struct Range {
    const AttemptSlot* attempt;
    int64_t begin, end;
  };
  std::vector<Range> Ranges() const;
};

}  // namespace tdbg
