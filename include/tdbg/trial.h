// Reading a run: while it trains or a year later, through the same calls. Start here to ask questions.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tdbg/dropped.h"
#include "tdbg/mode.h"
#include "tdbg/statistic.h"
#include "tdbg/status.h"
#include "tdbg/summary.h"
#include "tdbg/tensor.h"

namespace tdbg {

/// Which steps a call lists.
enum class StepKind : uint8_t {
  kAny = 0,      ///< with anything
  kRaw = 1,      ///< with a raw value
  kSummary = 2,  ///< with statistics or a number
  /// What a SaveConfig made due: raw values, and reductions asked for by name. smdebug's calls see these.
  /// Everything, where nothing in the run's plan has a SaveConfig.
  kSaved = 3,
  kHistogram = 4,  ///< with a histogram
};

/// Steps, chosen.
struct StepFilter {
  /// kGlobal: steps of every mode, by their global numbers; another mode: its own steps, by its own numbers.
  ModeKey mode = ModeKey::kGlobal;
  StepKind kind = StepKind::kAny;
  bool incomplete = false;  ///< also those that some worker is still to commit
  /// Global steps from `begin` up to, not including, `end`.
  int64_t begin = std::numeric_limits<int64_t>::min();
  int64_t end = std::numeric_limits<int64_t>::max();
};

/// Tensors, chosen: those that satisfy everything that is given.
struct TensorFilter {
  std::string regex = {};                   ///< searched in the canonical name
  std::string collection = {};              ///< a collection's name
  std::vector<std::string> names = {};      ///< canonical; none: of any name
  std::optional<int64_t> global_step = {};  ///< something is kept of it at this step
  /// Something is kept of it at one of these. Looked at only where it is not the default.
  StepFilter steps = {};
};

/// Whether a step can be read (smdebug's StepState).
enum class StepState : uint8_t {
  kUnavailable = 0,      ///< it was not kept, and never will be
  kAvailable = 1,        ///< every worker has committed it, has ended, or was declared lost
  kNotYetAvailable = 2,  ///< it may still come, or a worker's part of it may
};

/// One step of a run (of one attempt, all workers).
struct StepInfo {
  int64_t global_step = 0;
  ModeKey mode = ModeKey::kGlobal;
  int64_t mode_step = 0;
  int64_t wall_nanos = 0;   ///< of the first worker that committed it
  uint32_t raw_values = 0;  ///< kept in it, of all workers together
  uint32_t summaries = 0;   ///< rows of statistics and plain numbers
  bool skipped = false;     ///< AMP skipped the update
  bool complete = false;    ///< every worker committed it, ended, or was declared lost
};

/// A value read from a run. `data` stays valid while `owner` (or a copy of it) lives.
struct TensorValue {
  std::shared_ptr<const void> owner;
  TensorView view;  ///< its shape borrows `shape`, its strides `strides`
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  ///< in elements; empty: C order, which is everything but Trial::slice's
  DType dtype = DType::kInvalid;
  const void* data = nullptr;
};

/// Elements of one axis: `count` of them from `begin`, every `stride`-th. What Python's slice.indices() says.
struct AxisRange {
  int64_t begin = 0;
  int64_t count = 0;
  int64_t stride = 1;  ///< negative: backwards
};

struct TensorInfo {
  std::string name;  ///< canonical
  std::string short_name;
  std::string kind, module_kind;
  std::vector<std::string> collections, aliases;
  DType dtype = DType::kInvalid;
  std::vector<int64_t> shape;
  int unit_axis = -1;
  /// Each worker keeps a part of it (FSDP); `shape` is the whole's. Where no worker is named, summaries,
  /// histograms, series and values are those of the whole, and not found while a part is missing.
  bool in_parts = false;
  uint32_t order = 0;  ///< in which the run came to know its tensors, from 0: a model's own order, mostly
};

/// When a collection's tensors are saved in one mode (smdebug's SaveConfigMode), on the mode's own steps:
/// in save_steps, or start_step <= s < end_step and s a multiple of save_interval.
struct SaveSchedule {
  int64_t save_interval = 500;
  int64_t start_step = 0;
  int64_t end_step = -1;  ///< -1: none; 0: never
  std::vector<int64_t> save_steps;
};

/// One collection, as the run's plan (or smdebug's collections file) has it.
struct CollectionInfo {
  std::string name;
  std::vector<std::string> include_regex;
  std::vector<std::string> tensor_names;  ///< canonical, sorted: its members so far
  std::vector<std::string> reductions;    ///< saved for it, asked for by name: "mean", "abs_l2", ...
  bool save_raw = false, save_shape = false, save_histogram = false;
  std::optional<SaveSchedule> save[5];  ///< by ModeKey; nothing: its tensors' values are not saved
};

/// A reduction that was saved beside a tensor, or instead of it.
struct Reduction {
  std::string name;  ///< "min max mean std variance sum prod l1 l2", or one of these with "abs_"
  TensorValue value;
};

/// Statistics of many tensors over many steps, as columns of equal length, by tensor, then step, then worker.
struct Frame {
  std::vector<std::string> names;    ///< of the tensors that are there, sorted; `tensor` points into it
  std::vector<std::string> workers;  ///< `worker` points into it
  std::vector<uint32_t> tensor, worker;
  std::vector<int64_t> step;  ///< global
  std::vector<ModeKey> mode;
  std::vector<int64_t> mode_step;
  std::vector<std::string> fields;
  std::vector<std::vector<double>> values;  ///< one per field
};

/// How a worker's training went, in its own words as it ended.
struct WorkerEnd {
  std::string worker;
  std::string reason;  ///< "completed", "exception", "signal", "stopped", "closed"; empty: it is gone without
                       ///< a word, as a killed process is
  std::string message;     ///< of an exception: "ValueError: ..."
  int64_t last_step = -1;  ///< global, the last that it completed; -1: none
};

enum class RunState : uint8_t {
  kWaiting = 0,  ///< no worker has written yet
  kRunning = 1,
  kEnded = 2,    ///< every worker said goodbye, or the job ended without one
  kCrashed = 3,  ///< a worker's process is gone without a goodbye and none is alive, or so a job without one
};

struct TrialOptions {
  int64_t attempt = -1;  ///< -1: overlay of all attempts, the latest wins from its step base on
  /// For a path that does not exist yet: wait this long for it (0: fail at once, < 0: for ever).
  int64_t wait_millis = 0;
};

class Trial;

/// A position in a run that moves forward step by step. Cursors of one trial are independent. Points
/// at its trial, which must outlive it.
class Cursor {
 public:
  /// The next complete step, waiting up to `timeout_millis` (0: do not wait, < 0: for ever).
  /// \error kUnavailable        no step yet
  /// \error kFailedPrecondition the run has ended (or crashed): there will be none
  Result<StepInfo> Next(int64_t timeout_millis);

 private:
  friend class Trial;
  explicit Cursor(Trial* trial) : trial_(trial) {}
  Trial* trial_;
  int64_t last_step_ = -1;
};

/// One run, opened for reading. Never writes to it.
///
/// Answers come from what the last Refresh() saw, so a rule or a plot sees a view that does not move under
/// it.
/// \threadsafety One thread at a time; open the run again for another thread.
class Trial {
 public:
  /// \error kNotFound            nothing there, or not a run directory (says what is there)
  /// \error kUnimplemented       written by a newer major version
  /// \error kDeadlineExceeded    options.wait_millis passed
  static Result<std::unique_ptr<Trial>> Open(const std::string& path, const TrialOptions& options = {});
  ~Trial();

  const std::string& path() const;
  std::string name() const;
  /// Takes in what is new. True if there was anything.
  Result<bool> Refresh();
  /// Blocks until something may be new; false on timeout. Uses no CPU while waiting. Call Refresh afterwards.
  bool WaitForChange(int64_t timeout_millis);
  /// Makes a WaitForChange on another thread return.
  void Wake();

  RunState state() const;
  /// No more steps will come, as of the last Refresh: state is kEnded or kCrashed, and no launcher is about
  /// to start the command again.
  bool loaded_all_steps() const;
  std::vector<int64_t> attempts() const;
  std::vector<std::string> workers() const;  ///< of the latest attempt, sorted
  int64_t world_size() const;                ///< workers the latest attempt was started with; 0: none yet
  std::vector<ModeKey> modes() const;        ///< seen, without kGlobal
  /// How those workers of the latest attempt ended that train no more; sorted by name.
  std::vector<WorkerEnd> worker_ends() const;
  std::vector<DroppedInfo> dropped() const;
  std::vector<std::string> damage() const;  ///< one line each
  uint64_t bytes_on_disk() const;
  int64_t last_seen_step() const;  ///< heartbeat, also where nothing was due
  int64_t last_seen_wall_nanos() const;

  /// Global steps (mode kGlobal: of any mode) or mode steps (other modes), ascending; complete ones only.
  std::vector<int64_t> steps(ModeKey mode = ModeKey::kGlobal) const;
  std::vector<int64_t> steps(const StepFilter& filter) const;
  /// Global: the greatest step up to which nothing is missing any more; -1: none.
  int64_t last_complete_step() const;
  /// Workers that have committed the step, and those it still waits for ("rank 3" where one was never seen);
  /// both sorted, both empty for a step that is not there.
  std::vector<std::string> step_workers(int64_t global_step) const;
  std::vector<std::string> missing_workers(int64_t global_step) const;
  /// As of the last Refresh. `step` is a step of filter.mode. A step that is not there is kUnavailable as
  /// soon as a later one of the mode is complete or the run is over.
  StepState step_state(int64_t step, const StepFilter& filter = {}) const;
  /// Refreshes until step_state is not kNotYetAvailable and returns it. Uses no CPU while it waits.
  /// \error kDeadlineExceeded  `timeout_millis` passed (0: do not wait, < 0: for ever)
  Result<StepState> WaitForStep(int64_t step, const StepFilter& filter, int64_t timeout_millis);
  std::optional<StepInfo> step(int64_t global_step) const;
  std::optional<int64_t> global_step(ModeKey mode, int64_t mode_step) const;

  /// Canonical names, sorted. `regex` is searched; `collection` is a collection's name; either may be empty.
  /// Derived statistics are recorded as tensors, too; only the collection "statistics" lists those.
  Result<std::vector<std::string>> tensor_names(std::string_view regex = {},
                                                std::string_view collection = {}) const;
  Result<std::vector<std::string>> tensor_names(const TensorFilter& filter) const;
  /// The collections of the run's plan, and those that its tensors name, sorted by name.
  std::vector<CollectionInfo> collections() const;
  /// By canonical, alias or unambiguous short name.
  /// \error kNotFound  names the nearest; kInvalidArgument  the short name is ambiguous (lists them)
  Result<TensorInfo> tensor(std::string_view name) const;
  Result<std::vector<int64_t>> tensor_steps(std::string_view name, StepKind kind = StepKind::kAny,
                                            ModeKey mode = ModeKey::kGlobal) const;
  /// Global steps at which the tensor is kept, by any worker or by the one that is named.
  Result<std::vector<int64_t>> tensor_steps(std::string_view name, const StepFilter& filter,
                                            std::string_view worker = {}) const;
  /// Something of that kind is kept of it at this step. A lookup, not a list.
  Result<bool> is_kept(std::string_view name, int64_t global_step, StepKind kind,
                       std::string_view worker = {}) const;
  /// Names of the workers by which something of that kind is kept of it at this step, sorted.
  Result<std::vector<std::string>> tensor_workers(std::string_view name, int64_t global_step,
                                                  StepKind kind = StepKind::kAny) const;

  /// Raw value. Single-element tensors whose raw value was not kept are answered from their summary.
  /// \error kNotFound  no such tensor, step, or no raw value there (says what is kept, and at which steps).
  /// \error kDataLoss  damaged bytes.
  Result<TensorValue> value(std::string_view name, int64_t global_step, std::string_view worker = {}) const;
  /// A part of a raw value. Where a sealed segment holds it only the touched pages are read, and nothing is
  /// verified: a checksum covers the whole. `ranges`: one per axis from the outermost; what is left out is
  /// whole.
  /// \error kInvalidArgument  a range outside the shape, more ranges than axes; and value()'s
  Result<TensorValue> slice(std::string_view name, int64_t global_step, std::span<const AxisRange> ranges,
                            std::string_view worker = {}) const;
  /// The shape at this step: of the raw value, else the one that was saved or declared.
  Result<std::vector<int64_t>> shape(std::string_view name, int64_t global_step,
                                     std::string_view worker = {}) const;
  /// Reductions that were asked for by name and saved at this step, by name. Empty: none were.
  Result<std::vector<Reduction>> saved_reductions(std::string_view name, int64_t global_step,
                                                  std::string_view worker = {}) const;
  /// A reduction: the saved one, else from the statistics, else from the raw value. Element-wise norms,
  /// variance and std with ddof 0, NaN where NumPy says so.
  /// \error kInvalidArgument  no such reduction; kNotFound  nothing to compute it from
  Result<TensorValue> reduction(std::string_view name, int64_t global_step, std::string_view reduction,
                                std::string_view worker = {}) const;
  Result<Summary> summary(std::string_view name, int64_t global_step, std::string_view worker = {}) const;
  /// \error kNotFound  says why there is none: this tensor never has one, this step is not due (the steps of
  /// StepKind::kHistogram are), or it was shed
  Result<Histogram> histogram(std::string_view name, int64_t global_step, std::string_view worker = {}) const;
  /// A derived statistic of the tensor (tdbg/statistic.h), as it was computed while training.
  /// \error kInvalidArgument  not in the catalogue; kNotFound  not kept (says what is); kDataLoss
  Result<StatisticValue> statistic(std::string_view name, std::string_view statistic_id, int64_t global_step,
                                   std::string_view worker = {}) const;
  /// Ids of the derived statistics that the run keeps of the tensor, sorted.
  Result<std::vector<std::string>> statistics(std::string_view name) const;
  /// What was recorded when the run ended, outside steps() (final weights, what the script recorded after its
  /// last step), by the latest attempt that has it. Of a scalar: float64, of no axes.
  Result<TensorValue> final_value(std::string_view name, std::string_view worker = {}) const;
  Result<Summary> final_summary(std::string_view name, std::string_view worker = {}) const;
  /// The number of a scalar, of a one-element tensor, or of a scalar's context series.
  Result<double> scalar(std::string_view name, int64_t global_step, std::string_view worker = {}) const;

  /// A whole series at once. Fields are those of Summary, plus mean_abs, std, nonfinite_count, and value (of
  /// scalars and one-element tensors). Steps at which the tensor was damaged or not kept are left out.
  struct Series {
    std::vector<int64_t> steps;
    std::vector<double> values;
  };
  Result<Series> series(std::string_view name, std::string_view field, std::string_view worker = {}) const;
  /// Many series at once. `worker`: empty for the lowest rank that has a step, "*" for every worker.
  /// A field that a row does not have (statistics of a plain number, a damaged column) is NaN.
  /// \error kInvalidArgument  a field, regex or worker; kNotFound  a worker
  Result<Frame> frame(const TensorFilter& tensors, std::span<const std::string> fields,
                      std::string_view worker = {}) const;

  /// Structured context that holds at `global_step`: the latest record of `topic` up to there, as JSON.
  std::optional<std::string> context(std::string_view topic, int64_t global_step) const;

  Cursor cursor() { return Cursor(this); }

 private:
  friend class Cursor;
  friend class TrialAccess;  // src/trial/access.h: what rules read without going through names
  friend class ValueFinder;
  struct Impl;
  explicit Trial(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tdbg
