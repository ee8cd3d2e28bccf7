// The hot path: takes borrowed views and writes the open step's rows to the sink, hundreds at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "capture/look_budget.h"
#include "capture/recent_range.h"
#include "capture/sink.h"
#include "format/drop_details.h"
#include "plan/plan.h"
#include "stats/unit_statistics.h"
#include "tdbg/run.h"

namespace tdbg::capture {

struct RecorderOptions {
  int64_t first_step = 0;  ///< global step of the first BeginStep
  /// (mode, its own first step); TRAIN's is else first_step, the others' 0.
  std::vector<std::pair<ModeKey, int64_t>> first_mode_steps = {};
  bool inert = false;                       ///< this worker is not among those that capture (include_workers)
  int statistics_threads = 1;               ///< that share a large batch, the calling one included
  uint64_t parallel_from_bytes = 2u << 20;  ///< a smaller batch takes less time than waking a thread
  const base::Clock* clock = &base::SystemClock();
};

/// Run's calls without locks, files and processes; their meaning is documented in tdbg/run.h.
///
/// Owns its scratch memory: 168 bytes for each of 256 tensors (where threads share a batch, 210 of all),
/// histograms of one step, and 256 KiB per thread.
/// \threadsafety One thread at a time. Borrows the sink.
class Recorder {
 public:
  using Id = Run::Id;

  Recorder(plan::CompiledPlan plan, Sink* sink, RecorderOptions options);
  ~Recorder();

  /// Large batches are shared by this many threads of the calling thread's OpenMP team, if there is one.
  void ShareThreads(int threads);

  bool Wants(const TensorSpec& spec) const;
  Id Define(const TensorSpec& spec);
  Id DefineScalar(std::string_view name, std::string_view collection);

  bool BeginStep(ModeKey mode);
  bool Due(Id id) const;
  bool RawDue(Id id, ModeKey mode, int64_t mode_step) const;
  void Put(Id id, const TensorView& view, Place place);
  void PutSparse(Id id, const TensorView& values, uint64_t elements, Place place);
  bool PutMany(std::span<const Id> ids, std::span<const void* const> data, Place place,
               std::span<const uint8_t> unchanged = {});
  void PutSummary(Id id, const Summary& summary, std::span<const HistogramBucket> histogram, Place place);
  void PutRaw(Id id, const TensorView& view, Place place);
  std::vector<Statistic> Statistics(Id id) const;
  void PutStatistic(Id id, const Statistic& statistic, const StatisticValue& value, Place place);
  void PutScalar(Id id, double value, Place place);
  void PutContext(std::string_view topic, std::string_view json);
  /// Says in the run what was dropped, in words: with the next step that is recorded, or at the end. It makes
  /// no step one of the run, as PutContext does: which steps are due is the plan's business.
  void Explain(format::DropCause cause, format::DropKind kind, std::string_view detail);
  const format::DropDetails& drop_details() const { return drop_details_; }
  /// Tells that something else was appended to the sink, which the step's end must make visible.
  void ForceCommit() { recorded_ = true; }
  int64_t EndStep(bool skipped);
  /// Undoes BeginStep; if something was recorded since, it does what EndStep does.
  void CancelStep();
  /// The open step is none: no update came of it. Its tensors are not recorded, its scalars are the end's.
  void LeaveStep();

  /// Statistics and, with `raw`, values of these collections' tensors at each of the next `steps` steps. Only
  /// of tensors that the plan wants at all: of the others nobody told us. \return how many tensors that are
  uint64_t CaptureMore(std::vector<std::string> collections, int64_t steps, bool raw);
  /// From the next step on, statistics are due only at steps of a mode that `every` divides; at those at
  /// which values are due, and while more is asked for, too.
  void LookEvery(int64_t every);

  bool step_is_open() const { return state_ == State::kOpen; }
  int64_t global_step() const { return state_ == State::kOpen ? step_ : step_ - 1; }
  int64_t mode_step(ModeKey mode) const;

  /// Closes an open step; from here on values belong to point kEnd.
  void BeginEnd();
  /// Makes what was put since BeginEnd visible.
  void FinishEnd();

  const Run::Counters& counters() const { return counters_; }

 private:
  // Rows go to the sink while they are in the first-level cache (43 KiB). 2,400 of them at once would put 400
  // KiB of ours where the training had its own, and be read from the second level twice.
  static constexpr size_t kFlushRowsAt = 256;
  static constexpr int64_t kNotCounted = -1;

  enum class State : uint8_t { kBetween, kOpen, kEnd };
  struct Derived {
    Statistic statistic;
    Id id;  // of the tensor that it is recorded as
  };
  struct Details {
    explicit Details(std::pmr::memory_resource* memory)
        : shape(memory), collections(memory), part_begin(memory), derived(memory) {}
    std::pmr::vector<int64_t> shape;
    std::pmr::vector<std::pmr::string> collections;
    int unit_axis = -1;
    std::pmr::vector<int64_t> part_begin;
    std::pmr::vector<Derived> derived;  // due with the statistics
  };
  struct DestroyOnly {  // the memory is definitions_memory_'s
    void operator()(Details* details) const { std::destroy_at(details); }
  };
  /// What a batch asks of each of its tensors, in one cache line: of 2,400 tensors, none of which is in a
  /// cache when a step ends, the details would cost as much as their statistics.
  struct Tensor {
    static constexpr uint32_t kNever = ~uint32_t{0};
    uint64_t summary_groups = 0;
    uint64_t raw_groups = 0;
    uint64_t histogram_groups = 0;
    int64_t elements = 0;
    uint64_t bytes = 0;
    std::unique_ptr<format::TensorDef> unannounced;  // nothing of it was recorded yet
    std::unique_ptr<Details, DestroyOnly> details;
    uint32_t last = kNever;  // in last_rows_; kNever: nobody ever said of it whether it has changed
    DType dtype = DType::kInvalid;
    bool part : 1 = false;  // of a tensor whose other parts are other workers'
    bool variable_shape : 1 = false;
    bool told_unsupported : 1 = false;
    bool scalar : 1 = false;
    bool always : 1 = false;
  };
  static_assert(sizeof(Tensor) <= 64);
  struct ThreadScratch;  // what one thread needs to make rows
  class Adding;
  struct PendingRaw;
  /// A unit of work for one of several threads: a tensor, or a part of a large one.
  struct Piece {
    static constexpr uint32_t kWhole = ~uint32_t{0};
    const void* data;
    int64_t elements;
    Id id;
    uint32_t row;   // in rows_
    uint32_t part;  // counted through all tensors that are cut; kWhole: this one is not
    DType dtype;
    bool histogram;  // is wanted of it
    uint64_t bytes() const { return static_cast<uint64_t>(elements) * ItemSize(dtype); }
  };
  /// The row of a tensor, recorded again while the tensor has not changed.
  struct LastRow {
    format::SummaryRow row;
    std::vector<uint8_t> histogram;  // encoded; empty: none was due, and the next that is needs a look
    bool holds = false;              // nobody has said since then that the tensor changed
  };
  struct DerivedRow {
    Id id;
    Place place;
    DType dtype;
    int64_t length;
    size_t offset;  // in derived_bytes_
  };

  bool WantsMore(Tensor* tensor) const;
  const Tensor* Find(Id id) const { return id < tensors_.size() ? &tensors_[id] : nullptr; }
  Place Resolved(Place place) const;
  /// Schedules that are due: between two steps, statistics alone.
  uint64_t DueGroups() const;
  static format::SubKey KeyOf(Place place) { return {place.sub, static_cast<format::Point>(place.point)}; }
  bool RawDue(const Tensor& t) const {
    return (t.raw_groups & due_) != 0 || (t.always && state_ != State::kBetween);
  }
  bool WantsSummary(Id id, DType dtype);
  bool HasStatisticsOrTold(Id id, DType dtype);
  /// Is there time to look at a tensor of so many bytes in this step? Always, unless it is a large one.
  bool MayLook(Id id, uint64_t bytes);
  void AddLarge(Id id, uint64_t bytes);
  /// When a look at so many bytes begins; kNotCounted: what it takes does not matter.
  int64_t LookBegins(uint64_t bytes) const;
  /// Of a batch that began at `begun` and has read `bytes`. add_all(): calls AddLarge for each of its
  /// tensors.
  template <typename AddAll>
  void CountLooks(int64_t begun, uint64_t bytes, bool usual, AddAll add_all);
  /// Statistics of a tensor, if they are due and there is time. `elements`: of a sparse tensor, whose values
  /// the view has.
  void Look(Id id, const TensorView& view, Place place, std::optional<uint64_t> elements = {});
  std::string OverheadJson() const;
  void Derive(Id id, const TensorView& view, Place place);
  void AddDerivedRow(const Derived& derived, const StatisticValue& value, Place place);
  /// Put between two steps: it may be due in the next one, and must outlive the call until then.
  bool WaitsForNextStep(const Tensor& t) const {
    return state_ == State::kBetween && (t.raw_groups != 0 || t.always);
  }
  void KeepForNextStep(Id id, const TensorView& view, Place place);
  void PutRawIfDue(Id id, const TensorView& view, Place place);
  /// What is recorded at the end is of the step before.
  int64_t StepOfRecords() const { return state_ == State::kEnd ? step_ - 1 : step_; }
  static bool HasHistogram(const Tensor& t, int64_t elements);
  bool HistogramDue(const Tensor& t, int64_t elements) const;
  /// Statistics only; FinishRow says then that a histogram was not due.
  void FillRow(ThreadScratch* scratch, Id id, const TensorView& view, Place place, bool histogram,
               format::SummaryRow* row) const;
  /// True if the row's histogram was not due and is wanted all the same: its tensor left its recent range.
  bool FinishRow(format::SummaryRow* row);
  static void AddHistogram(std::span<const HistogramBucket> histogram, format::SummaryRow* row,
                           std::vector<uint8_t>* bytes);
  /// `remember`: the row may be asked for again. `elements`: of the tensor whose values that are not 0 the
  /// view has.
  void FillOne(Id id, const TensorView& view, Place place, bool remember = false, uint64_t elements = 0);
  /// Takes zeros in, so that the row is of this many elements.
  static void AddZeros(uint64_t elements, format::SummaryRow* row);
  /// Of complex numbers: their statistics are those of |x|. \pre IsComplex(view.dtype)
  void FillMagnitudes(Id id, const TensorView& view, Place place, bool remember, uint64_t elements = 0);
  void FillRows(std::span<const Id> ids, std::span<const void* const> data, Place place, uint64_t bytes);
  bool RepeatRow(Id id, Place place, bool readable);
  LastRow* LastOf(Id id);
  void RememberRows(std::span<const Id> ids, size_t begin, size_t end, size_t first_row);
  void RememberRow(Id id, const format::SummaryRow& row);
  bool Shares(uint64_t bytes) const { return scratches_.size() > 1 && bytes >= options_.parallel_from_bytes; }
  /// \pre The view is contiguous.
  void AddPieces(Id id, const TensorView& view, size_t row, bool histogram);
  /// The rows of all pieces_.
  void FillShared(Place place);
  void AppendRaw(Id id, const TensorView& view, Place place);
  void FlushRows();
  void FlushRowsIfMany();
  void Commit(int64_t step, int64_t mode_step, uint32_t flags);
  bool HoldsAnything() const;  ///< that the next commit would make visible
  std::unique_ptr<Details, DestroyOnly> NewDetails();
  void Know(std::string_view name, Id id);
  std::string_view NameOf(Id id) const;  ///< a walk through all of them: for what is said once
  Id Add(format::TensorDef def, Tensor tensor);
  void Announce(Tensor* tensor);

  const plan::CompiledPlan plan_;
  Sink* const sink_;
  const RecorderOptions options_;

  // What stays of a definition. Between the training's own blocks on its heap, 2,400 definitions made the
  // forward and backward of 600 small layers 4 % slower for good: what glibc hands out afterwards is
  // scattered.
  std::pmr::monotonic_buffer_resource definitions_memory_{128u << 10};
  std::vector<Tensor> tensors_;
  // By mode, then by id, where histograms are rarer than statistics. The interval counts a mode's own steps:
  // by those of all modes, each tensor of the training would be news after an evaluation of two spans.
  std::vector<RecentRange> recent_[plan::kModes];
  std::pmr::unordered_map<std::string_view, std::pmr::vector<Id>> ids_by_name_{&definitions_memory_};
  std::unordered_map<std::string, std::string> context_;  // topic -> what was last written

  State state_ = State::kBetween;
  ModeKey mode_ = ModeKey::kGlobal;
  int64_t step_;                      // the open one, else the next one
  int64_t mode_steps_[plan::kModes];  // the open one of its mode, else the next one
  uint64_t due_ = 0;
  uint32_t histogram_spans_[plan::kModes] = {};  // by mode: the steps at which histograms were due
  std::vector<std::string> more_collections_;    // CaptureMore's, until this step
  int64_t more_end_ = -1;
  LookBudget looks_;
  std::vector<LookBudget::Look> large_;  // scratch: of one batch
  int64_t look_every_ = 1;
  // From this step on holds what `looks_` and `look_every_` say, and the run does not know it yet; -1: it
  // does.
  int64_t tell_overhead_from_ = -1;
  bool more_raw_ = false;
  bool nonfinite_ = false;  // among the rows since this was last reset
  bool recorded_ = false;   // the sink holds something that the step's end must make visible
  bool uncommitted_defs_ = false;
  format::DropDetails drop_details_;
  bool unsaid_details_ = false;  // among them are some that no commit holds

  std::vector<format::SummaryRow> rows_;
  std::vector<uint8_t> histograms_;
  std::vector<format::ScalarRow> scalars_, left_scalars_;  // of the open step; of steps that were left
  std::vector<DerivedRow> derived_rows_;
  std::vector<std::byte> derived_bytes_;
  std::unique_ptr<stats::UnitStatistics> unit_statistics_;  // once a tensor has derived statistics
  StatisticValue derived_value_;
  std::vector<PendingRaw> pending_raw_;
  uint64_t pending_raw_bytes_ = 0;
  std::vector<uint32_t> work_;  // indices of a batch that get a row
  bool remembers_ = false;      // its rows may be repeated
  std::vector<LastRow> last_rows_;
  std::vector<Piece> pieces_;
  uint32_t parts_ = 0;  // pieces_ that are parts
  std::vector<std::unique_ptr<ThreadScratch>> scratches_;
  Run::Counters counters_;
};

}  // namespace tdbg::capture
