// How rules and watchers read a trial: by dense indices, columns and spans of rows, without looking up names.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/index_iterator.h"
#include "base/regex.h"
#include "format/keys.h"
#include "store/reader/worker_reader.h"
#include "tdbg/status.h"
#include "tdbg/summary.h"
#include "tdbg/trial.h"

namespace tdbg {

/// Dense over the whole trial (all attempts, all workers) in order of first sight. A name has one index
/// for the life of the Trial object, also when its dtype or shape changes.
using TensorIndex = uint32_t;
/// Dense over the workers of all attempts in order of first sight; stable for the life of the Trial object.
using WorkerIndex = uint32_t;
using SubKey = format::SubKey;
using Point = format::Point;

/// Index-based view of an opened Trial. Cheap to construct and copy; borrows the trial.
///
/// Pointers and spans stay valid until the trial's next Refresh(); indices for the trial's life.
/// \threadsafety The trial's: one thread at a time.
class TrialAccess {
 public:
  explicit TrialAccess(const Trial& trial);

  /// Incremented by every Refresh that found something new.
  uint64_t generation() const;
  /// Raised when a later attempt took over steps that were already listed: whoever judged them starts afresh
  /// from `overlay_base()`, the lowest global step that changed hands.
  uint64_t overlay_generation() const;
  int64_t overlay_base() const;
  /// For whoever judges a run as it came about, with the steps that later attempts have replaced: shows the
  /// overlay of the attempts up to this one. Later ones take no part in it, in any of the trial's answers
  /// about steps and values, until ShowNextAttempt. The overlay's generation is raised as if they came later.
  void ShowUpTo(int64_t attempt);
  /// Is there an attempt with steps behind those that are shown?
  bool HasNextAttempt() const;
  /// It takes over. \pre HasNextAttempt
  void ShowNextAttempt();

  // ---- Workers -------------------------------------------------------------------------------------------

  struct Worker {
    std::string name;  ///< "worker_0"
    int64_t attempt = 0;
    int64_t rank = 0;
    bool alive = false;           ///< its lock is held
    bool ended = false;           ///< it ended properly; neither alive nor ended: it died
    int64_t last_step = -1;       ///< last committed global step
    int64_t last_seen_step = -1;  ///< heartbeat
    int64_t last_seen_wall_nanos = 0;
  };
  /// As of the last Refresh; indexed by WorkerIndex.
  std::span<const Worker> workers() const;
  /// Workers whose data the overlay shows at this step position's attempt, in rank order.
  std::span<const WorkerIndex> workers_of_attempt(int64_t attempt) const;
  /// How many workers the attempt has, as far as its files say: 0 while no worker has written any. At least
  /// the ones seen.
  int64_t world_size(int64_t attempt) const;
  /// Nobody says where the attempt goes on, and it was laid behind the earlier ones (format::kBehind).
  bool IsLaidBehind(int64_t attempt) const;

  // ---- Tensors -------------------------------------------------------------------------------------------

  size_t tensor_count() const;  ///< only grows
  const TensorInfo& tensor(TensorIndex tensor) const;
  bool LastCounts(TensorIndex tensor) const;  ///< of several values in one step; for Preference (lookup.h)
  /// Exact canonical name or alias.
  std::optional<TensorIndex> Find(std::string_view name) const;
  /// What Trial's calls accept: canonical, alias, unambiguous short name; otherwise the error that names the
  /// nearest.
  Result<TensorIndex> Resolve(std::string_view name) const;

  // ---- Steps ---------------------------------------------------------------------------------------------

  struct Step {
    StepInfo info;
    int64_t attempt = 0;
    uint32_t shed = 0;  ///< what its workers lost in it, summed
  };
  /// A view of them, made for the asking; items are values.
  class StepList {
   public:
    using iterator = base::IndexIterator<StepList>;
    explicit StepList(const Trial& trial) : trial_(&trial) {}
    size_t size() const;
    bool empty() const { return size() == 0; }
    Step operator[](size_t position) const;
    Step front() const { return (*this)[0]; }
    Step back() const { return (*this)[size() - 1]; }
    iterator begin() const { return {this, 0}; }
    iterator end() const { return {this, size()}; }

   private:
    const Trial* trial_;
  };
  /// Every step of the overlay, ascending by global step, incomplete ones (at the end) included. Positions in
  /// this list are what the calls below take; they are stable while overlay_generation() is.
  StepList steps() const { return StepList(*trial_); }
  /// Steps [0, complete_count()) are complete.
  size_t complete_count() const;
  std::optional<size_t> FindStep(int64_t global_step) const;
  bool CommittedBy(size_t step, WorkerIndex worker) const;
  /// By the worker's commits of the step: what was lost in it; whether it kept raw values.
  uint64_t ShedBy(size_t step, WorkerIndex worker) const;
  bool KeptRawValues(size_t step, WorkerIndex worker) const;
  struct Missing {
    std::string name;  ///< "worker_3", or "rank 3" of one that was never seen
    int64_t rank = 0;
    bool wrote = false;  ///< it has committed a step before
  };
  /// Workers whose commit of this step is still to come.
  std::vector<Missing> MissingWorkers(size_t step) const;

  // ---- Summaries -----------------------------------------------------------------------------------------

  /// One summary of one tensor by one worker.
  struct Row {
    TensorIndex tensor = 0;
    WorkerIndex worker = 0;
    SubKey sub;
    const store::SummaryBatch* batch = nullptr;
    store::WorkerReader::RowRef ref;

    Summary summary() const { return batch->at(ref.row); }
    uint64_t count() const { return batch->count[ref.row]; }
    uint64_t nonfinite_count() const {
      return batch->nan_count[ref.row] + batch->pos_inf_count[ref.row] + batch->neg_inf_count[ref.row];
    }
    bool has_histogram() const { return batch->histogram_bytes[ref.row] != 0; }
    bool histogram_not_due() const { return (batch->flags[ref.row] & format::kRowHistogramNotDue) != 0; }
    bool histogram_shed() const { return (batch->flags[ref.row] & format::kRowHistogramShed) != 0; }
    int64_t global_step() const { return batch->step_last[ref.row]; }
  };

  /// Rows [begin, end) of one batch: one worker's rows of one step, for whoever wants to walk the columns.
  struct RowSpan {
    WorkerIndex worker = 0;
    uint32_t batch_index = 0;
    const store::SummaryBatch* batch = nullptr;
    uint32_t begin = 0, end = 0;
    std::span<const TensorIndex> tensor_of;  ///< by the batch's own tensor ids

    Row row(uint32_t i) const {
      Row out;
      out.tensor = tensor_of[batch->tensor[i]];
      out.worker = worker;
      out.sub = {batch->sub[i], static_cast<Point>(batch->point[i])};
      out.batch = batch;
      out.ref.batch = batch_index;
      out.ref.row = i;
      return out;
    }
  };
  /// A row that lacks columns that were asked for: smdebug's saved reductions have some statistics only.
  struct HiddenRow {
    TensorIndex tensor = 0;
    WorkerIndex worker = 0;
    uint64_t unknown = 0;  ///< of the columns that were asked for (SummaryBatch::unknown)
  };
  /// Every worker's rows of the step, by rank, without those of Point::kEnd. Of a tensor that is kept in
  /// parts one row, in a span of its own under the lowest rank: that of the whole; without all parts it is
  /// none, and counts as lost. The span is scratch of the trial: valid until the next call. Unreadable
  /// (damaged) rows are left out and counted in `*lost_rows`; rows that do not know all of `columns` (bits of
  /// SummaryBatch::unknown) are left out and appended to `*hidden`. What the workers in `without` wrote is
  /// not looked at, not even as parts. Costs a lookup per worker, nothing per row, where summaries are what
  /// is stored.
  std::span<const RowSpan> RowSpansOf(size_t step, uint64_t* lost_rows = nullptr,
                                      uint64_t columns = ~uint64_t{0},
                                      std::vector<HiddenRow>* hidden = nullptr,
                                      std::span<const WorkerIndex> without = {}) const;
  /// Rows recorded outside steps (final weights), of the latest attempt.
  std::span<const RowSpan> FinalRowSpans() const;

  /// Calls f(const Row&) for every row of the step: all tensors, sub-keys and workers.
  template <typename F>
  void ForEachSummary(size_t step, F&& f, uint64_t* lost_rows = nullptr) const {
    for (const RowSpan& span : RowSpansOf(step, lost_rows)) Walk(span, f);
  }
  template <typename F>
  void ForEachFinalSummary(F&& f) const {
    for (const RowSpan& span : FinalRowSpans()) Walk(span, f);
  }

  /// One tensor's row; by default that of the lowest rank that has one and the step's own (sub 0, no point).
  /// Only rows with all columns known are returned.
  std::optional<Row> RowAt(TensorIndex tensor, size_t step, std::optional<WorkerIndex> worker = {},
                           SubKey sub = {}) const;
  /// \error kNotFound none was kept; kDataLoss damaged
  Result<Histogram> HistogramOf(const Row& row) const;

  // ---- Scalars -------------------------------------------------------------------------------------------

  struct Scalar {
    TensorIndex tensor = 0;
    WorkerIndex worker = 0;
    SubKey sub;
    double value = 0;
  };
  /// Appends the step's numeric series (learning rates, metrics) of all workers.
  void ScalarsOf(size_t step, std::vector<Scalar>* append_to) const;
  /// A scalar series' value, else the value of a one-element tensor, exact, NaN and infinities included.
  std::optional<double> ScalarAt(TensorIndex tensor, size_t step,
                                 std::optional<WorkerIndex> worker = {}) const;

  // ---- Raw values ----------------------------------------------------------------------------------------

  struct Raw {
    TensorIndex tensor = 0;
    WorkerIndex worker = 0;
    store::RawRef ref;
  };
  std::optional<Raw> RawAt(TensorIndex tensor, size_t step, std::optional<WorkerIndex> worker = {},
                           SubKey sub = {}) const;
  /// Appends all of a step: by rank, then in the order of recording; micro-steps and points, without
  /// Point::kEnd.
  void RawsAt(TensorIndex tensor, size_t step, std::vector<Raw>* append_to) const;
  /// Global steps of the overlay at which a raw value of the tensor (any worker, the step's own) is kept.
  std::vector<int64_t> RawSteps(TensorIndex tensor) const;
  Result<TensorValue> ReadRaw(const Raw& raw) const;

  /// The tensor that a derived statistic of `tensor` is recorded as; nothing while none was.
  std::optional<TensorIndex> StatisticOf(TensorIndex tensor, std::string_view statistic_id) const;

  /// Numbers that were asked for by name and stored as they are (smdebug's reductions), of the lowest rank
  /// that has any, in the order in which they were saved; of one name several times the last counts.
  struct SavedReduction {
    std::string name;       ///< "mean", "l2", ...
    bool absolute = false;  ///< of the absolute values
    Raw raw;                ///< for ReadRaw: exactly what was saved, with its dtype and shape
  };
  std::vector<SavedReduction> ReductionsAt(TensorIndex tensor, size_t step,
                                           std::optional<WorkerIndex> worker = {}) const;
  /// The shape that was saved beside or instead of the value (smdebug's save_shape).
  std::optional<std::vector<int64_t>> SavedShapeAt(TensorIndex tensor, size_t step,
                                                   std::optional<WorkerIndex> worker = {}) const;

  // ---- Context -------------------------------------------------------------------------------------------

  /// Latest record of the topic that holds at this global step (overlay; lowest rank first).
  const format::ContextRecord* ContextAt(std::string_view topic, int64_t global_step) const;

  struct WorkersContext {
    WorkerIndex worker;
    const format::ContextRecord* record;
  };
  /// Every record of the topic that the overlay shows, of every worker, by step and then by rank; those for a
  /// step that was never committed, too, as one is that an exception ended.
  std::vector<WorkersContext> ContextsOf(std::string_view topic) const;

  const Trial& trial() const { return *trial_; }

 private:
  template <typename F>
  static void Walk(const RowSpan& span, F& f) {
    for (uint32_t i = span.begin; i < span.end; ++i) f(static_cast<const Row&>(span.row(i)));
  }

  const Trial* trial_;
};

/// The tensors a rule looks at: a collection, a regex, or both (a tensor must satisfy each that is given).
/// Grows as tensors appear. Derived statistics are in the collection "statistics" and in no other selection.
class Selection {
 public:
  /// Everything.
  Selection() = default;
  /// \error kInvalidArgument  the regex.
  static Result<Selection> Make(std::string_view collection, std::string_view regex);

  /// Looks at tensors that are new since the last call; a compare where there are none.
  void Update(const TrialAccess& access);
  bool contains(TensorIndex tensor) const { return tensor < mask_.size() && mask_[tensor] != 0; }
  std::span<const TensorIndex> tensors() const { return tensors_; }

 private:
  std::string collection_;
  std::optional<base::Regex> regex_;
  std::vector<uint8_t> mask_;
  std::vector<TensorIndex> tensors_;
};

}  // namespace tdbg
