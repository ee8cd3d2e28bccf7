// Reading a run: while it trains or a year later, through the same calls. Start here to ask questions.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tdbg/statistic.h"
#include "tdbg/status.h"
#include "tdbg/summary.h"
#include "tdbg/tensor.h"

namespace tdbg {

enum class ModeKey : uint8_t { kTrain = 1, kEval = 2, kPredict = 3, kGlobal = 4 };

/// Which steps a call lists: those with a raw value, with statistics, or with either (semantics.md, 5).
enum class StepKind : uint8_t { kAny = 0, kRaw = 1, kSummary = 2 };

/// One step of a run (of one attempt, all workers).
struct StepInfo {
  int64_t global_step = 0;
  ModeKey mode = ModeKey::kGlobal;
  int64_t mode_step = 0;
  int64_t wall_nanos = 0;  ///< of the first worker that committed it
  bool skipped = false;    ///< AMP skipped the update
  bool complete = false;   ///< every worker committed it, ended, or was declared lost
};

/// A value read from a run. `data` stays valid while `owner` (or a copy of it) lives.
struct TensorValue {
  std::shared_ptr<const void> owner;
  TensorView view;  ///< C order; its shape borrows `shape`
  std::vector<int64_t> shape;
  DType dtype = DType::kInvalid;
  const void* data = nullptr;
};

struct TensorInfo {
  std::string name;  ///< canonical
  std::string short_name;
  std::string kind, module_kind;
  std::vector<std::string> collections, aliases;
  DType dtype = DType::kInvalid;
  std::vector<int64_t> shape;
  int unit_axis = -1;
};

/// What a run lost, in words and numbers.
struct LossInfo {
  std::string worker, cause, kind, text;
  uint64_t count = 0, bytes = 0;
  int64_t first_step = -1, last_step = -1;
};

enum class RunState : uint8_t {
  kWaiting = 0,  ///< no worker has written yet
  kRunning = 1,
  kEnded = 2,    ///< every worker said goodbye
  kCrashed = 3,  ///< at least one worker's process is gone without a goodbye and none is alive
};

struct TrialOptions {
  int64_t attempt = -1;  ///< -1: overlay of all attempts, the latest wins from its step base on
  /// For a path that does not exist yet: wait this long for it (0: fail at once, < 0: for ever).
  int64_t wait_millis = 0;
};

class Trial;

/// A position in a run that moves forward step by step. Cursors of one trial are independent.
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
  /// No more steps will come (state is kEnded or kCrashed), as of the last Refresh.
  bool loaded_all_steps() const;
  std::vector<int64_t> attempts() const;
  std::vector<std::string> workers() const;  ///< of the latest attempt, sorted
  std::vector<ModeKey> modes() const;        ///< seen, without kGlobal
  std::vector<LossInfo> losses() const;
  std::vector<std::string> damage() const;  ///< one line each
  uint64_t bytes_on_disk() const;
  int64_t last_seen_step() const;  ///< heartbeat, also where nothing was due
  int64_t last_seen_wall_nanos() const;

  /// Global steps (mode kGlobal: of any mode) or mode steps (other modes), ascending; complete ones only.
  std::vector<int64_t> steps(ModeKey mode = ModeKey::kGlobal) const;
  std::optional<StepInfo> step(int64_t global_step) const;
  std::optional<int64_t> global_step(ModeKey mode, int64_t mode_step) const;

  /// Canonical names, sorted. `regex` is searched; `collection` is a collection's name; either may be empty.
  /// Derived statistics are recorded as tensors, too; only the collection "statistics" lists those.
  Result<std::vector<std::string>> tensor_names(std::string_view regex = {},
                                                std::string_view collection = {}) const;
  /// By canonical, alias or unambiguous short name.
  /// \error kNotFound  names the nearest; kInvalidArgument  the short name is ambiguous (lists them)
  Result<TensorInfo> tensor(std::string_view name) const;
  Result<std::vector<int64_t>> tensor_steps(std::string_view name, StepKind kind = StepKind::kAny,
                                            ModeKey mode = ModeKey::kGlobal) const;

  /// Raw value. Single-element tensors whose raw value was not kept are answered from their summary.
  /// \error kNotFound  no such tensor, step, or no raw value there (says what is kept, and at which steps).
  /// \error kDataLoss  damaged bytes.
  Result<TensorValue> value(std::string_view name, int64_t global_step, std::string_view worker = {}) const;
  Result<Summary> summary(std::string_view name, int64_t global_step, std::string_view worker = {}) const;
  /// kNotFound where none was kept (fewer than 256 elements, or shed).
  Result<Histogram> histogram(std::string_view name, int64_t global_step, std::string_view worker = {}) const;
  /// A derived statistic of the tensor (tdbg/statistic.h), as it was computed while training.
  /// \error kInvalidArgument  not in the catalogue; kNotFound  not kept (says what is); kDataLoss
  Result<StatisticValue> statistic(std::string_view name, std::string_view statistic_id, int64_t global_step,
                                   std::string_view worker = {}) const;
  /// Ids of the derived statistics that the run keeps of the tensor, sorted.
  Result<std::vector<std::string>> statistics(std::string_view name) const;
  /// What was recorded when the run ended, outside steps() (final weights), by the latest attempt that has
  /// it.
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
